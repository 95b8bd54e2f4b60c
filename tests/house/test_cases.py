"""The table of faults met elsewhere and the tests under their numbers keep to each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
ROW: Final = re.compile(r"^\| (B\d\d) \| (.+) \| (.+) \|$", re.MULTILINE)
CASES: Final = ROW.findall((ROOT / "docs/cases.md").read_text())


def numbers_of(file: Path) -> set[str]:
    return {number.upper() for number in re.findall(r"b\d\d(?=_)", file.name)}


def test_each_number_stands_once_and_in_order() -> None:
    numbers = [number for number, *_ in CASES]

    assert numbers == sorted(set(numbers))


def test_every_file_of_cases_has_its_numbers_in_the_table() -> None:
    known = {number for number, *_ in CASES}

    for file in (ROOT / "tests/cases").glob("test_*.py"):
        assert numbers_of(file), f"{file.name} has no number"
        assert numbers_of(file) <= known, f"{file.name} isn't in docs/cases.md"


@pytest.mark.parametrize(("number", "files"), [(number, files) for number, _, files in CASES])
def test_a_case_is_held_by_the_files_it_names(number: str, files: str) -> None:
    patterns = re.findall(r"`(.+?)`", files)
    named = [file for pattern in patterns for file in ROOT.glob(pattern)]
    own = list((ROOT / "tests/cases").glob(f"test_*{number.lower()}_*.py"))

    assert named, f"{files}: not there"
    assert set(own) <= set(named), f"{number} has a file of its own: name it"
    assert all(number in file.read_text() for file in named), f"{files}: cites no {number}"
