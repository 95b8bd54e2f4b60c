"""Recording outcomes where the database, or the site's receivers, get in the way."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from django_leasequeue import signals
from django_leasequeue.compat import TaskResultStatus, task_finished
from django_leasequeue.errors import QueueUnavailableError
from django_leasequeue.queue import Queue
from django_leasequeue.worker import finisher
from django_leasequeue.worker.finisher import recorded_already
from tests.databases import on_all
from tests.waiting import PATIENCE, idles, wait_for

from . import tasks
from .conftest import Site, receiving

pytestmark = on_all


def test_a_finish_whose_answer_was_lost_counts_as_done(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server has committed, the connection breaks before it can say so."""
    losses: list[Any] = []

    def lost(reason: Any, **_: Any) -> None:
        losses.append(reason)

    lose_answers(monkeypatch, "complete_many", "fail")
    acked, failing = site.enqueue(tasks.add, 1, 2), site.enqueue(tasks.fail, "no")

    with receiving(signals.lease_lost, lost):
        site.drain()

    acked.refresh()
    failing.refresh()
    assert acked.return_value == 3
    assert (failing.status, failing.attempts) == (TaskResultStatus.FAILED, 3)
    assert losses == []
    assert "lost queue=" not in caplog.text


def lose_answers(monkeypatch: pytest.MonkeyPatch, *moves: str) -> None:
    """Let the first call of each move work, and fail all the same."""
    for move in moves:
        original = getattr(Queue, move)
        answered: list[str] = []

        def once(self: Queue, *args: Any, _move: Any = (original, answered), **kwargs: Any) -> Any:
            original, answered = _move
            answer = original(self, *args, **kwargs)
            if not answered:
                answered.append("lost")
                raise OperationalError("server closed the connection unexpectedly")
            return answer

        monkeypatch.setattr(Queue, move, once)


def test_a_receiver_that_leaves_a_transaction_open_loses_no_later_outcome(site: Site) -> None:
    def poison(**_: Any) -> None:
        transaction.atomic(using=site.using).__enter__()
        connections[site.using].ensure_connection()

    results = [site.enqueue(tasks.add, number, 1) for number in range(5)]

    with receiving(task_finished, poison):
        site.drain()

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [1, 2, 3, 4, 5]


def test_an_outcome_that_waits_for_the_database_costs_no_processor_time(
    postgres: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat was due meanwhile; it may neither be sent nor be waited for in a circle."""
    away = threading.Event()

    def refuse(*_: Any, **__: Any) -> None:
        away.set()
        raise QueueUnavailableError

    with monkeypatch.context() as change:
        change.setattr(Queue, "fail", refuse)
        call = {"args": ["no"], "kwargs": {}}
        postgres.queue.enqueue(call, path="tests.worker.tasks.fail", max_attempts=1)
        with postgres.worker() as worker:
            assert away.wait(PATIENCE)
            (delivery,) = worker.deliveries.in_hand()
            delivery.beat_at = 0.0
            worker.heartbeats.requests.put(None)
            assert idles()
            change.undo()
            wait_for(lambda: "dead" in postgres.kinds())


def test_a_finish_that_comes_through_after_it_was_asked_for_counts_as_done(
    postgres: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its statement still ran on the server when the worker, cut off from it, looked first."""
    answers = [False]

    def seen(*arguments: Any) -> bool:
        return answers.pop() if answers else recorded_already(*arguments)

    monkeypatch.setattr(finisher, "recorded_already", seen)
    lose_answers(monkeypatch, "complete_many")
    postgres.enqueue(tasks.add, 1, 2)
    ends: list[Any] = []

    def ended(**_: Any) -> None:
        ends.append("finished")

    with receiving(task_finished, ended):
        postgres.drain()

    assert ends == ["finished"]
    assert "lost queue=" not in caplog.text


@pytest.mark.parametrize("poison", ["leave_while_printed", "refuse_to_say_when"])
def test_an_exception_that_can_t_be_asked_costs_no_worker(site: Site, poison: str) -> None:
    site.enqueue(getattr(tasks, poison))
    site.enqueue(tasks.add, 1, 2)

    site.drain()

    assert site.kinds().count("acked") == 1
    assert site.kinds().count("dead") == 1


def test_a_strict_worker_s_next_task_finds_the_one_before_on_record(site: Site) -> None:
    results = [site.enqueue(tasks.count_what_is_recorded) for _ in range(10)]

    site.drain(strict=True)

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == list(range(10))
