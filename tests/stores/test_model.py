"""The same calls on the reference model and on a database: the same answers, and a log that folds.

Hypothesis makes up the calls; each example has a queue of its own. ``make nightly`` does it at
length.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final
from uuid import UUID

import pytest
from django.db import connections
from django.db.models import QuerySet
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from django_leasequeue.drift import StoredTask, compare, read
from django_leasequeue.lease import Lease
from django_leasequeue.models import Task
from django_leasequeue.records import ALL, Admitted
from django_leasequeue.stores import store_for
from django_leasequeue.stores.base import Failure, Store
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.stores.postgres import heads
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
from tests.databases import ALIASES, IDS, on_all

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
QUESTIONS: Final[Sequence[Callable[[Store, str], Any]]] = (
    lambda store, queue: store.depth(queue),
    lambda store, queue: store.oldest_visible(queue),
    lambda store, queue: store.outlook(queue),
    lambda store, queue: [task.life for task in store.dead(queue, tenant=ALL)],
)


class Comparison(RuleBasedStateMachine):
    """Plays on both stores; leases are pairs, lost ones are kept and used again."""

    alias: str
    tokens: set[int]  # of all examples: unique over all queues

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.model = MemoryStore(self.clock)
        self.store = store_for(self.alias, self.clock)
        self.queue = f"q{next(numbers)}"
        self.leases: list[tuple[Lease, Lease]] = []
        self.lives: list[UUID] = []
        self.questions = itertools.cycle(QUESTIONS)
        self.moving: set[UUID] = set()  # what was held, begun or erased since the last look

    def teardown(self) -> None:
        self.moving = set(self.lives)
        self.hold_the_same_tasks_with_the_same_stories()
        for _ in QUESTIONS:
            self.say_the_same_of_the_queue()
        QuerySet(Task, using=self.alias).filter(queue=self.queue).delete()

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

    @rule(task=new_tasks)
    def enqueue(self, task: Admitted) -> None:
        self.enqueue_many([task])

    @rule(tasks=st.lists(new_tasks, min_size=2, max_size=5))
    def enqueue_many(self, tasks: list[Admitted]) -> None:
        tasks = [replace(task, life=a_task().life) for task in tasks]
        answers = self.agree(lambda store, side: store.enqueue(self.queue, tasks))
        new = [answer.life for answer in answers if not answer.duplicate]
        self.lives += new
        self.moving |= set(new)

    @rule(worker=workers, limit=st.integers(1, 4))
    def claim(self, worker: str, limit: int) -> None:
        expected, got = self.both(
            lambda store, side: store.claim(self.queue, worker=worker, limit=limit)
        )
        assert [unnumbered(lease) for lease in got] == [unnumbered(lease) for lease in expected]
        self.leases += zip(expected, got, strict=True)
        now = self.clock.now()
        for lease in got:
            assert lease.visible_since <= now < lease.deadline
            assert lease.token not in self.tokens
            assert lease.token > (lease.previous_token or lease.seq)
            self.tokens.add(lease.token)

    @rule()
    def reopen(self) -> None:
        """As another process has it: nothing is known but what the database holds."""
        if not connections[self.alias].in_atomic_block:
            connections[self.alias].close()
        self.store = store_for(self.alias, self.clock)

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
        def end(lease: Lease) -> Failure:
            over = kind is Kind.RETRIED and lease.last_attempt  # as the queue decides
            return a_failure(lease, Kind.DEAD if over else kind, seconds)

        self.on_leases(chosen, lambda store, some: store.fail([end(lease) for lease in some]))

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
            self.moving.add(life)
            self.agree(lambda store, side: store.erase(self.queue, life, by="ada", reason=None))

    @rule(seconds=st.sampled_from([1, 4, 10, 30, 1e-6, 86_400]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def wait_until_something_is_due(self) -> None:
        """That very instant."""
        if due := self.model.outlook(self.queue).due_in:
            self.clock.move(self.clock.now() + due)

    @invariant()
    def say_the_same_of_the_queue(self) -> None:
        """One thing at a time: all of it at every step would take as long as the game itself."""
        question = next(self.questions)
        self.agree(lambda store, side: question(store, self.queue))

    @invariant()
    def say_the_same_of_each_lease(self) -> None:
        pairs = self.leases[-2:]
        self.agree(lambda store, side: [store.lost_reason(pair[side]) for pair in pairs])

    @invariant()
    def hold_the_same_tasks_with_the_same_stories(self) -> None:
        rows = {row.life: stored(row) for row in self.rows()}
        watched = list(self.moving)
        expected = lives_of(watched, self.model.tasks, self.model.history(watched))
        held = {life: row.record for life, row in rows.items()}
        got = lives_of(watched, held, self.store.history(watched))
        for life in watched:
            self.look_at(expected[life], got[life], rows.get(life))
        assert held.keys() <= self.moving
        self.moving = set(held)

    def look_at(self, expected: Life, got: Life, row: StoredTask | None) -> None:
        now = self.clock.now()
        assert got.told(now) == expected.told(now)
        story = read(got.history)
        assert story.finding is None
        assert compare(story, row, now) is None
        assert got.task == story.task == fold_all(got.history)
        if story.task and story.task.state is State.DEAD:
            assert story.task.attempt == failures(got.history)

    def rows(self) -> Iterable[Task]:
        return QuerySet(Task, using=self.alias).filter(queue=self.queue)


def stored(row: Task) -> StoredTask:
    return StoredTask(record=row.record, live_key=row.live_key, lane=row.lane)


def failures(history: list[Transition]) -> int:
    """How many deliveries went wrong since the task was last enqueued or redriven."""
    count = 0
    for row in history:
        count += row.kind in (Kind.RETRIED, Kind.LAPSED, Kind.DEAD)
        count *= row.kind is not Kind.REDRIVEN
    return count


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
        happened = [*self.history, *([late] if late else []), *self.unwritten()]
        rows = [
            (str(t.kind), t.at, t.attempt, t.worker or "", str(t.visible_at), t.data or "")
            for t in happened
        ]
        task = self.task and replace(as_of(self.task, now), seq=0, token=None)
        return task, sorted(rows)

    def unwritten(self) -> Iterator[Transition]:
        """The lapse that a cancellation met before anybody had written it down.

        Which of what is due a settle of a few takes is each store's own.
        """
        for place, row in enumerate(self.history):
            task = fold_all(self.history[:place]) if row.kind is Kind.CANCELLED else None
            if task and (late := overdue(task, row.at)):
                yield late


def lives_of(
    lives: list[UUID], held: Mapping[UUID, TaskRecord], history: list[Transition]
) -> dict[UUID, Life]:
    rows: dict[UUID, list[Transition]] = {life: [] for life in lives}
    for row in history:
        rows[row.life].append(row)
    return {life: Life(held.get(life), rows[life]) for life in lives}


def unnumbered(lease: Lease) -> Lease:
    """What has to be the same on every store: the numbers are each store's own."""
    first = lease.previous_token is None
    return lease._replace(seq=0, token=0, previous_token=None if first else 0)


def plain(task: TaskRecord) -> TaskRecord:
    """Without the numbers that each log gives out on its own."""
    return replace(task, seq=0, token=None)


@on_all
@pytest.mark.parametrize("alias", ALIASES, ids=IDS)
def test_a_database_answers_as_the_model_does(alias: str) -> None:
    machine = type("ComparisonOnADatabase", (Comparison,), {"alias": alias, "tokens": set()})
    run_state_machine_as_test(machine)


@on_all
def test_claims_that_begin_where_others_ended_answer_as_the_model_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The smallest ones, too, and for as long as an example takes."""
    monkeypatch.setattr(heads, "LIMIT_MIN", 1)
    monkeypatch.setattr(heads, "FULL_LOOK_SECONDS", inf)
    test_a_database_answers_as_the_model_does("default")
