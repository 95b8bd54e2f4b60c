"""What is SQLite's own: one writer at a time, and a clock inside the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue, QueueUnavailableError
from django_leasequeue.lease import Lease
from django_leasequeue.models import Turn
from django_leasequeue.records import Depth
from django_leasequeue.stores import portable
from django_leasequeue.stores.base import Store
from django_leasequeue.testing.clock import FakeClock
from tests.builders import QUEUE, a_claim, a_finish, a_lease, a_task, kinds
from tests.stores.conftest import committed
from tests.waiting import PATIENCE, in_thread

pytestmark = [committed, pytest.mark.parametrize("alias", ["sqlite"], indirect=True)]


@pytest.fixture
def writer_elsewhere(store: Store) -> Iterator[None]:
    """Another connection holds a write transaction open, as a task's own block would."""
    holding, over = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(using=store.using):
            store.enqueue("elsewhere", [a_task()])
            holding.set()
            over.wait(PATIENCE)

    held = in_thread(hold)
    assert holding.wait(PATIENCE)
    yield
    over.set()
    held.result(PATIENCE)


@pytest.fixture
def lease(store: Store) -> Lease:
    """Taken before the other writer begins."""
    return a_lease(store)


def test_a_heartbeat_does_not_wait_for_another_writer(
    store: Store, clock: FakeClock, lease: Lease, writer_elsewhere: None
) -> None:
    """The writer may be the task's own transaction, which the heartbeat would outlast."""
    beat = store.heartbeat(lease, '"page 3"')

    assert beat
    assert (beat.renewed, beat.deadline) == (False, lease.deadline)
    assert kinds(store, beat.life) == ["enqueued", "leased"]
    with connections[store.using].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        assert cursor.fetchone() == (20_000,)  # of the settings: others do wait


def test_but_it_refuses_what_is_not_live(
    store: Store, clock: FakeClock, lease: Lease, writer_elsewhere: None
) -> None:
    clock.set(30)

    assert store.heartbeat(lease, None) is None


def test_an_enqueue_that_has_waited_too_long_says_that_nothing_is_stored(
    store: Store, writer_elsewhere: None
) -> None:
    """B58: the timeout of the connection is how long."""
    queue = Queue(QUEUE, using=store.using)
    with connections[store.using].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 50")

    with pytest.raises(QueueUnavailableError, match="database is locked"):
        queue.enqueue({})

    assert queue.depth() == Depth(visible=0, scheduled=0, leased=0, dead=0)


def test_eight_claimers_share_two_hundred_tasks(store: Store) -> None:
    """B58: nobody gives up on a lock, no task is leased twice."""
    store.enqueue(QUEUE, [a_task(str(number)) for number in range(200)])

    def claim_all() -> list[str]:
        ids = []
        while leases := store.claim(QUEUE, worker="w", limit=3):
            store.complete([a_finish(lease) for lease in leases])
            ids += [lease.id for lease in leases]
        return ids

    claimers = [in_thread(claim_all) for _ in range(8)]
    ids = [id for claimer in claimers for id in claimer.result(PATIENCE)]

    assert sorted(ids, key=int) == [str(number) for number in range(200)]


def test_an_enqueue_belongs_to_the_transaction_around_it(store: Store) -> None:
    with transaction.atomic(using=store.using):
        store.enqueue(QUEUE, [a_task("kept")])
        with transaction.atomic(using=store.using):
            store.enqueue(QUEUE, [a_task("undone", dedupe_key="k")])
            transaction.set_rollback(True, using=store.using)
        [again] = store.enqueue(QUEUE, [a_task("again", dedupe_key="k")])

    assert not again.duplicate
    assert [lease.id for lease in store.claim(QUEUE, worker="w", limit=9)] == ["kept", "again"]


def test_old_turns_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "TURNS_KEPT", 3)
    for number in range(20):
        a_lease(store, str(number), tenant=str(number % 2))

    turns = Turn.objects.using(store.using).order_by("-stamp")

    assert [turn.tenant for turn in turns] == ["1", "0", "1", "0"]


def test_a_queue_with_one_tenant_writes_its_turn_once(store: Store) -> None:
    for number in range(3):
        a_lease(store, str(number))

    assert Turn.objects.using(store.using).count() == 1


def test_a_claim_reads_through_indexes_only(store: Store) -> None:
    """B46: neither the backlog nor what waits makes it slower."""
    later = timedelta(hours=1)
    store.enqueue(QUEUE, [a_task(f"w{n}", tenant=str(n % 3), run_after=later) for n in range(50)])
    store.enqueue(QUEUE, [a_task("r", tenant="1")])
    connection = connections[store.using]
    with CaptureQueriesContext(connection) as made:
        a_claim(store, "r")

    asked = [query["sql"] for query in made if query["sql"].startswith("SELECT")]
    with connection.cursor() as cursor:
        plans = [cursor.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall() for sql in asked]
    steps = [step[3] for plan in plans for step in plan]

    assert len(asked) >= 4
    assert all(step.startswith("SEARCH") for step in steps)
    assert not any("TEMP B-TREE" in step for step in steps)
