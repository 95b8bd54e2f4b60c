"""The same calls on the reference model and on a database: the same answers, and a log that folds.

Hypothesis makes up the calls; each example has a queue of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from django_leasequeue.lease import Lease
from django_leasequeue.models import Task
from django_leasequeue.records import ALL
from django_leasequeue.stores import store_for
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import (
    Kind,
    State,
    TaskRecord,
    Transition,
    as_of,
    fold_all,
    overdue,
)
from tests.builders import a_failure, a_finish, a_task
from tests.databases import ALIASES, IDS

numbers = itertools.count()
ids = st.sampled_from("abcde")
tenants = st.sampled_from(["", "x", "é"])
workers = st.sampled_from(["w1", "w2"])
new_tasks = st.builds(
    lambda **given: a_task(**given),
    id=ids,
    tenant=tenants,
    priority=st.sampled_from([0, 0, 5]),
    dedupe_key=st.sampled_from([None, "k", "l"]),
    run_after=st.sampled_from([None, None, timedelta(seconds=7)]),
    max_attempts=st.sampled_from([1, 2, 3]),
    visibility=st.sampled_from([timedelta(seconds=10), timedelta(seconds=30)]),
)


class Comparison(RuleBasedStateMachine):
    """Plays on both stores; leases are pairs, lost ones are kept and used again."""

    alias: str

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.model = MemoryStore(self.clock)
        self.store = store_for(self.alias, self.clock)
        self.queue = f"q{next(numbers)}"
        self.leases: list[tuple[Lease, Lease]] = []
        self.lives: list[UUID] = []

    def both(self, act: Callable[[Store, int], Any]) -> tuple[Any, Any]:
        return act(self.model, 0), act(self.store, 1)

    def agree(self, act: Callable[[Store, int], Any]) -> Any:
        expected, got = self.both(act)
        assert got == expected
        return got

    def on_leases(self, chosen: list[int], act: Callable[[Store, list[Lease]], set[int]]) -> None:
        """Make a move on some leases; which of them it takes has to be the same."""
        if self.leases:
            places = dict.fromkeys(choice % len(self.leases) for choice in chosen)
            pairs = [self.leases[place] for place in places]

            def taken(store: Store, side: int) -> list[bool]:
                tokens = act(store, [pair[side] for pair in pairs])
                return [pair[side].token in tokens for pair in pairs]

            self.agree(taken)

    @rule(tasks=st.lists(new_tasks, min_size=1, max_size=4))
    def enqueue(self, tasks: list[Any]) -> None:
        tasks = [replace(task, life=a_task().life) for task in tasks]
        answers = self.agree(lambda store, side: store.enqueue(self.queue, tasks))
        self.lives += [answer.life for answer in answers if not answer.duplicate]

    @rule(worker=workers, limit=st.integers(1, 4))
    def claim(self, worker: str, limit: int) -> None:
        expected, got = self.both(
            lambda store, side: store.claim(self.queue, worker=worker, limit=limit)
        )
        assert [unnumbered(lease) for lease in got] == [unnumbered(lease) for lease in expected]
        self.leases += zip(expected, got, strict=True)

    @rule(choice=st.integers(0, 99), details=st.sampled_from([None, '{"page":3}']))
    def heartbeat(self, choice: int, details: str | None) -> None:
        if self.leases:
            pair = self.leases[choice % len(self.leases)]
            expected, got = self.both(lambda store, side: store.heartbeat(pair[side], details))
            assert (got and unnumbered(got)) == (expected and unnumbered(expected))

    @rule(chosen=st.lists(st.integers(0, 99), max_size=3))
    def complete(self, chosen: list[int]) -> None:
        self.on_leases(chosen, lambda store, some: store.complete([a_finish(x) for x in some]))

    @rule(
        chosen=st.lists(st.integers(0, 99), max_size=3),
        kind=st.sampled_from([Kind.RETRIED, Kind.DEAD, Kind.DROPPED]),
        seconds=st.sampled_from([0, 4]),
    )
    def fail(self, chosen: list[int], kind: Kind, seconds: int) -> None:
        self.on_leases(
            chosen,
            lambda store, some: store.fail([a_failure(x, kind, seconds) for x in some]),
        )

    @rule(chosen=st.lists(st.integers(0, 99), max_size=3))
    def release(self, chosen: list[int]) -> None:
        self.on_leases(chosen, lambda store, some: store.release(some))

    @rule(limit=st.integers(1, 3))
    def settle(self, limit: int) -> None:
        self.both(lambda store, side: store.settle(self.queue, limit=limit))

    @rule(worker=workers)
    def adopt(self, worker: str) -> None:
        self.agree(lambda store, side: list(map(plain, store.adopt(self.queue, worker))))

    @rule(chosen=st.lists(ids, max_size=5), tenant=tenants)
    def redrive(self, chosen: list[str], tenant: str) -> None:
        self.agree(
            lambda store, side: store.redrive(
                self.queue, chosen, tenant=tenant, by="ada", reason=None
            )
        )

    @rule(id=ids, tenant=tenants)
    def cancel(self, id: str, tenant: str) -> None:
        self.agree(
            lambda store, side: store.cancel(self.queue, [id], tenant=tenant, by="ada", reason=None)
        )

    @rule(choice=st.integers(0, 99))
    def erase(self, choice: int) -> None:
        if self.lives:
            life = self.lives[choice % len(self.lives)]
            self.agree(lambda store, side: store.erase(self.queue, life, by="ada", reason=None))

    @rule(seconds=st.sampled_from([1, 4, 10, 30]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def say_the_same_of_the_queue(self) -> None:
        self.agree(lambda store, side: store.depth(self.queue))
        self.agree(lambda store, side: store.oldest_visible(self.queue))
        self.agree(lambda store, side: store.next_due(self.queue))
        self.agree(lambda store, side: [task.life for task in store.dead(self.queue, tenant=ALL)])

    @invariant()
    def say_the_same_of_each_lease(self) -> None:
        pairs = self.leases[-3:]
        self.agree(lambda store, side: [store.lost_reason(pair[side]) for pair in pairs])

    @invariant()
    def hold_the_same_tasks_with_the_same_stories(self) -> None:
        now = self.clock.now()
        expected_lives, got_lives = self.both(lambda store, side: lives_of(store, self.lives))
        for life in self.lives:
            expected, got = expected_lives[life], got_lives[life]
            assert got.told(now) == expected.told(now)
            assert got.task == fold_all(got.history)

    @invariant()
    def keep_what_finds_a_task_in_step_with_it(self) -> None:
        for row in Task.objects.using(self.alias).filter(queue=self.queue):
            assert row.live_key == row.record.live_key
            assert (row.lane is None) == (row.state == State.DEAD)
            if row.lane == "now":
                assert row.state == State.READY
                assert row.visible_at <= self.clock.now()


@dataclass(frozen=True)
class Life:
    """A held task, None where it has left, and its log."""

    task: TaskRecord | None
    history: list[Transition]

    def told(self, now: datetime) -> tuple[TaskRecord | None, list[Any]]:
        """As it is by the clock, and what happened by time, whether or not it is written down.

        Without the numbers that each log gives out on its own.
        """
        late = overdue(self.task, now) if self.task else None
        happened = [*self.history, *([late] if late else [])]
        rows = [
            (str(t.kind), t.at, t.attempt, t.worker or "", str(t.visible_at), t.data or "")
            for t in happened
        ]
        task = self.task and replace(as_of(self.task, now), seq=0, token=None)
        return task, sorted(rows)


def lives_of(store: Store, lives: list[UUID]) -> dict[UUID, Life]:
    history = store.history(lives)
    return {
        life: Life(store.find(life), [entry for entry in history if entry.life == life])
        for life in lives
    }


def unnumbered(lease: Lease) -> Lease:
    """What has to be the same on every store: the numbers are each store's own."""
    first = lease.previous_token is None
    return replace(lease, seq=0, token=0, previous_token=None if first else 0)


def plain(task: TaskRecord) -> TaskRecord:
    """Without the numbers that each log gives out on its own."""
    return replace(task, seq=0, token=None)


@pytest.mark.django_db(databases=ALIASES)
@pytest.mark.parametrize("alias", ALIASES, ids=IDS)
def test_a_database_answers_as_the_model_does(alias: str) -> None:
    machine = type("ComparisonOnADatabase", (Comparison,), {"alias": alias})
    checks = list(HealthCheck)  # a database is slow to draw from, as Hypothesis sees it
    run_state_machine_as_test(
        machine, settings=settings(suppress_health_check=checks, stateful_step_count=25)
    )
