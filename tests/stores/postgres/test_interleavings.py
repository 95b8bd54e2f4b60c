"""Two calls on the same task at once, on real connections, stepped by hand.

The first call stands in an open transaction; the second, in a thread with a connection of its
own, either waits for it or steps over. What it answers after the commit is what counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import pytest
from django.db import OperationalError, connection, transaction
from psycopg.errors import SerializationFailure

from django_leasequeue.lease import Lease
from django_leasequeue.stores.base import Finish
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.transitions import Kind, State
from tests.waiting import blocked_sessions, in_thread, wait_for

from .conftest import HandClock, a_dead_letter, a_failure, a_lease, a_task, kinds

T = TypeVar("T")


def blocked(work: Callable[[], T]) -> Future[T]:
    """*work*, started and now waiting for a lock that this transaction holds."""
    future = in_thread(work)
    wait_for(lambda: blocked_sessions("default") > 0 or future.done())
    assert not future.done(), f"it should have waited, but answered {future.result()}"
    return future


def answered(work: Callable[[], T]) -> T:
    """What *work* answers on another connection, without waiting for this transaction."""
    return in_thread(work).result(timeout=10)


def complete(store: PostgresStore, lease: Lease) -> set[int]:
    return store.complete([Finish(lease=lease, result="null")])


def redrive(store: PostgresStore, id: str = "a") -> Any:
    return store.redrive("q", [id], tenant="", by=None, reason=None)


def cancel(store: PostgresStore) -> bool:
    return bool(store.cancel("q", ["a"], tenant="", by=None, reason=None))


def test_a_complete_that_waited_behind_a_new_claim_is_refused(
    store: PostgresStore, clock: HandClock
) -> None:
    lease = a_lease(store)
    early = PostgresStore("default", HandClock())

    with transaction.atomic():
        clock.set(30)
        [newer] = store.claim("q", worker="w2", limit=1)
        late = blocked(lambda: complete(early, lease))

    assert late.result(timeout=10) == set()
    assert kinds() == ["enqueued", "leased", "lapsed", "leased"]
    assert complete(store, newer) == {newer.token}


def test_nobody_claims_a_task_whose_completion_is_on_its_way(
    store: PostgresStore, clock: HandClock
) -> None:
    """It began before the deadline, so it stands though it commits later."""
    lease = a_lease(store)

    with transaction.atomic():
        assert complete(store, lease) == {lease.token}
        clock.set(31)
        assert answered(lambda: store.claim("q", worker="w2", limit=1)) == []

    assert kinds() == ["enqueued", "leased", "acked"]


@pytest.mark.parametrize("tenants", [[""], ["x", "y"]])
def test_a_lease_begins_when_a_claim_that_waited_has_found_its_task(
    store: PostgresStore, tenants: list[str]
) -> None:
    """G8: behind a migration's lock, say; it had been over before anybody had it."""
    here, there = PostgresStore("default"), PostgresStore("default")
    tasks = [a_task("a", tenant=tenant) for tenant in tenants]

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE leasequeue_task IN ACCESS EXCLUSIVE MODE")
        late = blocked(lambda: there.claim("q", worker="w", limit=2))
        here.enqueue("q", tasks)

    leases = late.result(timeout=10)
    assert len(leases) == len(tenants)
    assert all(lease.leased_at >= lease.enqueued_at for lease in leases)


def test_a_complete_that_waited_behind_an_adoption_is_refused(store: PostgresStore) -> None:
    lease = a_lease(store)

    with transaction.atomic():
        [task] = store.adopt("q", "w")
        late = blocked(lambda: complete(store, lease))

    assert late.result(timeout=10) == set()
    assert (task.state, kinds()[-1]) == (State.READY, "lapsed")


def test_an_adoption_that_waited_behind_a_complete_finds_nothing(store: PostgresStore) -> None:
    lease = a_lease(store)

    with transaction.atomic():
        complete(store, lease)
        late = blocked(lambda: store.adopt("q", "w"))

    assert late.result(timeout=10) == []
    assert kinds() == ["enqueued", "leased", "acked"]


def test_a_complete_that_waited_behind_a_cancel_is_refused(store: PostgresStore) -> None:
    lease = a_lease(store)

    with transaction.atomic():
        assert cancel(store)
        late = blocked(lambda: complete(store, lease))

    assert late.result(timeout=10) == set()
    assert kinds() == ["enqueued", "leased", "cancelled"]


def test_a_cancel_that_waited_behind_a_complete_finds_nothing(store: PostgresStore) -> None:
    lease = a_lease(store)

    with transaction.atomic():
        complete(store, lease)
        late = blocked(lambda: cancel(store))

    assert late.result(timeout=10) is False
    assert kinds() == ["enqueued", "leased", "acked"]


def test_a_heartbeat_never_waits_for_the_row(store: PostgresStore, clock: HandClock) -> None:
    """G14"""
    lease = a_lease(store)

    with transaction.atomic():
        complete(store, lease)
        clock.set(10)
        beat = answered(lambda: store.heartbeat(lease, "1"))

    assert beat is not None
    assert (beat.renewed, beat.deadline) == (False, lease.deadline)
    assert "heartbeat" not in kinds()


def test_of_two_redrives_one_moves_and_the_other_finds_the_letter_busy(
    store: PostgresStore,
) -> None:
    a_dead_letter(store)

    with transaction.atomic():
        assert redrive(store).redriven == 1
        other = answered(lambda: redrive(store))

    assert (other.redriven, other.skipped) == (0, {"a": "busy"})
    assert redrive(store).skipped == {"a": "not dead: ready"}
    assert kinds().count("redriven") == 1


def test_a_lapse_is_written_down_once(store: PostgresStore, clock: HandClock) -> None:
    a_lease(store)
    clock.set(30)

    with transaction.atomic():
        assert store.settle("q") == 1
        assert answered(lambda: store.settle("q")) == 0

    assert store.settle("q") == 0
    assert kinds().count("lapsed") == 1


@pytest.mark.parametrize("taken", ["id", "key"])
def test_an_enqueue_waits_for_the_holder_and_is_its_duplicate_once_it_stays(
    store: PostgresStore, taken: str
) -> None:
    first, second = rivals(taken)

    with transaction.atomic():
        store.enqueue("q", [first])
        late = blocked(lambda: store.enqueue("q", [second]))

    [answer] = late.result(timeout=10)
    assert (answer.duplicate, answer.life, answer.id) == (True, first.life, first.id)
    assert kinds() == ["enqueued", "duplicate"]


def test_a_duplicate_of_a_running_task_holds_up_neither_its_heartbeat_nor_its_end(
    store: PostgresStore,
) -> None:
    """The caller's transaction may be long, and the lease has to be renewed meanwhile."""
    lease = a_lease(store)

    with transaction.atomic():
        [answer] = store.enqueue("q", [a_task(id=lease.id)])
        beat = answered(lambda: store.heartbeat(lease, None))
        accepted = answered(lambda: complete(store, lease))

    assert (answer.duplicate, answer.state) == (True, State.LEASED)
    assert beat is not None
    assert beat.renewed
    assert accepted == {lease.token}
    assert sorted(kinds()[2:]) == ["acked", "duplicate", "heartbeat"]


def test_a_waiting_task_starts_after_the_transaction_that_met_it_as_a_duplicate(
    store: PostgresStore,
) -> None:
    """Else it would run without seeing what the caller wrote, and nobody would run again."""
    store.enqueue("q", [a_task(id="a")])

    with transaction.atomic():
        store.enqueue("q", [a_task(id="a")])
        early = answered(lambda: store.claim("q", worker="w", limit=1))

    assert early == []
    assert len(store.claim("q", worker="w", limit=1)) == 1


@pytest.mark.parametrize("taken", ["id", "key"])
def test_an_enqueue_is_stored_where_the_holder_was_rolled_back(
    store: PostgresStore, taken: str
) -> None:
    """Never a duplicate of a task that doesn't exist. (B22)"""
    first, second = rivals(taken)

    with transaction.atomic():
        store.enqueue("q", [first])
        late = blocked(lambda: store.enqueue("q", [second]))
        transaction.set_rollback(True)

    [answer] = late.result(timeout=10)
    assert (answer.duplicate, answer.life) == (False, second.life)
    assert kinds() == ["enqueued"]


@pytest.mark.parametrize("ends", ["completed", "dead"])
def test_an_enqueue_that_waited_for_a_holder_that_let_go_is_stored(
    store: PostgresStore, ends: str
) -> None:
    lease = a_lease(store, dedupe_key="n")

    with transaction.atomic():
        if ends == "dead":
            store.fail([a_failure(lease)])
        else:
            complete(store, lease)
        late = blocked(lambda: store.enqueue("q", [a_task("b", dedupe_key="n")]))

    [answer] = late.result(timeout=10)
    assert (answer.duplicate, answer.id) == (False, "b")
    assert "duplicate" not in kinds()


def rivals(taken: str) -> tuple[Any, Any]:
    """Two new tasks that can't both be held."""
    if taken == "id":
        return a_task("a"), a_task("a")
    return a_task("a", dedupe_key="n"), a_task("b", dedupe_key="n")


@pytest.mark.parametrize("stays", [True, False])
def test_a_redrive_whose_key_is_being_taken_waits_and_looks_again(
    store: PostgresStore, stays: bool
) -> None:
    a_dead_letter(store, dedupe_key="n")

    with transaction.atomic():
        store.enqueue("q", [a_task("b", dedupe_key="n")])
        late = blocked(lambda: redrive(store))
        transaction.set_rollback(not stays)

    batch = late.result(timeout=10)
    expected = {"a": "key 'n' is held by b"} if stays else {}
    assert (batch.redriven, batch.skipped) == (not stays, expected)


def test_a_redrive_in_the_callers_own_transaction_survives_the_lost_key(
    store: PostgresStore,
) -> None:
    a_dead_letter(store, dedupe_key="n")

    def within() -> Any:
        with transaction.atomic():
            batch = redrive(store)
            store.enqueue("q", [a_task("c")])
            return batch

    with transaction.atomic():
        store.enqueue("q", [a_task("b", dedupe_key="n")])
        late = blocked(within)

    assert late.result(timeout=10).skipped == {"a": "key 'n' is held by b"}
    assert store.held("q", "c", "") is not None


@pytest.mark.parametrize("tenants", [[""], ["x", "y", "z"]], ids=["one tenant", "three tenants"])
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_eight_claimers_share_200_tasks(
    store: PostgresStore, tenants: list[str], isolation: str
) -> None:
    """G7, G27: 200 leases, 200 tokens; no deadlock, no empty answer while work is left."""
    tasks = [a_task(str(n), tenant=tenants[n % len(tenants)]) for n in range(200)]
    store.enqueue("q", tasks)

    def claimer() -> list[Lease]:
        own = PostgresStore("default", store.clock)
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{isolation}'")
        leases: list[Lease] = []
        while found := own.claim("q", worker="w", limit=1):
            leases += found
        return leases

    futures = [in_thread(claimer) for _ in range(8)]
    leases = [lease for future in futures for lease in future.result(timeout=50)]

    assert len({lease.token for lease in leases}) == len(leases) == 200
    assert Counter(lease.id for lease in leases) == Counter(task.id for task in tasks)


def test_bulk_enqueues_in_opposite_orders_never_fail(store: PostgresStore) -> None:
    """G27, B24: Ids and keys cross: no single order of inserts could rule a deadlock out."""

    def enqueuer(step: int) -> int:
        stored = 0
        for turn in range(10):
            tasks = [
                a_task(f"{turn}-{n}", dedupe_key=f"{turn}-{(n * step) % 41}") for n in range(1, 41)
            ]
            stored += sum(not task.duplicate for task in store.enqueue("q", tasks))
        return stored

    futures = [in_thread(partial(enqueuer, step)) for step in (1, 40, 7, 25)]
    stored = [future.result(timeout=50) for future in futures]

    assert sum(stored) == kinds().count("enqueued")


def test_bulk_finishes_in_opposite_orders_never_deadlock(store: PostgresStore) -> None:
    """G27"""
    store.enqueue("q", [a_task(str(n)) for n in range(200)])
    leases = store.claim("q", worker="w", limit=200)
    failing = [a_failure(lease, Kind.RETRIED) for lease in reversed(leases)]

    def finishing() -> set[int]:
        return store.complete([Finish(lease=lease, result="null") for lease in leases])

    first, second = in_thread(finishing), in_thread(lambda: store.fail(failing))

    accepted = [first.result(timeout=30), second.result(timeout=30)]
    assert sum(len(tokens) for tokens in accepted) == 200


def test_a_serialization_failure_in_the_callers_own_transaction_reaches_the_caller(
    store: PostgresStore,
) -> None:
    a_lease(store)

    def in_an_old_snapshot() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT 1 FROM leasequeue_task")
            answered(lambda: store.adopt("q", "w"))
            cancel(store)

    with pytest.raises(OperationalError) as raised:
        in_an_old_snapshot()

    assert isinstance(raised.value.__cause__, SerializationFailure)
