"""Two calls on the same task at once, on real connections, stepped by hand.

The first call stands in an open transaction; the second, in a thread with a connection of its
own, either waits for it or steps over. What it answers after the commit is what counts. All of it
also where a site has asked for REPEATABLE READ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

import pytest
from django.db import OperationalError, connections, transaction

from django_leasequeue.lease import Lease
from django_leasequeue.models import TaskTransition
from django_leasequeue.stores import store_for
from django_leasequeue.stores.base import Store
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind, State
from tests.builders import (
    QUEUE,
    a_dead_letter,
    a_failure,
    a_finish,
    a_lease,
    a_task,
    cancelled,
    redriven,
)
from tests.databases import ALIASES, NAMES, on_all
from tests.stores.levels import LEVELS, isolated
from tests.waiting import PATIENCE, answered, blocked, in_thread

HERE: Final = [
    pytest.param((alias, level), id=f"{NAMES[alias]}-{level.replace(' ', '_')}")
    for alias in ALIASES
    if alias != "sqlite"  # has one writer at a time
    for level in LEVELS
]
pytestmark = [on_all, pytest.mark.parametrize("here", HERE, indirect=True)]


@pytest.fixture
def here(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Database and isolation level of every session of the test."""
    alias, level = request.param
    with isolated(alias, level):
        yield alias, level


@pytest.fixture
def store(here: tuple[str, str], clock: FakeClock) -> Store:
    return store_for(here[0], clock)


@pytest.fixture
def on_mariadb(here: tuple[str, str]) -> bool:
    return here[0] == "mariadb"


@pytest.fixture
def repeatable(here: tuple[str, str]) -> bool:
    return here[1] == "repeatable read"


def a_transaction(store: Store) -> AbstractContextManager[Any]:
    return transaction.atomic(using=store.using)


def complete(store: Store, lease: Lease) -> set[int]:
    return store.complete([a_finish(lease)])


def kinds(store: Store) -> list[str]:
    """What happened, in the log's order."""
    log = TaskTransition.objects.using(store.using).order_by("id")
    return [str(kind) for kind in log.values_list("kind", flat=True)]


# complete, beside what else may become of its lease


def test_a_complete_that_waited_behind_a_new_claim_is_refused(
    store: Store, clock: FakeClock
) -> None:
    lease = a_lease(store)
    early = store_for(store.using, FakeClock())

    with a_transaction(store):
        clock.set(30)
        [newer] = store.claim(QUEUE, worker="w2", limit=1)
        late = blocked(lambda: complete(early, lease), store.using)

    assert late.result(PATIENCE) == set()
    assert kinds(store) == ["enqueued", "leased", "lapsed", "leased"]
    assert complete(store, newer) == {newer.token}


def test_nobody_claims_a_task_whose_completion_is_on_its_way(
    store: Store, clock: FakeClock
) -> None:
    """It began before the deadline, so it stands though it commits later. (B11)"""
    lease = a_lease(store)

    with a_transaction(store):
        assert complete(store, lease) == {lease.token}
        clock.set(31)
        assert answered(lambda: store.claim(QUEUE, worker="w2", limit=1)) == []

    assert kinds(store) == ["enqueued", "leased", "acked"]


@pytest.mark.parametrize("tenants", [[""], ["x", "y"]])
def test_a_lease_begins_when_a_claim_that_waited_has_found_its_task(
    store: Store, on_mariadb: bool, tenants: list[str]
) -> None:
    """G8: behind a migration's lock, say; it had been over before anybody had it."""
    if on_mariadb:
        pytest.skip("a claim is several statements there")
    here, there = store_for(store.using), store_for(store.using)
    tasks = [a_task("a", tenant=tenant) for tenant in tenants]

    with a_transaction(store):
        with connections[store.using].cursor() as cursor:
            cursor.execute("LOCK TABLE leasequeue_task IN ACCESS EXCLUSIVE MODE")
        late = blocked(lambda: there.claim(QUEUE, worker="w", limit=2), store.using)
        here.enqueue(QUEUE, tasks)

    leases = late.result(PATIENCE)
    assert len(leases) == len(tenants)
    assert all(lease.leased_at >= lease.enqueued_at for lease in leases)


def test_a_complete_that_waited_behind_an_adoption_is_refused(store: Store) -> None:
    lease = a_lease(store)

    with a_transaction(store):
        [task] = store.adopt(QUEUE, "w")
        late = blocked(lambda: complete(store, lease), store.using)

    assert late.result(PATIENCE) == set()
    assert (task.state, kinds(store)[-1]) == (State.READY, "lapsed")


@pytest.mark.parametrize("kind", [Kind.RETRIED, Kind.DROPPED, Kind.RELEASED])
def test_a_report_that_waited_behind_an_adoption_is_refused(store: Store, kind: Kind) -> None:
    lease = a_lease(store)

    def report() -> set[int]:
        released = kind is Kind.RELEASED
        return store.release([lease]) if released else store.fail([a_failure(lease, kind)])

    with a_transaction(store):
        store.adopt(QUEUE, "w")
        late = blocked(report, store.using)

    assert late.result(PATIENCE) == set()
    assert kinds(store) == ["enqueued", "leased", "lapsed"]
    assert store.depth(QUEUE).visible == 1


def test_an_adoption_that_waited_behind_a_complete_finds_nothing(store: Store) -> None:
    lease = a_lease(store)

    with a_transaction(store):
        complete(store, lease)
        late = blocked(lambda: store.adopt(QUEUE, "w"), store.using)

    assert late.result(PATIENCE) == []
    assert kinds(store) == ["enqueued", "leased", "acked"]


def test_an_adoption_that_waited_behind_a_failure_leaves_the_retry_its_delay(
    store: Store,
) -> None:
    lease = a_lease(store)

    with a_transaction(store):
        store.fail([a_failure(lease, seconds=60)])
        late = blocked(lambda: store.adopt(QUEUE, "w"), store.using)

    assert late.result(PATIENCE) == []
    assert kinds(store) == ["enqueued", "leased", "retried"]
    assert store.depth(QUEUE).scheduled == 1


def test_a_complete_that_waited_behind_a_cancel_is_refused(store: Store) -> None:
    lease = a_lease(store)

    with a_transaction(store):
        assert cancelled(store)
        late = blocked(lambda: complete(store, lease), store.using)

    assert late.result(PATIENCE) == set()
    assert kinds(store) == ["enqueued", "leased", "cancelled"]


def test_a_cancel_that_waited_behind_a_complete_finds_nothing(store: Store) -> None:
    lease = a_lease(store)

    with a_transaction(store):
        complete(store, lease)
        late = blocked(
            lambda: store.cancel(QUEUE, ["a"], tenant="", by=None, reason=None), store.using
        )

    assert late.result(PATIENCE) == set()
    assert kinds(store) == ["enqueued", "leased", "acked"]


def test_of_two_completes_of_one_lease_one_counts(store: Store) -> None:
    lease = a_lease(store)

    with a_transaction(store):
        assert complete(store, lease) == {lease.token}
        late = blocked(lambda: complete(store, lease), store.using)

    assert late.result(PATIENCE) == set()
    assert kinds(store) == ["enqueued", "leased", "acked"]


def test_a_failure_that_waited_behind_a_complete_is_refused(store: Store) -> None:
    lease = a_lease(store)

    with a_transaction(store):
        assert complete(store, lease) == {lease.token}
        late = blocked(lambda: store.fail([a_failure(lease)]), store.using)

    assert late.result(PATIENCE) == set()
    assert kinds(store) == ["enqueued", "leased", "acked"]


# heartbeats


def test_a_heartbeat_never_waits_for_the_row(store: Store, clock: FakeClock) -> None:
    """G14"""
    lease = a_lease(store)

    with a_transaction(store):
        complete(store, lease)
        clock.set(10)
        beat = answered(lambda: store.heartbeat(lease, "1"))

    assert beat is not None
    assert (beat.renewed, beat.deadline) == (False, lease.deadline)
    assert "heartbeat" not in kinds(store)


def test_a_heartbeat_beside_a_transaction_that_only_looked_renews(
    store: Store, repeatable: bool, on_mariadb: bool
) -> None:
    """The task's own. Its complete counts, or the database says that it looked too long ago."""
    lease = a_lease(store)

    def within() -> set[int]:
        with a_transaction(store):
            store.find(lease.life)
            beat = answered(lambda: store.heartbeat(lease, None))
            assert beat
            assert beat.renewed
            return complete(store, lease)

    if repeatable and not on_mariadb:
        with pytest.raises(OperationalError, match="could not serialize"):
            within()
    else:
        assert within() == {lease.token}


# operators, and the clock


def test_of_two_redrives_one_moves_and_the_other_finds_the_letter_busy(store: Store) -> None:
    a_dead_letter(store)

    with a_transaction(store):
        assert redriven(store, "a") == (1, {})
        assert answered(lambda: redriven(store, "a")) == (0, {"a": "busy"})

    assert redriven(store, "a") == (0, {"a": "not dead: ready"})
    assert kinds(store).count("redriven") == 1


def test_a_lapse_is_written_down_once(store: Store, clock: FakeClock) -> None:
    a_lease(store)
    clock.set(30)

    with a_transaction(store):
        assert store.settle(QUEUE) == 1
        assert answered(lambda: store.settle(QUEUE)) == 0

    assert store.settle(QUEUE) == 0
    assert kinds(store).count("lapsed") == 1


@pytest.mark.parametrize("stays", [True, False])
def test_a_redrive_whose_key_is_being_taken_waits_and_looks_again(
    store: Store, on_mariadb: bool, stays: bool
) -> None:
    a_dead_letter(store, dedupe_key="n")

    with a_transaction(store):
        store.enqueue(QUEUE, [a_task("b", dedupe_key="n")])
        late = blocked(lambda: redriven(store, "a"), store.using)
        transaction.set_rollback(not stays, using=store.using)

    taken = {"a": "busy" if on_mariadb else "key 'n' is held by b"}
    assert late.result(PATIENCE) == ((0, taken) if stays else (1, {}))


def test_a_redrive_in_the_callers_own_transaction_survives_the_lost_key(
    store: Store, repeatable: bool, on_mariadb: bool
) -> None:
    """Where that transaction can't see who has the key, it can't say so either."""
    a_dead_letter(store, dedupe_key="n")

    def within() -> Any:
        with a_transaction(store):
            store.depth(QUEUE)
            batch = redriven(store, "a")
            store.enqueue(QUEUE, [a_task("c")])
            return batch

    with a_transaction(store):
        store.enqueue(QUEUE, [a_task("b", dedupe_key="n")])
        late = blocked(within, store.using)

    why = "busy" if repeatable or on_mariadb else "key 'n' is held by b"
    assert late.result(PATIENCE) == (0, {"a": why})
    assert store.held(QUEUE, "c", "") is not None


def test_a_serialization_failure_in_the_callers_own_transaction_reaches_the_caller(
    store: Store, repeatable: bool, on_mariadb: bool
) -> None:
    if on_mariadb or not repeatable:
        pytest.skip("there the newest row is read, whatever was seen before")
    a_lease(store)

    def in_an_old_snapshot() -> None:
        with a_transaction(store):
            store.depth(QUEUE)
            answered(lambda: store.adopt(QUEUE, "w"))
            cancelled(store)

    with pytest.raises(OperationalError, match="could not serialize"):
        in_an_old_snapshot()


# enqueues that meet each other


@pytest.mark.parametrize("taken", ["id", "key"])
def test_an_enqueue_waits_for_the_holder_and_is_its_duplicate_once_it_stays(
    store: Store, taken: str
) -> None:
    first, second = rivals(taken)

    with a_transaction(store):
        store.enqueue(QUEUE, [first])
        late = blocked(lambda: store.enqueue(QUEUE, [second]), store.using)

    [answer] = late.result(PATIENCE)
    assert (answer.duplicate, answer.life, answer.id) == (True, first.life, first.id)
    assert kinds(store) == ["enqueued", "duplicate"]


@pytest.mark.parametrize("taken", ["id", "key"])
def test_an_enqueue_is_stored_where_the_holder_was_rolled_back(store: Store, taken: str) -> None:
    """Never a duplicate of a task that doesn't exist. (B22)"""
    first, second = rivals(taken)

    with a_transaction(store):
        store.enqueue(QUEUE, [first])
        late = blocked(lambda: store.enqueue(QUEUE, [second]), store.using)
        transaction.set_rollback(True, using=store.using)

    [answer] = late.result(PATIENCE)
    assert (answer.duplicate, answer.life) == (False, second.life)
    assert kinds(store) == ["enqueued"]


@pytest.mark.parametrize("ends", ["completed", "dead"])
def test_an_enqueue_that_waited_for_a_holder_that_let_go_is_stored(
    store: Store, repeatable: bool, on_mariadb: bool, ends: str
) -> None:
    if on_mariadb and not repeatable:
        pytest.skip("a holder that is seen running is not waited for there")
    lease = a_lease(store, dedupe_key="n")

    with a_transaction(store):
        if ends == "dead":
            store.fail([a_failure(lease, Kind.DEAD)])
        else:
            complete(store, lease)
        late = blocked(lambda: store.enqueue(QUEUE, [a_task("b", dedupe_key="n")]), store.using)

    [answer] = late.result(PATIENCE)
    assert (answer.duplicate, answer.id) == (False, "b")
    assert "duplicate" not in kinds(store)


def rivals(taken: str) -> tuple[Any, Any]:
    """Two new tasks that can't both be held."""
    if taken == "id":
        return a_task("a"), a_task("a")
    return a_task("a", dedupe_key="n"), a_task("b", dedupe_key="n")


def test_a_duplicate_of_a_running_task_holds_up_neither_its_heartbeat_nor_its_end(
    store: Store, repeatable: bool, on_mariadb: bool
) -> None:
    """The caller's transaction may be long, and the lease has to be renewed meanwhile."""
    if repeatable and on_mariadb:
        pytest.skip("an older look might find a task that has left: it is locked there")
    lease = a_lease(store)

    with a_transaction(store):
        [answer] = store.enqueue(QUEUE, [a_task(id=lease.id)])
        beat = answered(lambda: store.heartbeat(lease, None))
        accepted = answered(lambda: complete(store, lease))

    assert (answer.duplicate, answer.state) == (True, State.LEASED)
    assert beat is not None
    assert beat.renewed
    assert accepted == {lease.token}
    assert sorted(kinds(store)[2:]) == ["acked", "duplicate", "heartbeat"]


def test_a_waiting_task_starts_after_the_transaction_that_met_it_as_a_duplicate(
    store: Store,
) -> None:
    """Else it would run without seeing what the caller wrote, and nobody would run again."""
    store.enqueue(QUEUE, [a_task("a")])

    with a_transaction(store):
        store.enqueue(QUEUE, [a_task("a")])
        early = answered(lambda: store.claim(QUEUE, worker="w", limit=1))

    assert early == []
    assert len(store.claim(QUEUE, worker="w", limit=1)) == 1


# many at once: nobody fails


@pytest.mark.parametrize("tenants", [[""], ["x", "y", "z"]], ids=["one tenant", "three tenants"])
def test_eight_claimers_share_all_tasks(store: Store, on_mariadb: bool, tenants: list[str]) -> None:
    """G7, G27: No task twice, no deadlock, no empty answer while work is left."""
    many = 40 if on_mariadb else 200
    tasks = [a_task(str(n), tenant=tenants[n % len(tenants)]) for n in range(many)]
    store.enqueue(QUEUE, tasks)

    def claimer() -> list[Lease]:
        own = store_for(store.using, store.clock)
        leases: list[Lease] = []
        while found := own.claim(QUEUE, worker="w", limit=1):
            leases += found
        return leases

    futures = [in_thread(claimer) for _ in range(8)]
    leases = [lease for future in futures for lease in future.result(PATIENCE)]

    assert len({lease.token for lease in leases}) == len(leases) == many
    assert Counter(lease.id for lease in leases) == Counter(task.id for task in tasks)


def test_bulk_enqueues_in_opposite_orders_never_fail(store: Store, on_mariadb: bool) -> None:
    """G27, B24: Ids and keys cross: no single order of inserts could rule a deadlock out."""
    many, turns = (11, 3) if on_mariadb else (41, 10)

    def enqueuer(step: int) -> int:
        stored = 0
        for turn in range(turns):
            tasks = [
                a_task(f"{turn}-{n}", dedupe_key=f"{turn}-{(n * step) % many}")
                for n in range(1, many)
            ]
            stored += sum(not task.duplicate for task in store.enqueue(QUEUE, tasks))
        return stored

    futures = [in_thread(partial(enqueuer, step)) for step in (1, many - 1, 7, 5)]
    stored = [future.result(PATIENCE) for future in futures]

    assert sum(stored) == kinds(store).count("enqueued")


def test_bulk_finishes_in_opposite_orders_never_deadlock(store: Store, on_mariadb: bool) -> None:
    """G27"""
    many = 40 if on_mariadb else 200
    store.enqueue(QUEUE, [a_task(str(n)) for n in range(many)])
    leases = store.claim(QUEUE, worker="w", limit=many)
    failing = [a_failure(lease, Kind.RETRIED) for lease in reversed(leases)]

    def finishing() -> set[int]:
        return store.complete([a_finish(lease) for lease in leases])

    first, second = in_thread(finishing), in_thread(lambda: store.fail(failing))

    accepted = [first.result(PATIENCE), second.result(PATIENCE)]
    assert sum(len(tokens) for tokens in accepted) == many
