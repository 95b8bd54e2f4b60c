"""B53, the worker's part: what a task is given and what it answers stays out of the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_leasequeue import InvalidTaskError, LeaseLostError, NewTask, Queue
from tests.conftest import MakeQueue
from tests.databases import on_all
from tests.waiting import PATIENCE
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all

SECRET = "4111-1111"


def run_to_every_end(site: Site) -> None:
    """To success; to death by two retries, then redriven and dead once more; cancelled."""
    site.enqueue(tasks.pay, SECRET, False)
    dying = site.enqueue(tasks.pay, SECRET, True)
    site.drain()
    assert site.queue.redrive([dying.id], by="ada", reason="the bank is open").redriven == 1
    site.drain()
    unwanted = site.enqueue(tasks.pay, SECRET, False)
    assert site.queue.cancel(unwanted.id, by="ada")
    assert site.kinds().count("retried") == 4


def test_no_line_of_the_log_quotes_it_at_any_level(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """G52"""
    for name in ("", "django_leasequeue", "django.tasks", "django_tasks"):
        caplog.set_level(logging.DEBUG, logger=name)
    # Django's own log of statements is off unless DEBUG is on.
    caplog.set_level(logging.INFO, logger="django.db.backends")

    run_to_every_end(site)

    assert "acked queue=work" in caplog.text
    assert "dead queue=work" in caplog.text
    assert SECRET not in caplog.text


def test_nor_does_the_output_of_a_workers_process(site: Site) -> None:
    """G52"""
    site.enqueue(tasks.pay, SECRET, False)
    site.enqueue(tasks.pay, SECRET, True)

    process: Any = site.start("--drain", "--verbosity=3", LOG_LEVEL="DEBUG")

    assert process.wait(PATIENCE) == 0
    process.reader.join(PATIENCE)
    output = "".join(process.lines)
    assert "dead queue=work" in output
    assert SECRET not in output


def test_nor_do_errors_and_what_is_printed_of_a_queues_values(make_queue: MakeQueue) -> None:
    """G36: also as a report of a crash prints them, with all that an error holds."""
    queue: Queue = make_queue()
    new = NewTask(payload={"card": SECRET})
    stored = queue.enqueue_many([new])
    [lease] = queue.claim(worker="w")
    lease = queue.heartbeat(lease, details={"card": SECRET})
    queue.fail(lease, "refused", retryable=False)
    [letter] = queue.dead_letters()
    with pytest.raises(LeaseLostError) as lost:
        queue.check(lease)
    with pytest.raises(InvalidTaskError) as refused:
        queue.enqueue({"card": f"{SECRET}\x00"})

    printed = [new, stored, lease, letter, lost.value, refused.value, *lost.value.args]
    printed += [queue.store.history([lease.life]), queue.store.find(lease.life)]

    assert letter.payload == {"card": SECRET}
    assert SECRET not in "".join(f"{each!r} {each}" for each in printed)
