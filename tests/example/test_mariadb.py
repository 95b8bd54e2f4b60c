from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from example_project import mariadb
from example_project.mariadb import NoMariaDBError


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree((tmp_path / ".devdb").resolve(), ignore_errors=True)


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Root on a machine with apt and no MariaDB; what apt is asked for, and it never succeeds."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 100, "", "no network")

    monkeypatch.delenv("MARIADB_URL", raising=False)
    monkeypatch.delenv("MARIADB", raising=False)
    monkeypatch.setattr(mariadb, "PATH", "/nowhere")
    monkeypatch.setattr(mariadb, "can_be_installed", lambda: True)
    monkeypatch.setattr("example_project.mariadb.subprocess.run", run)
    return asked


def test_a_server_listens_on_its_socket_and_leaves_nothing_behind(project: Path) -> None:
    try:
        server = mariadb.start(project)
    except NoMariaDBError as error:
        pytest.skip(str(error))
    assert server.answers()

    server.close()

    assert not server.answers()
    assert not server.folder.exists()


def test_it_is_left_alone_where_the_environment_says_no(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIADB", "no")

    with pytest.raises(NoMariaDBError, match="MARIADB=no"):
        mariadb.start(project)
    assert not mariadb.can_be_installed()


def test_what_is_there_is_not_installed(
    bare_machine: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mariadbd").touch(0o755)
    monkeypatch.setattr(mariadb, "PATH", str(tmp_path))

    mariadb.install()

    assert bare_machine == []


def test_what_is_missing_is_asked_of_apt_which_may_say_why_not(
    bare_machine: list[list[str]], project: Path
) -> None:
    with pytest.raises(NoMariaDBError, match="no network"):
        mariadb.install()
    assert ["update" in command for command in bare_machine] == [False, True, False]
    with pytest.raises(NoMariaDBError, match="no mariadbd on this machine"):
        mariadb.start(project)
