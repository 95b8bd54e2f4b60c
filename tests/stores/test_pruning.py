"""What pruning takes away, and what it leaves: every fold, and every count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from django_leasequeue.drift import StoredTask, compare, read
from django_leasequeue.errors import LostReason
from django_leasequeue.models import Effect, Tally, TaskTransition
from django_leasequeue.retention import Walk, prune
from django_leasequeue.stores.base import Old, Store
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import ENDED, REPEATED, Kind, fold_all
from tests.builders import (
    QUEUE,
    a_claim,
    a_dead_letter,
    a_failure,
    a_finish,
    a_lease,
    a_task,
    cancelled,
    kinds,
)
from tests.databases import ALIASES, IDS
from tests.stores.test_model import Comparison, Life

pytestmark = pytest.mark.parametrize("alias", ALIASES, indirect=True, ids=IDS)

HOUR = 3600.0
ALL_KINDS = dict.fromkeys([*ENDED, *REPEATED], HOUR)


def walk_through(store: Store, retention: dict[Kind, float] | None = None, **more: Any) -> int:
    """Forget what is older than an hour; how many rows."""
    walk = Walk(store, ALL_KINDS if retention is None else retention)
    rows, on = 0, True
    while on:
        gone, on = walk.step(**more)
        rows += gone
    return rows


def rows(store: Store) -> list[str]:
    log = TaskTransition.objects.using(store.using).order_by("id")
    return [str(kind) for kind in log.values_list("kind", flat=True)]


def tallies(store: Store) -> dict[str, int]:
    return dict(Tally.objects.using(store.using).values_list("kind", "count"))


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_life_that_has_left_goes_as_a_whole_when_its_time_is_over(
    store: Store, clock: FakeClock, size: int
) -> None:
    """G57: Its time counts from when it left."""
    store.complete([a_finish(a_lease(store, "done"))])
    clock.set(1)
    young = a_lease(store, "young")
    store.complete([a_finish(young)])
    clock.set(HOUR + 1)

    assert walk_through(store, batch=size) == 3

    assert rows(store) == kinds(store, young.life) == ["enqueued", "leased", "acked"]
    assert tallies(store) == {"enqueued": 1, "leased": 1, "acked": 1}


def test_each_outcome_is_kept_as_long_as_is_said_of_it(store: Store, clock: FakeClock) -> None:
    """G57"""
    store.complete([a_finish(a_lease(store, "done"))])
    store.fail([a_failure(a_lease(store, "dropped"), Kind.DROPPED)])
    store.enqueue(QUEUE, [a_task("unwanted")])
    cancelled(store, "unwanted")
    clock.set(2 * HOUR)

    walk_through(store, {Kind.DROPPED: HOUR, Kind.CANCELLED: 3 * HOUR})

    assert rows(store) == ["enqueued", "leased", "acked", "enqueued", "cancelled"]


def test_nothing_of_a_dead_letter_or_a_waiting_task_goes(store: Store, clock: FakeClock) -> None:
    """G58"""
    a_dead_letter(store, "dead")
    store.enqueue(QUEUE, [a_task("waiting")])
    clock.set(2 * HOUR)

    assert walk_through(store) == 0


def test_repetitions_go_though_their_task_is_still_there(store: Store, clock: FakeClock) -> None:
    """G58: All but the last heartbeat, whose deadline stands, and the last one with details."""
    lease = a_lease(store, max_lease=timedelta(days=1))
    for second, details in enumerate(["1", '"page 2"', None, None, None], start=1):
        clock.set(second)
        store.heartbeat(lease, details)
        store.enqueue(QUEUE, [a_task()])
    before = store.find(lease.life)
    clock.set(2 * HOUR)

    assert walk_through(store) == 8

    history = store.history([lease.life])
    assert [(t.kind, t.data) for t in history] == [
        (Kind.ENQUEUED, history[0].data),
        (Kind.LEASED, None),
        (Kind.HEARTBEAT, '{"details":"page 2"}'),
        (Kind.HEARTBEAT, None),
    ]
    assert fold_all(history) == store.find(lease.life) == before
    assert tallies(store) == {"duplicate": 5, "heartbeat": 3}


def test_of_each_attempt_the_last_heartbeat_stays(store: Store, clock: FakeClock) -> None:
    """G58: It says whether the lease was over because it could not be renewed any more."""
    for attempt in range(2):
        lease = a_lease(store, "a") if not attempt else a_claim(store, "a")
        for second in (20, 40, 60):
            clock.set(attempt * 100 + second)
            store.heartbeat(lease, None)
        clock.set(attempt * 100 + 100)
    reasons = store.lost_reason(lease)
    clock.set(2 * HOUR)

    walk_through(store)

    assert rows(store) == ["enqueued", *["leased", "heartbeat", "lapsed"] * 2][:-1]
    assert store.lost_reason(lease) == reasons == LostReason.CAPPED


def test_a_heartbeat_goes_when_a_later_one_has_made_up_for_it(
    store: Store, clock: FakeClock
) -> None:
    """However long after the walk has passed it by."""
    lease = a_lease(store, visibility=timedelta(days=1), max_lease=timedelta(days=9))
    walk = Walk(store, ALL_KINDS)
    for hour in range(5):
        clock.set(hour * 2 * HOUR)
        store.heartbeat(lease, None)
        walk.step()

    assert rows(store).count("heartbeat") == 2  # the last, and the last that is old enough


@pytest.mark.parametrize("retention", [ALL_KINDS, {Kind.ACKED: HOUR}], ids=["all", "acked alone"])
def test_a_life_of_very_many_rows_goes_by_and_by(
    store: Store, clock: FakeClock, retention: dict[Kind, float]
) -> None:
    lease = a_lease(store)
    for _ in range(25):
        store.heartbeat(lease, None)
    store.complete([a_finish(lease)])
    clock.set(2 * HOUR)
    walk = Walk(store, retention)

    steps = []
    more = True
    while more:
        gone, more = walk.step(batch=10)
        steps.append(gone)

    assert rows(store) == []
    assert max(steps) <= 10 + 3
    assert sum(steps) == 28


def test_pruning_stops_before_what_is_too_young_and_goes_on_there(
    store: Store, clock: FakeClock
) -> None:
    walk = Walk(store, ALL_KINDS)
    for hour in range(4):
        clock.set(hour * 1.5 * HOUR)
        store.complete([a_finish(a_lease(store))])
        assert walk.step()[0] == (3 if hour else 0)

    assert rows(store) == ["enqueued", "leased", "acked"]


def test_a_walk_never_looks_at_what_lies_behind_it(store: Store, clock: FakeClock) -> None:
    first, second = a_lease(store, "a"), a_lease(store, "b")
    store.complete([a_finish(first)])
    behind = store.history([first.life])[-1].position
    store.complete([a_finish(second)])
    clock.set(2 * HOUR)
    old = Old(kinds=[Kind.ACKED], age=timedelta(hours=1), queues=None)

    store.prune(old, behind=behind, size=100)

    assert rows(store) == kinds(store, first.life)


def test_a_row_of_a_clock_that_was_set_back_stops_nothing(store: Store, clock: FakeClock) -> None:
    clock.set(1000 * HOUR)
    store.enqueue(QUEUE, [a_task("from the future")])
    clock.set(0)
    store.complete([a_finish(a_lease(store, visibility=timedelta(days=1)))])
    clock.set(2 * HOUR)

    assert walk_through(store) == 3


def test_other_queues_keep_what_they_have(store: Store, clock: FakeClock) -> None:
    for queue in (QUEUE, "other"):
        store.enqueue(queue, [a_task()])
        store.complete([a_finish(x) for x in store.claim(queue, worker="w", limit=1)])
    clock.set(2 * HOUR)

    Walk(store, ALL_KINDS, queues=["other"]).step()

    assert list(
        TaskTransition.objects.using(store.using).values_list("queue", flat=True).distinct()
    ) == [QUEUE]


def test_what_a_pruned_life_did_elsewhere_is_forgotten_with_it(
    store: Store, clock: FakeClock
) -> None:
    done, running = a_lease(store, "done"), a_lease(store, "running")
    for lease in (done, running):
        Effect.objects.using(store.using).create(
            life=lease.life, name="mail", token=lease.token, started_at=clock.now()
        )
    store.complete([a_finish(done)])
    clock.set(2 * HOUR)

    walk_through(store)

    [left] = Effect.objects.using(store.using).all()
    assert left.life == running.life


def test_an_hour_is_one_by_the_database(store: Store, clock: FakeClock) -> None:
    """``prune`` as a site calls it, on the database's own clock."""
    store.clock = None
    store.complete([a_finish(a_lease(store))])

    assert prune(store.using, ALL_KINDS) == 0
    assert prune(store.using, dict.fromkeys(ALL_KINDS, 0.0)) == 3


class Forgetting(Comparison):
    """Prunes the database now and then; the model keeps all, and still says the same."""

    def __init__(self) -> None:
        super().__init__()
        last = TaskTransition.objects.using(self.alias).order_by("-id").first()
        self.beginning = self.behind = last.id if last else 0

    @rule(
        chosen=st.sets(st.sampled_from(sorted(ENDED | REPEATED)), min_size=1),
        seconds=st.sampled_from([0, 5, 30]),
        size=st.sampled_from([1, 3, 50]),
        anew=st.booleans(),
    )
    def prune(self, chosen: set[Kind], seconds: int, size: int, anew: bool) -> None:
        old = Old(kinds=chosen, age=timedelta(seconds=seconds), queues=[self.queue])
        behind = self.beginning if anew else self.behind
        done = self.store.prune(old, behind=behind, size=size)
        assert done.upto is not None
        self.behind = done.upto

    @invariant()
    def count_the_same(self) -> None:
        self.agree(lambda store, side: dict(store.counts(self.queue)))

    @invariant()
    def say_the_same_of_each_lease(self) -> None:
        """Of what has left nothing may be known any more."""
        held = [pair for pair in self.leases[-3:] if self.store.find(pair[1].life)]
        self.agree(lambda store, side: [store.lost_reason(pair[side]) for pair in held])

    def look_at(self, expected: Life, got: Life, row: StoredTask | None) -> None:
        """Of what has left nothing may be known any more."""
        now = self.clock.now()
        assert got.told(now)[0] == expected.told(now)[0]
        if got.history:
            assert read(got.history).finding is None
            assert compare(read(got.history), row, now) is None


@pytest.mark.django_db(databases=ALIASES)
def test_pruning_changes_no_fold_of_a_held_task_and_no_count(alias: str) -> None:
    """G58 G59"""
    machine = type("Machine", (Forgetting,), {"alias": alias, "tokens": set()})
    run_state_machine_as_test(machine)
