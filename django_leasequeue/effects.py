"""What a task does elsewhere (a payment, a mail) and must not do twice without knowing it.

    start ──▶ started ──▶ done, with the result
       ▲         │
       └─────────┘ the act says by its exception that it did nothing

``started`` is committed before the act and ``done`` after it, each on its own, on a connection of
the worker's: the task's transaction undoes neither. A delivery that finds ``done`` does nothing.
One that finds ``started`` alone can't know: the worker before it may have died just before the
act, or just after it. No queue can know that; this one asks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from inspect import iscoroutine
from typing import Any, Final

from django.db import connections, transaction

from . import validation
from .aqueue import whole
from .errors import EffectUncertain, QueueUnavailableError
from .models import Effect
from .worker.context import current_lease

__all__ = ["RAISE", "REPEAT", "SKIP", "EffectUncertain", "Uncertain", "aonce", "once"]

Exceptions = type[BaseException] | tuple[type[BaseException], ...]


class Uncertain(StrEnum):
    """What to do with an effect that was begun, where nobody knows whether it came off."""

    RAISE = "raise"  # EffectUncertain
    REPEAT = "repeat"  # do it again: whoever is asked knows it by its key, or twice does no harm
    SKIP = "skip"  # don't: rather never than twice


RAISE: Final = Uncertain.RAISE
REPEAT: Final = Uncertain.REPEAT
SKIP: Final = Uncertain.SKIP


def once(
    name: str, act: Callable[[], Any], *, uncertain: Uncertain = RAISE, not_done: Exceptions = ()
) -> Any:
    """Do *act* once in the life of the running task, however often it is delivered.

    Args:
        name: tells the task's effects from each other; 1 to 200 characters.
        act: called without arguments; what it returns is kept as JSON.
        uncertain: what to do where an earlier call began it and never said how it ended.
        not_done: exceptions by which *act* says that it did nothing. After any other one that it
            raises the effect is uncertain.

    Returns:
        What *act* returned, now or at an earlier delivery, as JSON gives it back (what can't be
        stored is replaced by a marked note). None where it was skipped.

    Raises:
        EffectUncertain: begun before, and *uncertain* is RAISE; *act* was not called.
        LeaseLostError: the lease isn't live; *act* was not called.
        LookupError: no worker is running a task here.
        InvalidTaskError: *name* can't be stored.
        QueueUnavailableError: the database can't be reached. Where that is so after *act* the
            effect is uncertain.
        django.db.transaction.TransactionManagementError: inside a transaction on SQLite.
    """
    effect = Occurrence(name, uncertain)
    ask = effect.lease.heartbeats.ask
    if ask(effect.begin):
        try:
            answer = act()
        except not_done:
            ask(effect.forget)
            raise
        if iscoroutine(answer):  # nothing was done yet, and nothing would be
            answer.close()
            ask(effect.forget)
            raise TypeError("once() calls functions that aren't async; aonce() awaits those")
        ask(partial(effect.finish, answer))
    return effect.result


async def aonce(
    name: str,
    act: Callable[[], Awaitable[Any]],
    *,
    uncertain: Uncertain = RAISE,
    not_done: Exceptions = (),
) -> Any:
    """See once(). Where the task is cancelled in the middle of *act* the effect is uncertain."""
    effect = Occurrence(name, uncertain)
    ask = effect.lease.heartbeats.aask
    try:
        wanted = await whole(ask(effect.begin))
    except asyncio.CancelledError:
        await whole(ask(effect.forget))
        raise
    if wanted:
        try:
            answer = await act()
        except not_done:
            await whole(ask(effect.forget))
            raise
        await whole(ask(partial(effect.finish, answer)))
    return effect.result


class Occurrence:
    """One call of an effect. What it does to the record runs on the worker's connection."""

    def __init__(self, name: str, uncertain: Uncertain) -> None:
        self.lease = current_lease()
        self.queue = self.lease.delivery.queue
        self.life = self.lease.lease.life
        self.name = validation.name("effect", name)
        self.uncertain = Uncertain(uncertain)
        self.is_new = False
        self.result: Any = None
        self.refuse_a_second_writer()

    def refuse_a_second_writer(self) -> None:
        using = self.queue.using
        if connections[using].vendor == "sqlite" and self.queue.store.inside_atomic():
            raise transaction.TransactionManagementError(
                f"effect {self.name!r} can't be recorded inside a transaction: SQLite has one "
                "writer, and what is recorded there would be rolled back with it"
            )

    def begin(self) -> bool:
        """Record that it starts, under the live lease; whether it is to be done."""
        using, lease = self.queue.using, self.lease.lease
        with self.queue.reached(), transaction.atomic(using=using):
            row, self.is_new = Effect.objects.using(using).get_or_create(
                life=self.life,
                name=self.name,
                defaults={"token": lease.token, "started_at": self.queue.now()},
            )
            # Last: what a newer delivery has recorded is seen only where its lease is, too.
            self.queue.check(lease)
        return self.is_new or self.judge(row)

    def judge(self, row: Effect) -> bool:
        """Whether to do what was begun before."""
        if row.done_at is not None:
            self.result = json.loads(row.result or "null")
            return False
        if self.uncertain is Uncertain.RAISE:
            raise EffectUncertain(self.name, row.life, row.token, row.started_at)
        return self.uncertain is Uncertain.REPEAT

    def finish(self, answer: Any) -> None:
        """Record that it is done, whatever became of the lease meanwhile: it is so."""
        text = validation.result_text(answer, bytes_max=self.queue.options.payload_bytes_max)
        self.result = json.loads(text)
        try:
            self.record(text)
        except QueueUnavailableError:
            self.record(text)  # a connection that was cut meanwhile is made anew

    def record(self, text: str) -> None:
        with self.queue.reached():
            self.unfinished().update(done_at=self.queue.now(), result=text)

    def forget(self) -> None:
        """It did nothing; what an earlier delivery began stays uncertain."""
        if self.is_new:
            with self.queue.reached():
                self.unfinished().delete()

    def unfinished(self) -> Any:
        rows = Effect.objects.using(self.queue.using)
        return rows.filter(life=self.life, name=self.name, done_at=None)
