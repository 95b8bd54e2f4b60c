from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from example_project import devdb
from example_project.bootstrap import ROOT
from example_project.devdb import Cluster, DevDBError
from example_project.programs import Programs, account, all_programs
from tests.waiting import PATIENCE


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree((tmp_path / ".devdb").resolve(), ignore_errors=True)


@pytest.fixture
def kept(project: Path) -> Iterator[Cluster]:
    cluster = devdb.start(project, keep=True)
    yield cluster
    cluster.close()


def ask(cluster: Cluster, question: str) -> Any:
    with psycopg.connect(
        host=str(cluster.folder), port=5432, user=devdb.USER, dbname="postgres", autocommit=True
    ) as connection:
        cursor = connection.execute(question)
        return cursor.fetchone() if cursor.description else None


def kill(cluster: Cluster) -> None:
    assert cluster.process is not None
    cluster.process.kill()
    cluster.process.wait()


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while devdb.reply(folder):
        assert time.monotonic() < deadline, "the server is still there"
        time.sleep(0.02)


def test_a_throwaway_server_leaves_nothing_behind(project: Path) -> None:
    cluster = devdb.start(project, keep=False)
    assert ask(cluster, "SELECT current_setting('listen_addresses')") == ("",)

    cluster.close()

    assert devdb.reply(cluster.folder) == ""
    assert not cluster.folder.exists()


def test_a_server_comes_back_with_its_data_after_a_stop(project: Path, kept: Cluster) -> None:
    ask(kept, "CREATE TABLE kept AS SELECT 42 AS answer")
    kept.close()

    again = devdb.start(project, keep=True)

    assert ask(again, "SELECT answer FROM kept") == (42,)
    again.close()


def test_a_server_comes_back_with_its_data_after_a_kill(project: Path, kept: Cluster) -> None:
    """Its pid file and its socket are still there then."""
    ask(kept, "CREATE TABLE kept AS SELECT 42 AS answer")
    kill(kept)

    again = devdb.start(project, keep=True)

    assert ask(again, "SELECT answer FROM kept") == (42,)
    again.close()


def test_a_running_server_is_shared_and_ends_with_the_one_who_started_it(
    project: Path, kept: Cluster
) -> None:
    guest = devdb.start(project, keep=True)
    assert guest.url == kept.url

    guest.close()

    assert ask(kept, "SELECT 1") == (1,)


def test_throwaway_servers_are_each_their_own(project: Path) -> None:
    one, two = devdb.start(project, keep=False), devdb.start(project, keep=False)

    assert one.url != two.url
    assert (ask(one, "SELECT 1"), ask(two, "SELECT 1")) == ((1,), (1,))
    one.close()
    two.close()


def test_a_pid_file_that_names_another_program_is_in_nobodys_way(
    project: Path, kept: Cluster
) -> None:
    """After a reboot the number may be anyone's; PostgreSQL alone would refuse to start."""
    pid_file = kept.data / "postmaster.pid"
    text = pid_file.read_text()
    kept.stop()
    # Of the server's own account: PostgreSQL ignores the processes of others by itself.
    other = subprocess.Popen(["sleep", "60"], cwd="/", **account())
    pid_file.write_text(text.replace(text.split("\n")[0], str(other.pid), 1))

    again = devdb.start(project, keep=True)

    assert ask(again, "SELECT 1") == (1,)
    again.close()
    other.kill()
    other.wait()


def test_the_pid_file_of_a_living_server_stays(kept: Cluster) -> None:
    """It guards the data, even where the server can't be reached any more."""
    (kept.folder / ".s.PGSQL.5432").unlink()
    second = Cluster(kept.folder, kept.programs, keep=True)

    with pytest.raises(DevDBError, match=r"postmaster\.pid"):
        second.start()

    assert kept.process is not None
    assert (kept.data / "postmaster.pid").read_text().startswith(f"{kept.process.pid}\n")
    assert kept.process.poll() is None


def test_a_server_that_is_still_starting_up_is_waited_for(kept: Cluster, tmp_path: Path) -> None:
    answers = [b"E", b"E", b"R"]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / ".s.PGSQL.5432"))
        server.listen()

        def answer() -> None:
            while answers:
                client, _ = server.accept()
                with client:
                    client.recv(1000)
                    client.sendall(answers.pop(0))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        ready = Cluster(tmp_path, kept.programs, keep=True).wait_until_ready()
        thread.join(PATIENCE)

    assert ready
    assert answers == []


def test_a_first_start_that_was_killed_halfway_is_begun_again(project: Path) -> None:
    first = devdb.start(project, keep=True)
    first.close()
    first.data.rename(first.folder / "half")

    again = devdb.start(project, keep=True)

    assert ask(again, "SELECT 1") == (1,)
    again.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child")
def test_a_server_dies_with_the_process_that_started_it(project: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from example_project import devdb;"
        "print(devdb.start(Path(sys.argv[1]), keep=True).folder, flush=True); time.sleep(60)"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", program, project], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    folder = Path(supervisor.stdout.readline().strip())
    assert devdb.reply(folder) == "R"

    supervisor.send_signal(signal.SIGKILL)

    wait_until_gone(folder)
    supervisor.communicate()


def test_a_copy_of_a_project_has_servers_of_its_own(project: Path) -> None:
    home = devdb.home_of(project)
    copy = project / "copy"
    copy.mkdir()
    (copy / ".devdb").symlink_to(home)

    other = devdb.home_of(copy)

    assert other != home
    assert devdb.home_of(copy) == other
    assert devdb.home_of(project) == home
    other.rmdir()


def test_a_new_clone_in_the_same_place_clears_up_after_the_old_one(project: Path) -> None:
    kept = devdb.start(project, keep=True)
    old = devdb.home_of(project)
    (project / ".devdb").unlink()
    empty = devdb.home_of(project)
    assert old.exists(), "a server runs there"
    kept.close()
    (project / ".devdb").unlink()

    new = devdb.home_of(project)

    assert not old.exists()
    assert not empty.exists()
    assert new.exists()


def test_reset_forgets_the_data_but_not_under_a_running_server(
    project: Path, kept: Cluster
) -> None:
    with pytest.raises(DevDBError, match="running"):
        devdb.reset(project)
    assert ask(kept, "SELECT 1") == (1,)
    kept.close()

    devdb.reset(project)

    assert not kept.folder.exists()


def test_what_killed_runs_left_behind_goes_a_day_later(project: Path) -> None:
    home = devdb.home_of(project)
    old, new = home / "throwaway-old", home / "throwaway-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (0, 0))

    devdb.tidy(home)

    assert not old.exists()
    assert new.exists()


def test_without_postgresql_the_message_says_what_to_do(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG_BIN", str(project))

    with pytest.raises(DevDBError, match="Set DATABASE_URL"):
        devdb.start(project, keep=False)


def test_the_next_programs_are_tried_where_the_first_ones_fail(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [good, *_] = all_programs()
    broken = project / "bin"
    broken.mkdir()
    for name in ("postgres", "initdb"):
        (broken / name).write_text("#!/bin/sh\nexit 1\n")
        (broken / name).chmod(0o755)
    bad = Programs(broken, "99.0", "system")
    monkeypatch.setattr(devdb, "all_programs", lambda: [bad, good])

    cluster = devdb.start(project, keep=False)

    assert cluster.programs.major == good.major
    cluster.close()
