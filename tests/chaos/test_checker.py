"""The chaos's checker sees each fault that it is there for, and none where there is none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from django_leasequeue import QueuePolicy
from django_leasequeue.testing import FakeClock, MemoryQueue
from django_leasequeue.transitions import Kind, State, Transition
from tests.chaos.checker import CHECKS, Case, leftovers, violations
from tests.chaos.evidence import Batched, Effect, Evidence, Paused, Told

POLICY: Final = QueuePolicy(visibility=30, max_attempts=3, backoff_base=1)
PATHS: Final = ("plain", "atomically", "once", "once_or_more")


class World:
    """A queue in memory, its tasks, and the traces that correct deliveries leave."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.queue = MemoryQueue("chaos", policy=POLICY, clock=self.clock)
        self.outside: list[Effect] = []
        self.committed: list[Effect] = []
        self.told: list[Told] = []
        self.orders: set[str] = set()
        self.batches: list[Batched] = []
        self.pauses: list[Paused] = []

    def enqueue(self, mark: str, path: str) -> None:
        call = {"args": [mark, {}], "kwargs": {}}
        task = self.queue.enqueue(call, path=f"tests.chaos.tasks.{path}")
        self.told.append(Told(said="stored", mark=mark, queue="chaos", life=task.life))
        if mark.startswith("order-"):
            self.orders.add(mark)

    def work(self, dice: random.Random) -> None:
        for lease in self.queue.claim(worker="w", limit=100):
            path = lease.path.rpartition(".")[2]
            effect = Effect(life=lease.life, token=lease.token)
            fate = dice.choice(["ack", "ack", "fail", "vanish", "give back"])
            if path == "plain" and fate != "give back":
                self.outside.append(effect)
            match fate:
                case "ack":
                    self.ack(lease, path, effect)
                case "fail":
                    self.queue.fail(lease, "refused")
                case "give back":
                    self.queue.release(lease)
        self.clock.advance(31)

    def ack(self, lease: Any, path: str, effect: Effect) -> None:
        if path == "atomically":
            self.committed.append(effect)
        elif path != "plain":
            self.outside.append(effect)
        self.queue.complete(lease)

    def redrive(self) -> None:
        """As a batch does, at a rate."""
        done = self.queue.redrive_all(by="batch-1", rate=0.5)
        batch = Batched(
            by="batch-1", verb="redrive", queue="chaos", total=done.redriven + 1,
            moved=done.redriven, skipped=1, done=True, rate=0.5,
        )  # fmt: skip
        self.batches.append(batch)

    def pause(self) -> None:
        since = self.clock.now()
        self.clock.advance(5)
        self.pauses.append(Paused(queue="chaos", since=since, until=self.clock.now()))

    def left(self) -> int:
        depth = self.queue.depth()
        return depth.visible + depth.scheduled + depth.leased

    def evidence(self) -> Evidence:
        self.queue.store.settle("chaos", limit=1000)
        log = self.queue.store.history([told.life for told in self.told if told.life])
        lives = {row.life for row in log}
        held = {life: task for life in lives if (task := self.queue.store.find(life))}
        return Evidence(
            log=log,
            held=held,
            outside=self.outside,
            committed=self.committed,
            told=self.told,
            orders=frozenset(self.orders),
            batches=self.batches,
            pauses=self.pauses,
            ended_at=self.clock.now(),
        )


@pytest.fixture(scope="module")
def correct() -> Evidence:
    """What is left of a run in which all went as promised: of every kind of task, some."""
    world, dice = World(), random.Random(3)
    for number in range(40):
        world.enqueue(f"{dice.choice(['one', 'order'])}-{number}", PATHS[number % len(PATHS)])
    for _ in range(4):
        world.work(dice)
    world.redrive()
    world.queue.cancel(str(world.told[0].life))
    world.pause()
    while world.left():
        world.work(dice)
    return world.evidence()


def of_kind(evidence: Evidence, kind: Kind) -> Transition:
    return next(row for row in evidence.log if row.kind is kind)


def without(evidence: Evidence, kind: Kind) -> Evidence:
    row = of_kind(evidence, kind)
    return replace(evidence, log=[other for other in evidence.log if other is not row])


def with_row(evidence: Evidence, row: Transition, **changes: Any) -> Evidence:
    changed = replace(row, **changes)
    return replace(evidence, log=[changed if other is row else other for other in evidence.log])


def repeated(evidence: Evidence, kind: Kind) -> Evidence:
    row = of_kind(evidence, kind)
    return replace(evidence, log=[*evidence.log, replace(row, position=10**6)])


def acked_by(evidence: Evidence, path: str) -> Transition:
    born = {row.life: row.facts["path"] for row in evidence.log if row.kind is Kind.ENQUEUED}
    acks = (row for row in evidence.log if row.kind is Kind.ACKED)
    return next(row for row in acks if born[row.life].endswith(f".{path}"))


def without_effects(evidence: Evidence, path: str) -> Evidence:
    life = acked_by(evidence, path).life
    outside = [effect for effect in evidence.outside if effect.life != life]
    committed = [effect for effect in evidence.committed if effect.life != life]
    return replace(evidence, outside=outside, committed=committed)


def twice(evidence: Evidence, path: str) -> Evidence:
    """The effect is there once more."""
    row = acked_by(evidence, path)
    again = Effect(life=row.life, token=row.token or 0)
    if path == "atomically":
        return replace(evidence, committed=[*evidence.committed, again])
    return replace(evidence, outside=[*evidence.outside, again])


def held_otherwise(evidence: Evidence) -> Evidence:
    life, task = next(iter(evidence.held.items()))
    return replace(evidence, held={**evidence.held, life: replace(task, priority=5)})


def not_held(evidence: Evidence) -> Evidence:
    return replace(evidence, held=dict(list(evidence.held.items())[1:]))


def by_a_stale_token(evidence: Evidence) -> Evidence:
    return with_row(evidence, row := of_kind(evidence, Kind.ACKED), token=(row.token or 0) - 1)


def at_its_deadline(evidence: Evidence) -> Evidence:
    row = of_kind(evidence, Kind.ACKED)
    lease = next(other for other in evidence.log if other.position == row.token)
    return with_row(evidence, row, at=lease.visible_at)


def too_early(evidence: Evidence) -> Evidence:
    row = of_kind(evidence, Kind.LEASED)
    return with_row(evidence, row, at=row.at - timedelta(seconds=1))


def misdated_lapse(evidence: Evidence) -> Evidence:
    row = of_kind(evidence, Kind.LAPSED)
    return with_row(evidence, row, at=row.at + timedelta(seconds=1))


def one_attempt_too_many(evidence: Evidence) -> Evidence:
    return with_row(evidence, of_kind(evidence, Kind.LEASED), attempt=2)


def token_again(evidence: Evidence) -> Evidence:
    leases = [row for row in evidence.log if row.kind is Kind.LEASED]
    return with_row(evidence, leases[1], position=leases[0].position)


def unknown_token(evidence: Evidence) -> Evidence:
    stray = replace(evidence.outside[0], token=10**6)
    return replace(evidence, outside=[*evidence.outside, stray])


def lost_life(evidence: Evidence) -> Evidence:
    """A whole life is gone, from the log and from the projection."""
    life = evidence.told[-1].life
    held = {other: task for other, task in evidence.held.items() if other != life}
    return replace(evidence, log=[row for row in evidence.log if row.life != life], held=held)


def undone(evidence: Evidence) -> Evidence:
    """A client rolled back what is there."""
    return replace(evidence, told=[replace(evidence.told[0], said="undone", life=None)])


def row_alone(evidence: Evidence) -> Evidence:
    return replace(evidence, orders=evidence.orders | {"order-lost"})


def task_alone(evidence: Evidence) -> Evidence:
    return replace(evidence, orders=frozenset())


def not_dead(evidence: Evidence, **changes: Any) -> Evidence:
    life, task = next(iter(evidence.held.items()))
    return replace(evidence, held={**evidence.held, life: replace(task, **changes)})


def another_batch(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, batches=[replace(evidence.batches[0], **changes)])


def moved_twice(evidence: Evidence) -> Evidence:
    changed = another_batch(evidence, moved=evidence.batches[0].moved + 1, skipped=0)
    return repeated(changed, Kind.REDRIVEN)


def paused_meanwhile(evidence: Evidence, until: timedelta | None) -> Evidence:
    at = of_kind(evidence, Kind.LEASED).at
    since = at - timedelta(seconds=1)
    ended = None if until is None else at + until
    return replace(evidence, pauses=[Paused("chaos", since, ended)])


PLANTED: Final[dict[str, Callable[[Evidence], Evidence]]] = {
    "the_account": lambda e: not_held(e),
    "legal_histories 1": lambda e: without(e, Kind.LEASED),
    "legal_histories 2": lambda e: without(e, Kind.ENQUEUED),
    "legal_histories 3": lambda e: without(e, Kind.REDRIVEN),
    "legal_histories 4": held_otherwise,
    "legal_histories 5": by_a_stale_token,
    "legal_histories 6": at_its_deadline,
    "legal_histories 7": too_early,
    "legal_histories 8": misdated_lapse,
    "legal_histories 9": one_attempt_too_many,
    "one_ack": lambda e: repeated(e, Kind.ACKED),
    "tokens 1": token_again,
    "tokens 2": unknown_token,
    "effects_outside 1": lambda e: without_effects(e, "plain"),
    "effects_outside 2": lambda e: without_effects(e, "once"),
    "effects_outside 3": lambda e: without_effects(e, "once_or_more"),
    "effects_outside 4": lambda e: twice(e, "once"),
    "effects_committed 1": lambda e: without_effects(e, "atomically"),
    "effects_committed 2": lambda e: twice(e, "atomically"),
    "what_clients_were_told 1": lost_life,
    "what_clients_were_told 2": undone,
    "orders 1": row_alone,
    "orders 2": task_alone,
    "leftovers 1": lambda e: not_dead(e, state=State.READY),
    "leftovers 2": lambda e: not_dead(e, state=State.LEASED),
    "leftovers 3": lambda e: another_batch(e, done=False),
    "pauses 1": lambda e: paused_meanwhile(e, timedelta(seconds=1)),
    "pauses 2": lambda e: paused_meanwhile(e, None),
    "batches 1": lambda e: another_batch(e, skipped=0),
    "batches 2": lambda e: another_batch(e, by="batch-2"),
    "batches 3": moved_twice,
    "batches 4": lambda e: another_batch(e, rate=0.4),
}


def test_nothing_is_wrong_with_a_run_that_went_as_promised(correct: Evidence) -> None:
    seen = {row.kind for row in correct.log}

    assert violations(correct) == []
    assert seen >= {Kind.ACKED, Kind.LAPSED, Kind.RETRIED, Kind.RELEASED, Kind.DEAD, Kind.REDRIVEN}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_found_by_the_check_that_is_there_for_it(
    correct: Evidence, planted: str
) -> None:
    found = violations(PLANTED[planted](correct))

    assert planted.split()[0] in {violation.partition(":")[0] for violation in found}, found


def test_every_check_has_something_planted_for_it() -> None:
    assert {planted.split()[0] for planted in PLANTED} == {check.__name__ for check in CHECKS}


def test_what_is_paused_or_has_yet_to_come_due_is_not_left_over(correct: Evidence) -> None:
    assert correct.ended_at
    tomorrow = correct.ended_at + timedelta(days=1)
    scheduled = not_dead(correct, state=State.READY, visible_at=tomorrow)
    paused = replace(
        not_dead(correct, state=State.READY),
        pauses=[Paused(queue="chaos", since=tomorrow, until=None)],
    )

    assert list(leftovers(Case(scheduled))) == []
    assert list(leftovers(Case(paused))) == []


def test_what_was_pruned_is_counted(correct: Evidence) -> None:
    """A queue whose log forgets owes a count of what it forgot."""
    life = next(row.life for row in correct.log if row.kind is Kind.ACKED)
    gone = [row for row in correct.log if row.life == life]
    told = [replace(told, queue="brief") if told.life == life else told for told in correct.told]
    mark = json.loads(gone[0].payload or "")["args"][0]
    pruned = replace(
        correct,
        log=[row for row in correct.log if row.life != life],
        told=told,
        orders=correct.orders - {mark},
        outside=[effect for effect in correct.outside if effect.life != life],
        committed=[effect for effect in correct.committed if effect.life != life],
    )

    assert violations(pruned) != []
    tallies = {("brief", str(row.kind)): 0 for row in gone}
    for row in gone:
        tallies["brief", str(row.kind)] += 1
    assert violations(replace(pruned, tallies=tallies)) == []


def test_of_a_forgetful_queue_s_heartbeats_only_the_last_one_need_be_there() -> None:
    """And who was told twice of a task that was pruned misses it once."""
    clock = FakeClock()
    queue = MemoryQueue("brief", policy=POLICY, clock=clock)
    task = queue.enqueue({"args": ["one-1", {}], "kwargs": {}}, path="tests.chaos.tasks.later")
    [lease] = queue.claim(worker="w")
    for _ in range(2):
        clock.advance(20)
        lease = queue.heartbeat(lease)
    log = queue.store.history([task.life])
    held = {task.life: record} if (record := queue.store.find(task.life)) else {}

    assert violations(Evidence(log=[*log[:2], log[3]], held=held)) == []
    told = [Told(said=said, mark="m", queue="brief", life=task.life) for said in ("stored",) * 2]
    assert violations(Evidence(log=[], held={}, told=told, tallies={("brief", "enqueued"): 1})) == [
        "the_account: 1 tasks were enqueued, 0 have left and 0 are held"
    ]
