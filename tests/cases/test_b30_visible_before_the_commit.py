"""B30: a task belongs to the transaction that enqueued it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import transaction

from django_leasequeue import Lease, LeaseLostError, Queue
from tests.conftest import on_databases
from tests.waiting import PATIENCE, in_thread

MakeQueue = Callable[..., Queue]
pytestmark = on_databases


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    return make_queue()


class Undo(Exception):
    pass


def test_rolled_back_it_never_was(queue: Queue) -> None:
    """G2"""
    with pytest.raises(Undo), transaction.atomic(using=queue.using):
        task = queue.enqueue({})
        raise Undo

    assert queue.claim(worker="w") == []
    assert queue.store.history([task.life]) == []


def test_before_the_commit_nobody_else_sees_it(queue: Queue) -> None:
    """G2"""
    if queue.using == "sqlite":
        return  # there nobody else claims while a transaction writes
    with transaction.atomic(using=queue.using):
        queue.enqueue({}, id="a")
        assert in_thread(lambda: queue.claim(worker="w")).result(PATIENCE) == []

    assert [lease.id for lease in queue.claim(worker="w")] == ["a"]


def test_a_savepoint_takes_its_own_tasks_with_it(queue: Queue) -> None:
    """G2"""
    with transaction.atomic(using=queue.using):
        queue.enqueue({}, id="kept")
        with pytest.raises(Undo), transaction.atomic(using=queue.using):
            queue.enqueue({}, id="undone")
            raise Undo

    assert [lease.id for lease in queue.claim(worker="w", limit=10)] == ["kept"]


def test_in_on_commit_it_is_stored(queue: Queue) -> None:
    with transaction.atomic(using=queue.using):
        transaction.on_commit(lambda: queue.enqueue({}, id="a"), using=queue.using)

    assert [lease.id for lease in queue.claim(worker="w")] == ["a"]


def test_without_autocommit_it_is_the_sites_transaction(queue: Queue) -> None:
    transaction.set_autocommit(False, using=queue.using)
    try:
        queue.enqueue({}, id="undone")
        transaction.rollback(using=queue.using)
        queue.enqueue({}, id="kept")
        transaction.commit(using=queue.using)
        queue.enqueue({}, id="undone too")
        transaction.rollback(using=queue.using)
    finally:
        transaction.set_autocommit(True, using=queue.using)

    assert [lease.id for lease in queue.claim(worker="w", limit=10)] == ["kept"]


def test_a_duplicate_leaves_the_callers_transaction_usable(queue: Queue) -> None:
    queue.enqueue({}, id="a")

    with transaction.atomic(using=queue.using):
        assert queue.enqueue({}, id="a").duplicate
        queue.enqueue({}, id="b")

    assert queue.depth().visible == 2


@pytest.mark.parametrize("call", ["claim", "poll", "adopt"])
def test_a_lease_cant_be_taken_inside_a_transaction(queue: Queue, call: str) -> None:
    with (
        transaction.atomic(using=queue.using),
        pytest.raises(transaction.TransactionManagementError, match=r"inside atomic\(\)"),
    ):
        getattr(queue, call)(worker="w")


def test_work_and_acknowledgement_are_one_commit(queue: Queue) -> None:
    """G38"""
    queue.enqueue({}, id="a")
    [lease] = queue.claim(worker="w")

    with pytest.raises(Undo), transaction.atomic(using=queue.using):
        queue.complete(lease)
        queue.enqueue({}, id="follow-up")
        raise Undo

    queue.check(lease)
    assert queue.depth().visible == 0


def test_a_lost_lease_dooms_the_block_even_where_the_error_is_swallowed(queue: Queue) -> None:
    """G38"""
    lease = lost_lease(queue)

    with transaction.atomic(using=queue.using):
        queue.enqueue({}, id="written by a stale worker")
        with pytest.raises(LeaseLostError):
            queue.complete(lease)

    assert queue.store.held(queue.name, "written by a stale worker", "") is None


def lost_lease(queue: Queue) -> Lease:
    queue.enqueue({}, id="a")
    [lease] = queue.claim(worker="w")
    queue.adopt(worker="w")
    return lease
