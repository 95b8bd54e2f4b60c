"""Several workers under one supervisor: restarted, replaced, and never left behind."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand

from django_leasequeue.management.commands import leasequeue_worker
from django_leasequeue.management.commands.leasequeue_worker import Command
from django_leasequeue.models import TaskTransition
from django_leasequeue.worker.supervisor import (
    AGAIN,
    DEATHS_MAX,
    SETTLED_SECONDS,
    Line,
    Supervisor,
    what_ended,
)
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread, wait_for

from . import tasks
from .conftest import Site, wait_until_said

PYTHON = [sys.executable, "-S", "-E", "-c"]  # starts in a moment
WAIT_TO_BE_TOLD = "import os, sys; os.read(int(sys.argv[-1]), 1)"


@contextmanager
def supervised(
    code: str, processes: int = 1, *, grace: float = PATIENCE, patience: float = 0.1, **options: Any
) -> Iterator[tuple[Supervisor, Future[int]]]:
    """Children that run *code* in place of a worker; told to leave at the end."""
    supervisor = Supervisor([*PYTHON, code], processes, grace=grace, patience=patience, **options)
    ended = in_thread(supervisor.run)
    try:
        yield supervisor, ended
    finally:
        supervisor.stop()
        supervisor.stop()
        ended.result(PATIENCE)


@on_all
def test_drained_by_two_processes_each_replaced_after_its_share(postgres: Site) -> None:
    """G62"""
    for number in range(3):
        postgres.enqueue(tasks.add, number, 0)

    supervisor = postgres.start(
        "--drain", "--processes", "2", "--max-tasks-per-child", "2", "--name", "w"
    )

    assert supervisor.wait(PATIENCE) == 0
    assert postgres.kinds().count("acked") == 3
    supervisor.reader.join(PATIENCE)  # type: ignore[attr-defined]
    assert said(supervisor, r"ended child=w-[12] pid=\d+ to make way for another")
    for line in said(supervisor, "acked queue=work .*"):
        assert re.search(r"worker=w-[12]$", line)


@on_all
def test_a_killed_child_is_replaced_and_none_outlives_its_supervisor(postgres: Site) -> None:
    """G62: with a name, what the child held comes back with its successor."""
    result = postgres.enqueue(tasks.sleep_long_at_first, 60)
    supervisor = postgres.start("--processes", "2", "--name", "w", "--grace", "0.1")
    wait_for(lambda: len(said(supervisor, "started worker=w-[12]")) == 2)
    wait_for(lambda: "leased" in postgres.kinds())

    os.kill(pids(supervisor)[name_of_worker(postgres)], signal.SIGKILL)

    wait_for(lambda: "acked" in postgres.kinds())
    result.refresh()
    assert result.return_value == 2
    assert said(supervisor, "died: SIGKILL")
    assert said(supervisor, "adopted queue=work")

    supervisor.kill()

    wait_for(lambda: not any(map(alive, pids(supervisor).values())))


@on_all
def test_a_signal_to_the_whole_group_is_one_stop_and_the_second_is_final(postgres: Site) -> None:
    """G62: as a terminal sends Ctrl-C to every process, and systemd its SIGTERM."""
    postgres.enqueue(tasks.sleep_at_first, 60)
    supervisor = postgres.start("--processes", "2", "--name", "w")
    wait_for(lambda: len(said(supervisor, "started worker=w-[12]")) == 2)
    wait_until_said(supervisor, "asleep")
    everyone = [supervisor.pid, *pids(supervisor).values()]

    for pid in everyone:
        os.kill(pid, signal.SIGTERM)

    wait_until_said(supervisor, "exit status 0")
    beats = postgres.kinds().count("heartbeat")
    wait_for(lambda: postgres.kinds().count("heartbeat") > beats)
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(PATIENCE) == 1
    supervisor.reader.join(PATIENCE)  # type: ignore[attr-defined]
    assert said(supervisor, "unfinished queue=work")
    assert not any(map(alive, everyone[1:]))


def test_all_children_that_die_at_once_are_given_up_loudly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G62"""
    monkeypatch.setattr("django_leasequeue.worker.outage.PAUSE_SECONDS_MIN", 0.001)

    with supervised("raise SystemExit(3)", 2) as (_, ended):
        assert ended.result(PATIENCE) == 1

    assert f"{DEATHS_MAX} times in a row: exit status 3" in caplog.text
    assert "giving up" in caplog.text


def test_a_child_that_dies_at_once_is_started_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """G62"""
    monkeypatch.setattr("django_leasequeue.worker.outage.PAUSE_SECONDS_MIN", 0.005)
    begun = time.monotonic()

    with supervised("raise SystemExit(3)") as (_, ended):
        ended.result(PATIENCE)

    assert time.monotonic() - begun > 0.005 * (2 + 4 + 8 + 16 + 32)


def test_a_child_that_wants_a_successor_gets_one_without_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G62"""
    monkeypatch.setattr("django_leasequeue.worker.outage.PAUSE_SECONDS_MIN", 60)
    starts: list[Any] = []
    counted(monkeypatch, starts.append)

    with supervised(f"raise SystemExit({AGAIN})"):
        wait_for(lambda: len(starts) > DEATHS_MAX)


def test_a_child_that_does_not_stop_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    """G62"""
    with supervised("import time; time.sleep(600)", grace=0.1) as (supervisor, ended):
        wait_for(lambda: supervisor.children[0].process is not None)
        supervisor.stop()

        assert ended.result(PATIENCE) == 1

    assert "it didn't stop" in caplog.text


def test_children_that_stop_when_told_ended_well() -> None:
    with supervised(WAIT_TO_BE_TOLD, 2) as (supervisor, ended):
        wait_for(lambda: all(child.process for child in supervisor.children))
        supervisor.stop()

        assert ended.result(PATIENCE) == 0


def test_a_second_stop_is_passed_on_and_ends_the_grace(caplog: pytest.LogCaptureFixture) -> None:
    """G62"""
    caplog.set_level("INFO", "django_leasequeue")
    leaves_when_told_twice = f"{WAIT_TO_BE_TOLD}; os.read(int(sys.argv[-1]), 1); sys.exit(7)"
    with supervised(leaves_when_told_twice, grace=600.0, patience=PATIENCE) as (supervisor, ended):
        wait_for(lambda: supervisor.children[0].process is not None)
        supervisor.stop()
        supervisor.stop()
        assert ended.result(PATIENCE) == 1
    assert "exit status 7" in caplog.text

    with supervised("import time; time.sleep(600)", grace=600.0) as (supervisor, ended):
        wait_for(lambda: supervisor.children[0].process is not None)
        supervisor.stop()
        supervisor.stop()
        assert ended.result(PATIENCE) == 1
    assert "SIGKILL" in caplog.text


def test_a_stop_ends_the_wait_for_a_successor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G62"""
    monkeypatch.setattr("django_leasequeue.worker.outage.PAUSE_SECONDS_MIN", 60)
    with supervised("raise SystemExit(3)") as (supervisor, ended):
        wait_for(lambda: "died" in caplog.text)
        supervisor.stop()

        assert ended.result(PATIENCE) == 0


@pytest.mark.parametrize(("fails_at_first", "status"), [(False, 0), (True, 1)])
def test_who_dies_before_the_queues_are_drained_is_replaced_and_told_by_the_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails_at_first: bool, status: int
) -> None:
    """G62"""
    monkeypatch.setattr("django_leasequeue.worker.outage.PAUSE_SECONDS_MIN", 0.001)
    starts: list[Any] = []
    counted(monkeypatch, starts.append)
    mark = tmp_path / "mark"
    if fails_at_first:
        mark.touch()

    code = f"import os; os.path.exists({str(mark)!r}) and (os.unlink({str(mark)!r}), os._exit(3))"
    with supervised(code, drain=True) as (_, ended):
        assert ended.result(PATIENCE) == status

    assert len(starts) == 1 + fails_at_first


def test_a_death_after_a_while_is_the_first_in_a_row(
    standing: None, caplog: pytest.LogCaptureFixture
) -> None:
    """G62"""
    supervisor = Supervisor([], 1, grace=0)
    [child] = supervisor.children
    pauses = []
    for seconds in (0.0, SETTLED_SECONDS - 1, SETTLED_SECONDS, 0.0):
        child.started_at = time.monotonic() - seconds
        supervisor.replace(child, "")
        pauses.append(child.start_at - time.monotonic())

    assert pauses == pytest.approx([0.2, 0.4, 0.1, 0.2], abs=1e-9)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "ERROR", "WARNING", "WARNING"]


def test_who_makes_way_leaves_neither_deaths_nor_a_line_behind() -> None:
    """G62"""
    supervisor = Supervisor([], 1, grace=0)
    [child] = supervisor.children
    child.deaths = 4
    child.line = os.open(os.devnull, os.O_RDONLY)
    child.process = SimpleNamespace(pid=1, returncode=AGAIN)  # type: ignore[assignment]

    supervisor.meet_end(child)

    assert (child.process, child.line, child.deaths) == (None, -1, 0)
    assert child.start_at <= time.monotonic()


def test_a_supervisor_looks_again_when_a_child_is_to_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G62"""
    waits: list[float] = []

    def told_to_stop(notes: Any, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("django_leasequeue.worker.supervisor.take", told_to_stop)
    supervisor = Supervisor([], 2, grace=0)
    for child, seconds in zip(supervisor.children, (300, 200), strict=True):
        child.start_at = time.monotonic() + seconds

    assert supervisor.run() == 0

    [wait] = waits
    assert wait <= 200


@pytest.mark.parametrize(
    ("status", "told"),
    [(-1, "SIGHUP"), (-9, "SIGKILL"), (0, "exit status 0"), (1, "exit status 1")],
)
def test_an_end_is_told_as_people_say_it(status: int, told: str) -> None:
    assert what_ended(status) == told


@pytest.mark.parametrize(
    ("deaths", "seconds", "gives_up"),
    [
        (DEATHS_MAX, None, True),
        (DEATHS_MAX, 0.0, True),
        (DEATHS_MAX, SETTLED_SECONDS, False),
        (DEATHS_MAX - 1, None, False),
    ],
    ids=["waiting", "begun", "at work", "one death less"],
)
def test_one_that_stays_alive_is_worth_going_on(
    deaths: int, seconds: float | None, gives_up: bool
) -> None:
    """G62: the other child has died as often as it may."""
    supervisor = Supervisor([], 2, grace=0)
    first, second = supervisor.children
    first.deaths, second.deaths = DEATHS_MAX, deaths
    if seconds is not None:
        second.process = object()  # type: ignore[assignment]  # one that runs
        second.started_at = time.monotonic() - seconds

    supervisor.give_up_where_all_die()

    assert supervisor.notes.empty() is not gives_up


def test_a_program_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("django_leasequeue.worker.outage.PAUSE_SECONDS_MIN", 0.001)

    assert Supervisor(["/nowhere"], 1, grace=0).run() == 1

    assert "can't be started" in caplog.text


@pytest.mark.parametrize("command", [["/nowhere"], [*PYTHON, "raise SystemExit(3)"]])
def test_no_descriptor_is_left_behind_by_those_who_ended(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr("django_leasequeue.worker.outage.PAUSE_SECONDS_MIN", 0.001)
    before = set(os.listdir("/dev/fd"))

    Supervisor(command, 1, grace=0).run()

    assert set(os.listdir("/dev/fd")) <= before


@pytest.mark.parametrize(
    ("said", "stops"), [(b"", 1), (b".", 1), (b"..", 2)], ids=["its end", "stop", "at once"]
)
def test_a_child_hears_its_supervisor_and_signals_as_one(said: bytes, stops: int) -> None:
    """G62: however many signals come along another way."""
    heard: list[None] = []
    ours, theirs = os.pipe()
    line = Line(ours, lambda: heard.append(None))

    line.stop_once()
    line.stop_once()
    os.write(theirs, said)
    os.close(theirs)
    line.obey()

    assert len(heard) == stops


@pytest.mark.parametrize("options", [{"processes": 2}, {"max_tasks_per_child": 5}])
def test_no_processes_are_started_from_within_another(options: Any) -> None:
    with pytest.raises(CommandError, match="process of their own"):
        call_command("leasequeue_worker", backend="worker on default", **options)


def test_options_that_do_not_go_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """G36"""
    monkeypatch.setattr(Command, "owns_process", True)

    with pytest.raises(CommandError, match="--max-tasks-per-child"):
        call_command("leasequeue_worker", processes=2, max_tasks=5)
    with pytest.raises(CommandError, match="worker has 202 characters"):
        call_command("leasequeue_worker", processes=2, name="x" * 200)


def said(process: Any, pattern: str) -> list[str]:
    found = (re.search(pattern, line) for line in list(process.lines))
    return [match[0] for match in found if match]


def pids(supervisor: Any) -> dict[str, int]:
    """The newest of each child."""
    lines = said(supervisor, r"started child=\S+ pid=\d+")
    return {name: int(pid) for name, pid in (re.findall("=(\\S+)", line) for line in lines)}


def name_of_worker(site: Site) -> str:
    leased = TaskTransition.objects.using(site.using).filter(kind="leased").latest("id")
    return str(leased.worker)


def alive(pid: int) -> bool:
    with suppress(OSError):  # who has nobody to bury it is dead all the same
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def counted(monkeypatch: pytest.MonkeyPatch, count: Callable[[Any], None]) -> None:
    start = Supervisor.start

    def started(self: Supervisor, child: Any) -> None:
        count(child)
        start(self, child)

    monkeypatch.setattr(Supervisor, "start", started)


@pytest.mark.parametrize("status", [AGAIN, 1])
def test_who_makes_way_leaves_as_programs_do_and_who_is_stuck_at_once(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Else what sends spans or reports at an exit would lose those of each child's last tasks."""

    def end(*_: Any) -> None:
        raise SystemExit(status)

    def leave(code: Any) -> None:
        raise ArithmeticError("left at once")

    monkeypatch.setattr(BaseCommand, "run_from_argv", end)
    monkeypatch.setattr(leasequeue_worker, "leave", leave)

    with pytest.raises(SystemExit if status == AGAIN else ArithmeticError):
        Command().run_from_argv([])
