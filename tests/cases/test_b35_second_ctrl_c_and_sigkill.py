"""B35: an interrupted task comes back by itself, at its deadline at the latest."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from django_leasequeue.records import Depth
from django_leasequeue.worker import shutdown
from tests.databases import on_all
from tests.waiting import PATIENCE, wait_for
from tests.worker import tasks
from tests.worker.conftest import DJANGO, ROOT, Site, surroundings, wait_until_said

pytestmark = on_all


def test_the_first_signal_lets_a_task_run_renewed_and_the_second_is_final(postgres: Site) -> None:
    """G40"""
    result = postgres.enqueue(tasks.sleep_at_first, 60)
    process = running(postgres, "--grace", "600")

    process.send_signal(signal.SIGINT)
    wait_until_said(process, "stopping")
    postgres.enqueue(tasks.add, 1, 1)
    beats = postgres.kinds().count("heartbeat")
    # Longer than the visibility, a third of which is between two of them.
    wait_for(lambda: postgres.kinds().count("heartbeat") >= beats + 4)
    assert process.poll() is None
    assert "lapsed" not in postgres.kinds()
    assert postgres.kinds().count("leased") == 1, "nothing new is claimed"

    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) != 0
    assert_done_elsewhere(postgres, result)


def test_a_killed_workers_task_is_done_elsewhere(postgres: Site) -> None:
    """G40"""
    result = postgres.enqueue(tasks.sleep_at_first, 60)
    process = running(postgres)

    process.kill()

    assert_done_elsewhere(postgres, result)


def test_after_the_grace_the_worker_leaves_and_says_what_it_leaves(postgres: Site) -> None:
    """G40"""
    result = postgres.enqueue(tasks.sleep_at_first, 60)
    process = running(postgres, "--grace", "0.2")

    process.send_signal(signal.SIGTERM)

    assert process.wait(PATIENCE) == 1
    process.reader.join(PATIENCE)
    said = "".join(process.lines)
    assert "running=1 grace=0.2s" in said
    assert f"unfinished queue=work id={result.id} attempt=1 token=" in said


def test_after_the_grace_the_worker_leaves_though_nobody_reads_what_it_says(
    postgres: Site,
) -> None:
    """G40: its terminal is closed, or the program that its log was piped into has ended."""
    postgres.enqueue(tasks.sleep_at_first, 60)
    ours, theirs = os.pipe()
    command = [*DJANGO, "leasequeue_worker", "--backend", postgres.alias, "--grace", "0.2"]
    process = subprocess.Popen(command, cwd=ROOT, env=surroundings(), stderr=theirs)
    os.close(theirs)
    try:
        wait_for(lambda: "heartbeat" in postgres.kinds())
        os.close(ours)

        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 1
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_process_that_was_started_without_a_stream_leaves_with_its_status(
    monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(sys, stream, None)

    with pytest.raises(SystemExit, match="3"):
        shutdown.leave(3)


def running(site: Site, *arguments: str) -> Any:
    """A worker process that has begun with its task."""
    process = site.start(*arguments)
    wait_until_said(process, "asleep")
    return process


def assert_done_elsewhere(site: Site, result: Any) -> None:
    with site.worker():
        wait_for(lambda: site.queue.depth() == Depth(visible=0, scheduled=0, leased=0, dead=0))
    result.refresh()
    assert result.return_value == 2
    assert "vanished" in result.errors[0].traceback or "let its lease pass" in str(result.errors)
