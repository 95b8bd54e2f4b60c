"""Who is next: priority and time inside a tenant, rotation between tenants."""

from __future__ import annotations

from datetime import timedelta

from django_leasequeue.stores.base import BATCH, Store
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind
from tests.builders import QUEUE, a_claim, a_failure, a_lease, a_task, redriven


def fill(store: Store, **tenants: int) -> None:
    """So many tasks for each tenant: x1, x2, ..., y1, ..."""
    for tenant, count in tenants.items():
        tasks = [a_task(f"{tenant}{number + 1}", tenant=tenant) for number in range(count)]
        store.enqueue(QUEUE, tasks)


def claimed(store: Store, limit: int = 1) -> list[str]:
    return [lease.id for lease in store.claim(QUEUE, worker="w", limit=limit)]


def one_by_one(store: Store, count: int) -> list[str]:
    return [id for _ in range(count) for id in claimed(store)]


def test_inside_a_tenant_priority_then_time_then_number(store: Store, clock: FakeClock) -> None:
    delayed = a_task("delayed", run_after=timedelta(seconds=3))
    store.enqueue(QUEUE, [delayed, a_task("low", priority=-100), a_task("high", priority=100)])
    store.enqueue(QUEUE, [a_task("b"), a_task("a")])
    clock.set(3)
    store.enqueue(QUEUE, [a_task("new")])

    assert one_by_one(store, 9) == ["high", "b", "a", "delayed", "new", "low"]


def test_a_task_waits_its_turn_as_of_when_it_became_visible(store: Store, clock: FakeClock) -> None:
    """Retried, lapsed and redriven ones among those that came meanwhile."""
    a_lease(store, "lapsed", visibility=timedelta(seconds=10))
    store.fail([a_failure(a_lease(store, "retried"), Kind.RETRIED, seconds=20)])
    store.fail([a_failure(a_lease(store, "dead"), Kind.DEAD)])
    for second in (5, 15, 25):
        clock.set(second)
        store.enqueue(QUEUE, [a_task(f"at {second}")])
    clock.set(30)
    redriven(store, "dead")

    assert claimed(store, limit=9) == ["at 5", "lapsed", "at 15", "retried", "at 25", "dead"]


def test_tenants_take_turns_claim_by_claim(store: Store, other_store: Store) -> None:
    """B47: the turn is remembered in the database, not by whoever claims."""
    fill(store, x=4, y=1, z=2)

    served = [id for _ in range(4) for handle in (store, other_store) for id in claimed(handle)]

    assert served == ["x1", "y1", "z1", "x2", "z2", "x3", "x4"]


def test_a_claim_of_many_interleaves_as_claims_of_one_would(store: Store) -> None:
    fill(store, x=5, y=2, z=1)

    assert claimed(store, limit=3) == ["x1", "y1", "z1"]
    assert claimed(store, limit=2) == ["x2", "y2"]
    assert claimed(store, limit=9) == ["x3", "x4", "x5"]


def test_it_does_so_from_wherever_the_turn_is(store: Store) -> None:
    fill(store, x=3, y=3, z=1)
    a_claim(store, "x1")

    assert claimed(store, limit=6) == ["y1", "z1", "x2", "y2", "x3", "y3"]


def test_the_rotation_goes_on_behind_a_tenant_that_has_nothing_left(store: Store) -> None:
    fill(store, x=2, y=1, z=2)
    assert one_by_one(store, 2) == ["x1", "y1"]
    fill(store, w=1)

    assert one_by_one(store, 4) == ["z1", "w1", "x2", "z2"]


def test_tenants_rotate_by_the_bytes_of_their_names(store: Store) -> None:
    tenants = ["", "B", "a", "b", "é", "\uffee", "\U0001f4e6"]
    store.enqueue(QUEUE, [a_task(tenant, tenant=tenant) for tenant in reversed(tenants[1:])])
    store.enqueue(QUEUE, [a_task("none")])

    assert one_by_one(store, 9) == ["none", *tenants[1:]]


def test_priority_never_crosses_tenants(store: Store) -> None:
    fill(store, x=1)
    store.enqueue(QUEUE, [a_task(f"y{n}", tenant="y", priority=100) for n in (1, 2)])

    assert one_by_one(store, 3) == ["x1", "y1", "y2"]


def test_queues_have_turns_of_their_own(store: Store) -> None:
    fill(store, x=1, y=1)
    store.enqueue("other", [a_task("o1", tenant="x"), a_task("o2", tenant="y")])
    a_claim(store, "x1")

    assert [lease.id for lease in store.claim("other", worker="w", limit=1)] == ["o1"]


def test_tasks_that_wait_cost_no_turn(store: Store) -> None:
    """B46: the head of the line is the first that may go, not the first that is there."""
    hour = timedelta(hours=1)
    fill(store, x=2)
    store.enqueue(QUEUE, [a_task("x0", tenant="x", priority=9, run_after=hour)])
    store.enqueue(QUEUE, [a_task(f"w{n}", tenant="w", run_after=hour) for n in range(3)])

    assert one_by_one(store, 3) == ["x1", "x2"]


def test_what_came_due_takes_part_though_it_is_more_than_a_batch(
    store: Store, clock: FakeClock
) -> None:
    """No claim returns less than it was asked for while something due is there."""
    wait = timedelta(seconds=1)
    tasks = [a_task(str(number), run_after=wait) for number in range(BATCH + 20)]
    store.enqueue(QUEUE, tasks)
    clock.set(1)

    assert claimed(store, limit=BATCH + 30) == [task.id for task in tasks]


def test_a_claim_returns_something_though_a_batch_of_others_has_died(
    store: Store, clock: FakeClock
) -> None:
    dying = [a_task(str(number), max_attempts=1) for number in range(BATCH)]
    store.enqueue(QUEUE, dying)
    store.claim(QUEUE, worker="w", limit=BATCH)
    store.enqueue(QUEUE, [a_task("delayed", run_after=timedelta(seconds=31))])
    clock.set(31)

    assert claimed(store) == ["delayed"]
