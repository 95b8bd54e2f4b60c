"""The reference model: the log is a list, the projection a dictionary.

For tests, in one process. What the promises mean is what this store does; the others are compared
with it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

from ..records import All, Depth, Outlook, Paused
from ..transitions import Kind, State, TaskRecord, Transition, as_of, overdue
from ..validation import Why
from .base import BATCH, Clock, Old, Pruned
from .folding import FoldingStore

Name = tuple[str, str, str, str]


class MemoryStore(FoldingStore):
    """Tasks that live as long as this object; safe to use from several threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__("memory", clock)
        self.mutex = threading.RLock()
        self.in_move = False
        self.after_move: list[Callable[[], None]] = []
        self.transitions: list[Transition] = []
        self.tasks: dict[UUID, TaskRecord] = {}
        self.names: dict[Name, UUID] = {}
        self.turns: dict[str, str] = {}
        self.tallies: Counter[tuple[str, str]] = Counter()
        self.paused: dict[str, Paused] = {}

    def now(self) -> datetime:
        # The process is the database here.
        return self.clock.now() if self.clock else datetime.now(UTC)  # noqa: TID251

    @contextmanager
    def moving(self) -> Iterator[datetime]:
        with self.mutex, self.all_or_nothing():
            yield self.now()
            acts, self.after_move = self.after_move, []
        for act in acts:
            act()

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        before = dict(self.tasks), dict(self.names), dict(self.turns), list(self.transitions)
        self.in_move = True
        try:
            yield
        except BaseException:
            self.tasks, self.names, self.turns, self.transitions = before
            del self.after_move[:]
            raise
        finally:
            self.in_move = False

    def on_commit(self, act: Callable[[], None], *, once: bool = True) -> None:
        with self.mutex:
            if self.in_move:
                self.after_move.append(act)
                return
        act()

    def inside_atomic(self) -> bool:
        return False

    def log(self, transition: Transition) -> Transition:
        position = len(self.transitions) + 1
        token = position if transition.kind is Kind.LEASED else transition.token
        logged = replace(transition, position=position, token=token)
        self.transitions.append(logged)
        return logged

    def rewrite(self, rows: Sequence[Transition]) -> None:
        for row in rows:
            self.transitions[row.position - 1] = row

    def project(self, before: TaskRecord | None, after: TaskRecord | None, now: datetime) -> None:
        if before:
            del self.tasks[before.life]
            for name in names(before):
                del self.names[name]
        if after:
            self.tasks[after.life] = after
            for name in names(after):
                if name in self.names:
                    raise AssertionError(f"two tasks hold the same {name[0]}")
                self.names[name] = after.life

    def lock(self, *, wait: bool = True, **match: Any) -> list[TaskRecord]:
        """Nothing is locked by others: a move has the whole store."""
        return self.look(**match)

    def look(self, **match: Any) -> list[TaskRecord]:
        wanted = {name: one if isinstance(one, set) else {one} for name, one in match.items()}
        with self.mutex:
            tasks = [
                task
                for task in self.candidates(wanted)
                if all(getattr(task, name) in values for name, values in wanted.items())
            ]
        return sorted(tasks, key=lambda task: task.seq)

    def candidates(self, wanted: Mapping[str, set[Any]]) -> Iterable[TaskRecord]:
        """The few tasks that a life or a name leaves to look at, else all."""
        if "life" in wanted:
            lives = wanted["life"]
        elif unique := {"id", "live_key"} & wanted.keys():
            [field], [queue], [tenant] = unique, wanted["queue"], wanted["tenant"]
            lives = {self.names.get((field, queue, tenant, one)) for one in wanted[field]}
        else:
            return list(self.tasks.values())
        return [self.tasks[life] for life in lives if life in self.tasks]

    def visible(self, queue: str, now: datetime) -> list[TaskRecord]:
        tasks = self.look(queue=queue, state=State.READY)
        return [task for task in tasks if task.visible_at <= now]

    def due(self, queue: str, now: datetime, limit: int) -> list[TaskRecord]:
        leased = self.look(queue=queue, state=State.LEASED)
        late = [task for task in leased if task.visible_at <= now]
        return sorted(late, key=lambda task: task.visible_at)[:limit]

    def head(self, queue: str, tenant: str, now: datetime) -> TaskRecord | None:
        tasks = [task for task in self.visible(queue, now) if task.tenant == tenant]
        return min(
            tasks, key=lambda task: (-task.priority, task.visible_at, task.seq), default=None
        )

    def next_tenant(
        self, queue: str, now: datetime, *, after: str | None, last: str | None
    ) -> str | None:
        # By bytes, as on every database: code points sort as their UTF-8 does.
        tenants = {
            task.tenant
            for task in self.visible(queue, now)
            if (after is None or task.tenant > after) and (last is None or task.tenant <= last)
        }
        return min(tenants, default=None)

    def turn(self, queue: str) -> str | None:
        return self.turns.get(queue)

    def take_turn(self, queue: str, tenant: str, token: int) -> None:
        self.turns[queue] = tenant

    def may_claim(self, queue: str) -> bool:
        return queue not in self.paused

    def pause(self, queue: str, **why: Unpack[Why]) -> bool:
        with self.mutex:
            new = Paused(at=self.now(), **why)
            return self.paused.setdefault(queue, new) is new

    def resume(self, queue: str, **why: Unpack[Why]) -> bool:
        with self.mutex:
            return self.paused.pop(queue, None) is not None

    def pauses(self) -> Mapping[str, Paused]:
        with self.mutex:
            return dict(self.paused)

    def history(self, lives: Iterable[UUID], *, since: int = 0) -> list[Transition]:
        wanted = set(lives)
        with self.mutex:
            late = self.transitions[max(since - 1, 0) :]
        return [transition for transition in late if transition.life in wanted]

    def as_of_now(self, queue: str) -> list[TaskRecord]:
        now = self.now()
        return [as_of(task, now) for task in self.look(queue=queue)]

    def dead(
        self, queue: str, *, tenant: str | All, after: int = 0, limit: int = BATCH
    ) -> list[TaskRecord]:
        now = self.now()
        match = {} if isinstance(tenant, All) else {"tenant": tenant}
        letters = [
            task
            for task in self.look(queue=queue, **match)
            if task.seq > after and as_of(task, now).state is State.DEAD
        ]
        return letters[:limit]

    def depth(self, queue: str) -> Depth:
        states = [task.state for task in self.as_of_now(queue)]
        return Depth(
            visible=states.count(State.READY),
            scheduled=states.count(State.SCHEDULED),
            leased=states.count(State.LEASED),
            dead=states.count(State.DEAD),
        )

    def oldest_visible(self, queue: str) -> timedelta | None:
        tasks = self.as_of_now(queue)
        instants = [task.visible_at for task in tasks if task.state is State.READY]
        return self.now() - min(instants) if instants else None

    def outlook(self, queue: str) -> Outlook:
        now = self.now()
        held = self.look(queue=queue)
        waits = [task.visible_at - now for task in held if task.state is not State.DEAD]
        later = [wait for wait in waits if wait > timedelta(0)]
        return Outlook(visible=len(later) < len(waits), due_in=min(later, default=None))

    def counts(self, queue: str) -> Mapping[str, int]:
        now = self.now()
        with self.mutex:
            happened = [t.kind for t in self.transitions if t.queue == queue]
            late = [overdue(task, now) for task in self.look(queue=queue)]
            tallied = {kind: n for (of, kind), n in self.tallies.items() if of == queue}
        return Counter([*happened, *(t.kind for t in late if t)]) + Counter(tallied)

    def tally(self, counts: Mapping[tuple[str, str], int]) -> None:
        with self.mutex:
            self.tallies.update(counts)

    def prune(self, old: Old, *, behind: int, size: int) -> Pruned:
        """Nothing: it all goes with this object."""
        return Pruned(rows=0, upto=len(self.transitions), more=False)


def names(task: TaskRecord) -> Iterator[Name]:
    """What no two held tasks may share."""
    yield "id", task.queue, task.tenant, task.id
    if task.live_key:
        yield "live_key", task.queue, task.tenant, task.live_key
