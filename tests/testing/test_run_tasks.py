"""What a worker would do, done inside a test: outcomes, retries and signals are the real ones."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connections, transaction

from django_leasequeue import Queue, signals
from django_leasequeue.compat import TaskResultStatus, task_finished, task_started
from django_leasequeue.testing import FakeClock, MemoryQueue, deliver, run_tasks, use_clock

from . import tasks

FAILED, READY, SUCCESSFUL = (
    TaskResultStatus.FAILED,
    TaskResultStatus.READY,
    TaskResultStatus.SUCCESSFUL,
)


def groups(using: str) -> list[str]:
    return list(Group.objects.using(using).order_by("name").values_list("name", flat=True))


def test_what_is_due_runs_in_order_and_its_results_come_back(using: str) -> None:
    kinds: list[Any] = [tasks.found, tasks.found_later, tasks.found]
    results = [kind.enqueue(name) for kind, name in zip(kinds, "abc", strict=True)]

    ran = run_tasks()

    assert [(result.id, result.status) for result in ran] == [
        (result.id, SUCCESSFUL) for result in results
    ]
    assert [result.return_value for result in ran] == [1, "b", 3]
    assert groups(using) == ["a", "b", "c"]
    assert run_tasks() == []


def test_queues_are_served_as_they_are_named(using: str) -> None:
    for queue in ("other", "mail"):
        tasks.found.using(queue_name=queue).enqueue(queue)

    assert [result.args for result in run_tasks(queues=["other"])] == [["other"]]
    assert [result.args for result in run_tasks()] == [["mail"]]


def test_what_a_task_enqueues_runs_too_as_far_as_the_limit(using: str) -> None:
    tasks.pass_on.enqueue(5)

    assert len(run_tasks(limit=2)) == 2
    assert len(run_tasks()) == 4


def test_a_retry_waits_until_the_clock_is_advanced(using: str, clock: FakeClock) -> None:
    """And finds the details that the attempt before has left."""
    with use_clock(clock):
        tasks.found_and_fail.enqueue("a")

        [first] = run_tasks()
        assert (first.status, len(first.errors)) == (READY, 1)
        assert run_tasks() == []
        clock.advance(60)
        [second] = run_tasks()

    assert second.status == FAILED
    assert "after {'founded': 'a'}" in second.errors[1].traceback
    assert groups(using) == ["a 1", "a 2"], "as under a worker, what was written stays"


def test_the_lease_is_at_hand_in_async_tasks_too(using: str, clock: FakeClock) -> None:
    with use_clock(clock):
        tasks.renew_later.enqueue()
        run_tasks()
        clock.advance(60)
        [second] = run_tasks()

    assert second.return_value == {"page": 7}


@pytest.mark.parametrize("task", [tasks.tell_once, tasks.tell_once_later])
def test_an_effect_is_had_once_by_two_attempts(using: str, clock: FakeClock, task: Any) -> None:
    """G55"""
    with use_clock(clock):
        task.enqueue("a")
        [first] = run_tasks()
        clock.advance(60)
        [second] = run_tasks()

    assert [first.attempts, second.attempts] == [1, 2]
    assert tasks.told == ["a"]


def test_the_clock_is_the_databases_again_afterwards(using: str, clock: FakeClock) -> None:
    with use_clock(clock):
        tasks.pass_on.enqueue(0)
        run_tasks()
    tasks.pass_on.enqueue(0)

    assert len(run_tasks()) == 1


def test_a_database_error_in_a_task_leaves_the_connection_usable(using: str) -> None:
    tasks.found_twice.enqueue("a")
    tasks.found.enqueue("b")

    failed, following = run_tasks()

    assert "IntegrityError" in failed.errors[0].traceback
    assert following.status == SUCCESSFUL
    assert "b" in groups(using)


def test_a_swallowed_database_error_is_told_to_the_test(using: str) -> None:
    """A worker's task may go on after it; of all transactions PostgreSQL's don't."""
    tasks.swallow_a_database_error.enqueue()

    if using == "default":
        with pytest.raises(DatabaseError):
            run_tasks()
    else:
        assert [result.status for result in run_tasks()] == [SUCCESSFUL]
    assert groups(using) == []


def test_an_atomic_task_that_fails_or_loses_its_lease_leaves_nothing(using: str) -> None:
    """G54"""
    for name, how in (("a", "fail"), ("b", "lose the lease"), ("c", "")):
        tasks.found_atomically.enqueue(name, using, how)

    failed, lost, done = run_tasks()

    assert "after the write" in failed.errors[0].traceback
    assert lost.status == TaskResultStatus.RUNNING
    assert (done.status, done.return_value) == (SUCCESSFUL, "c")
    assert groups(using) == ["c"]
    assert tasks.told == ["c"]


def test_what_waits_for_the_commit_is_done_after_each_task(using: str) -> None:
    tasks.tell_on_commit.enqueue("a")
    tasks.tell_on_commit.enqueue("a")  # its group is there already: undone
    own = partial(tasks.told.append, "the test's own")
    transaction.on_commit(own, using=using)

    run_tasks(limit=1)
    assert tasks.told == ["a"]
    run_tasks()
    assert tasks.told == ["a"]
    assert own in [waiting[1] for waiting in connections[using].run_on_commit], "it goes on waiting"


def test_signals_are_sent_and_the_log_is_written(
    using: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    hears = {
        name: (signal, lambda name=name, **_: told.append(name))
        for name, signal in {
            **{"started": task_started, "finished": task_finished},
            **{"retried": signals.task_retried, "dead": signals.task_dead},
        }.items()
    }
    for signal, receiver in hears.values():
        signal.connect(receiver)
    caplog.set_level(logging.INFO, logger="django_leasequeue")
    tasks.found.enqueue("a")
    tasks.found_twice.enqueue("a")

    try:
        run_tasks()
    finally:  # or others' results would be made for these
        for signal, receiver in hears.values():
            signal.disconnect(receiver)

    assert told == ["started", "finished", "started", "finished", "dead"]
    ours = [record for record in caplog.records if record.name == "django_leasequeue"]
    assert [record.getMessage().split()[0] for record in ours] == ["acked", "dead"]


def test_a_task_may_insist_on_a_transaction_of_its_own(using: str) -> None:
    tasks.insist_on_a_transaction_of_its_own.enqueue()

    assert [result.status for result in run_tasks()] == [SUCCESSFUL]
    assert groups(using) == ["durable"]


def test_ctrl_c_is_meant_for_the_test_run(using: str) -> None:
    tasks.be_interrupted.enqueue()

    with pytest.raises(KeyboardInterrupt):
        run_tasks()


def test_a_plain_queues_task_dies_as_it_would_in_a_worker(using: str) -> None:
    Queue("mail", using=using).enqueue({"user": 7}, id="plain")

    assert [result.status for result in run_tasks()] == [FAILED]


def test_in_the_tests_own_atomic_block_nothing_is_claimed(using: str) -> None:
    tasks.found.enqueue("a")

    with (
        pytest.raises(transaction.TransactionManagementError, match="atomic"),
        transaction.atomic(using=using),
    ):
        run_tasks()


def test_deliver_writes_down_what_the_clock_has_done(using: str, clock: FakeClock) -> None:
    """And sends the signals of it, which a commit would send."""
    dead: list[str] = []

    def note(id: str, **_: Any) -> None:
        dead.append(id)

    signals.task_dead.connect(note)
    with use_clock(clock):
        for name in ("mail", "other"):
            queue = Queue(name, using=using, clock=clock)
            queue.enqueue({}, id=f"dies in {name}", max_attempts=1, visibility=30)
            queue.claim(worker="gone")
        clock.advance(30)

        assert deliver(queue) == 1
        assert dead == ["dies in other"]
        assert deliver() == 1
        assert deliver() == 0
    assert dead == ["dies in other", "dies in mail"]


def test_deliver_works_in_memory(clock: FakeClock) -> None:
    queue = MemoryQueue("emails", clock=clock)
    task = queue.enqueue({}, visibility=30)
    queue.claim(worker="gone")
    clock.advance(30)

    assert deliver(queue) == 1
    assert [str(row.kind) for row in queue.store.history([task.life])][-1] == "lapsed"
