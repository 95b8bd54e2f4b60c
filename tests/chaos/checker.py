"""Whether what is left of a run is what was promised. Pure: evidence in, sentences out."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final
from uuid import UUID

from django_leasequeue.errors import IllegalTransitionError
from django_leasequeue.transitions import (
    ENDED,
    NOTHING,
    Kind,
    State,
    TaskRecord,
    Transition,
    born,
    fold,
)
from tests.chaos.evidence import Effect, Evidence

FORGETFUL: Final = "brief"  # the queue whose log is pruned; see settings.py
A_TICK: Final = 2e-6  # seconds
SHOWN: Final = 20  # violations of one kind


@dataclass(frozen=True)
class Case:
    """The evidence, sorted by life."""

    evidence: Evidence

    @cached_property
    def histories(self) -> Mapping[UUID, Sequence[Transition]]:
        histories: dict[UUID, list[Transition]] = defaultdict(list)
        for transition in self.evidence.log:
            histories[transition.life].append(transition)
        return histories

    @cached_property
    def paths(self) -> Mapping[UUID, str]:
        """What each life was enqueued to do: the function's name."""
        return {
            life: born(history[0]).path.rpartition(".")[2]
            for life, history in self.histories.items()
            if history[0].kind is Kind.ENQUEUED
        }

    @cached_property
    def acked(self) -> Mapping[UUID, int | None]:
        """The lives that were acknowledged, and the token they were acknowledged under."""
        return {row.life: row.token for row in self.evidence.log if row.kind is Kind.ACKED}

    @cached_property
    def marks(self) -> Counter[str]:
        """How many lives carry each mark. An erased one carries none."""
        enqueued = (row for row in self.evidence.log if row.kind is Kind.ENQUEUED)
        payloads = (row.payload for row in enqueued if row.payload != NOTHING)
        return Counter(json.loads(payload or "")["args"][0] for payload in payloads)

    @cached_property
    def erased(self) -> int:
        return sum(row.kind is Kind.ERASED for row in self.evidence.log)

    @cached_property
    def outside(self) -> Mapping[UUID, Sequence[int]]:
        return tokens_of(self.evidence.outside)

    @cached_property
    def committed(self) -> Mapping[UUID, Sequence[int]]:
        return tokens_of(self.evidence.committed)

    def ever(self, kind: Kind) -> int:
        """How often that was logged, pruned or not."""
        logged = sum(row.kind is kind for row in self.evidence.log)
        return logged + sum(n for (_, k), n in self.evidence.tallies.items() if k == kind)


def tokens_of(effects: Sequence[Effect]) -> Mapping[UUID, Sequence[int]]:
    tokens: dict[UUID, list[int]] = defaultdict(list)
    for effect in effects:
        tokens[effect.life].append(effect.token)
    return tokens


# The checks: each answers what is wrong, one sentence a fault


def the_account(case: Case) -> Iterator[str]:
    """Enqueued = acked + dropped + cancelled + held: nothing vanishes, nothing comes of itself."""
    enqueued = case.ever(Kind.ENQUEUED)
    left, held = sum(case.ever(kind) for kind in ENDED), len(case.evidence.held)
    if enqueued != left + held:
        yield f"{enqueued} tasks were enqueued, {left} have left and {held} are held"


def legal_histories(case: Case) -> Iterator[str]:
    """Each task's story is one that the rules allow, and its projection is the story's fold."""
    folded = {}
    for life, history in case.histories.items():
        task = None
        for row in history:
            yield from wrong_step(task, row)
            try:
                task = fold(task, row)
            except IllegalTransitionError as error:
                yield f"{life}: {error}, at {row.position}"
                break
        else:
            if task:
                folded[life] = task
    for life in folded.keys() | case.evidence.held.keys():
        if folded.get(life) != case.evidence.held.get(life):
            yield f"{life}: the projection isn't the fold of the log"


BY_THE_WORKER: Final = {Kind.HEARTBEAT, Kind.ACKED, Kind.RETRIED, Kind.RELEASED, Kind.DROPPED}


def wrong_step(task: TaskRecord | None, row: Transition) -> Iterator[str]:
    """What the rules of ``fold`` leave open: times, tokens and counts."""
    here = f"{row.life}: {row.kind} at {row.position}"
    failed = row.kind is Kind.DEAD and "error" in row.facts
    if task is None:
        return
    if row.kind is Kind.LEASED:
        yield from wrong_lease(task, row, here)
    elif row.kind in BY_THE_WORKER or failed:
        if row.token != task.token:
            yield f"{here} under token {row.token}, but {task.token} is the newest"
        # Of a lease's heartbeats a forgetful log keeps the last one.
        kept = row.kind is not Kind.HEARTBEAT or row.queue != FORGETFUL
        if row.at >= task.visible_at and task.state is State.LEASED and kept:
            yield f"{here} after the deadline"
    elif row.kind in (Kind.LAPSED, Kind.DEAD):
        adopted = "adopted_by" in row.facts
        if row.at != task.visible_at and not adopted:
            yield f"{here} isn't dated when its deadline passed"
        if task.last_attempt != (row.kind is Kind.DEAD):
            yield f"{here} after attempt {task.attempt} of {task.max_attempts}"


def wrong_lease(task: TaskRecord, row: Transition, here: str) -> Iterator[str]:
    if row.at < task.visible_at:
        yield f"{here} before it was visible"
    if row.position <= (task.token or 0):
        yield f"{here} under a token that isn't larger than the one before"
    if row.attempt != task.attempt + 1 or row.attempt > task.max_attempts:
        yield f"{here} is attempt {row.attempt} after {task.attempt} of {task.max_attempts}"


def one_ack(case: Case) -> Iterator[str]:
    """A task is acknowledged at most once."""
    acks = Counter(row.life for row in case.evidence.log if row.kind is Kind.ACKED)
    yield from (f"{life}: acknowledged {count} times" for life, count in acks.items() if count > 1)


def tokens(case: Case) -> Iterator[str]:
    """Each token is of one delivery, and whoever ran had one that the log knows."""
    leased: dict[int, UUID] = {}
    for row in case.evidence.log:
        if row.kind is Kind.LEASED:
            if row.position in leased:
                yield f"token {row.position} was given to {leased[row.position]} and to {row.life}"
            leased[row.position] = row.life
    for effect in (*case.evidence.outside, *case.evidence.committed):
        if effect.life in case.histories and leased.get(effect.token) != effect.life:
            yield f"{effect.life}: ran under token {effect.token}, which the log never gave it"


AT_MOST_ONCE: Final = {"once", "once_or_never", "once_later"}
FOR_EACH_ACK: Final = {"plain", "later"}
SOME_FOR_AN_ACK: Final = {"once", "once_later", "once_or_more"}


def effects_outside(case: Case) -> Iterator[str]:
    """At least once where acknowledged; at most once where ``effects.once`` promises it."""
    for life, path in case.paths.items():
        done = case.outside.get(life, ())
        if path in AT_MOST_ONCE and len(done) > 1:
            yield f"{life}: {path} took effect {len(done)} times"
        if life not in case.acked:
            continue
        if path in FOR_EACH_ACK and case.acked[life] not in done:
            yield f"{life}: {path} was acknowledged by a delivery that had no effect"
        if path in SOME_FOR_AN_ACK and not done:
            yield f"{life}: {path} was acknowledged without effect"


def effects_committed(case: Case) -> Iterator[str]:
    """An atomic task's effect is there exactly if it was acknowledged, and by that delivery."""
    for life, path in case.paths.items():
        done = list(case.committed.get(life, ()))
        wanted = [case.acked[life]] if life in case.acked and path == "atomically" else []
        if done != wanted:
            yield f"{life}: {path} committed effects of {done}, and was acknowledged as {wanted}"


def what_clients_were_told(case: Case) -> Iterator[str]:
    """What came back as stored is there; what was rolled back isn't."""
    forgotten = set()
    for told in case.evidence.told:
        if told.life is not None and told.life not in case.histories:
            if told.queue == FORGETFUL:
                forgotten.add(told.life)
            else:
                yield f"{told.life}: a client was told {told.said}, and the log doesn't know it"
        if told.said in ("undone", "duplicate") and told.mark in case.marks:
            yield f"{told.mark}: {told.said}, and stored all the same"
    pruned = case.evidence.tallies.get((FORGETFUL, Kind.ENQUEUED), 0)
    if len(forgotten) > pruned:
        yield f"{len(forgotten)} tasks of {FORGETFUL} are missing, and {pruned} were pruned"


def orders(case: Case) -> Iterator[str]:
    """A site's own row and the task of its transaction are both there, or neither."""
    ordered = {mark for mark in case.marks if mark.startswith("order-")}
    for mark in sorted(ordered - case.evidence.orders):
        yield f"{mark}: the task is there, the row of its transaction isn't"
    unseen = case.evidence.orders - ordered
    pruned = case.evidence.tallies.get((FORGETFUL, Kind.ENQUEUED), 0)
    if len(unseen) > pruned + case.erased:
        yield f"{len(unseen)} rows have no task; {pruned} were pruned and {case.erased} erased"


def leftovers(case: Case) -> Iterator[str]:
    """When all is calm, what is held is dead, has yet to come due, or is paused."""
    if case.evidence.ended_at is None:
        return
    paused = {pause.queue for pause in case.evidence.pauses if pause.until is None}
    for life, task in case.evidence.held.items():
        later = task.state is State.READY and task.visible_at > case.evidence.ended_at
        if task.state is not State.DEAD and not later and task.queue not in paused:
            yield f"{life}: left over in {task.queue}, {task.state} since {task.visible_at}"
    for batch in case.evidence.batches:
        if not batch.done:
            yield f"batch of {batch.by}: left over, {batch.moved} of {batch.total} moved"


def pauses(case: Case) -> Iterator[str]:
    """Nothing is claimed from a paused queue."""
    leased = [row for row in case.evidence.log if row.kind is Kind.LEASED]
    for pause in case.evidence.pauses:
        for row in leased:
            over = pause.until and pause.until <= row.at
            if row.queue == pause.queue and pause.since < row.at and not over:
                yield f"{row.life}: leased at {row.at}, paused from {pause.since} to {pause.until}"


VERBS: Final = {"redrive": Kind.REDRIVEN, "cancel": Kind.CANCELLED}


def batches(case: Case) -> Iterator[str]:
    """A batch says what it did: each task of it moved once, at its rate, or was skipped."""
    moves = defaultdict(list)
    for row in case.evidence.log:
        if row.kind in VERBS.values():
            moves[row.facts.get("by"), row.kind].append(row)
    for batch in case.evidence.batches:
        here, made = f"batch of {batch.by}", moves[batch.by, VERBS[batch.verb]]
        if batch.done and batch.total != batch.moved + batch.skipped:
            yield f"{here}: {batch.total} tasks, {batch.moved} moved, {batch.skipped} skipped"
        lost = batch.moved - len(made)
        if lost < 0 or (lost and batch.queue != FORGETFUL):
            yield f"{here}: {batch.moved} moved, by the log {len(made)}"
        if len({row.life for row in made}) != len(made):
            yield f"{here}: moved a task twice"
        times = sorted(row.visible_at for row in made if row.visible_at and batch.rate)
        for one, other in pairwise(times):
            if (other - one).total_seconds() < 1 / (batch.rate or 1) - A_TICK:
                yield f"{here}: two tasks at {one} and {other}, at a rate of {batch.rate}"


CHECKS: Final[tuple[Callable[[Case], Iterator[str]], ...]] = (
    the_account,
    legal_histories,
    one_ack,
    tokens,
    effects_outside,
    effects_committed,
    what_clients_were_told,
    orders,
    leftovers,
    pauses,
    batches,
)


def violations(evidence: Evidence) -> list[str]:
    """Everything that isn't as promised, named by the check that saw it."""
    case = Case(evidence)
    return [f"{check.__name__}: {wrong}" for check in CHECKS for wrong in check(case)]


def figures(evidence: Evidence) -> dict[str, int]:
    """What there was of each kind."""
    case = Case(evidence)
    counts = {str(kind): case.ever(kind) for kind in Kind}
    held = Counter(f"held {task.state}" for task in evidence.held.values())
    pruned = {"rows pruned": sum(evidence.tallies.values())} if evidence.tallies else {}
    others = {"pauses": len(evidence.pauses), "batches": len(evidence.batches)}
    return counts | {"held": len(evidence.held)} | held | pruned | others
