from __future__ import annotations

import re
import subprocess
import tarfile
from email.message import Message
from email.parser import Parser
from pathlib import PurePosixPath
from zipfile import ZipFile

import pytest

from .conftest import ROOT, Built

PACKAGE = ROOT / "django_leasequeue"


@pytest.fixture
def wheel_files(built: Built) -> set[str]:
    return set(ZipFile(built.wheel).namelist())


@pytest.fixture
def metadata(built: Built) -> Message:
    with ZipFile(built.wheel) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel_files: set[str]) -> None:
    """Templates, SQL and py.typed too; neither the example nor the tests."""
    here = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {name for name in wheel_files if ".dist-info/" not in name} == here


def test_the_wheel_tells_type_checkers_that_it_is_typed(wheel_files: set[str]) -> None:
    assert "django_leasequeue/py.typed" in wheel_files


def test_a_user_without_the_extras_gets_django_a_driver_and_no_more(metadata: Message) -> None:
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]

    assert sorted(re.split(r"[<>=; ]", line)[0].lower() for line in required) == [
        "django",
        "django-tasks",
        "psycopg",
    ]
    [backport] = [line for line in required if line.startswith("django-tasks")]
    assert backport.endswith("; python_version < '3.12'")


def test_the_metadata_say_what_it_is(metadata: Message) -> None:
    assert metadata["Name"] == "django-leasequeue"
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()


def test_the_source_distribution_holds_what_git_does_and_nothing_else(built: Built) -> None:
    """No virtual environment, database or key that happened to lie in the folder."""
    git = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    known = subprocess.run(git, capture_output=True, text=True)
    if known.returncode:
        pytest.skip("this is no clone: git doesn't know the files")
    with tarfile.open(built.sdist) as archive:
        packed = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in archive.getnames()}

    there = {PurePosixPath(name) for name in known.stdout.split("\n") if (ROOT / name).is_file()}
    assert packed - {PurePosixPath("PKG-INFO")} == there
