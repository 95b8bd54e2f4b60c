"""From what a caller hands in to what a store may take: validated, limits resolved. Pure.

What can't be stored raises InvalidTaskError.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar
from uuid import UUID

from . import validation
from .errors import InvalidTaskError
from .policy import PRIORITY_MAX, PRIORITY_MIN, QueuePolicy, whole
from .records import Admitted, NewTask

T = TypeVar("T")
R = TypeVar("R")

NEW_TASK_FIELDS: Final = frozenset(field.name for field in fields(NewTask))
# What a random digit makes of the one that tells a UUID's variant.
VARIANT: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def admit(new: NewTask, policy: QueuePolicy, *, bytes_max: int) -> Admitted:
    """*new* as it will be stored."""
    limits = policy.limits(
        max_attempts=new.max_attempts, visibility=new.visibility, max_lease=new.max_lease
    )
    key, life = new.dedupe_key, new_life()
    return Admitted(
        life=life,
        id=str(life) if new.id is None else validation.name("id", new.id),
        tenant=validation.name("tenant", new.tenant, empty=True),
        path=validation.name("path", new.path, empty=True),
        priority=whole("priority", new.priority, PRIORITY_MIN, PRIORITY_MAX),
        payload=validation.payload_text(new.payload, bytes_max=bytes_max),
        dedupe_key=None if key is None else validation.name("dedupe_key", key),
        run_after=validation.instant("run_after", new.run_after),
        max_attempts=limits.max_attempts,
        visibility=limits.visibility,
        max_lease=limits.max_lease,
    )


def admit_like(like: Admitted, payload: str) -> Admitted:
    """Another one that differs from *like* in its *payload*, JSON text, and has no id of its own.

    Written out, because every enqueue takes this way: ``replace`` takes four times as long.
    """
    [id] = new_lives(1)
    return Admitted(
        life=UUID(id),
        id=id,
        tenant=like.tenant,
        path=like.path,
        priority=like.priority,
        payload=payload,
        dedupe_key=like.dedupe_key,
        run_after=like.run_after,
        max_attempts=like.max_attempts,
        visibility=like.visibility,
        max_lease=like.max_lease,
    )


def admit_all(
    tasks: Iterable[NewTask | Mapping[str, Any]], policy: QueuePolicy, *, bytes_max: int
) -> list[Admitted]:
    """All of *tasks*, or none: then the error names the index of the first that can't be."""
    many = validation.items("tasks", tasks)
    return list(each(many, lambda task: admit(as_new_task(task), policy, bytes_max=bytes_max)))


def payload_texts(payloads: Iterable[Any], *, bytes_max: int) -> Iterator[str]:
    """Each of *payloads* as JSON text; an error names the index of the one that can't be."""
    many = validation.items("payloads", payloads)
    return each(many, lambda payload: validation.payload_text(payload, bytes_max=bytes_max))


def each(items: Iterable[T], made: Callable[[T], R]) -> Iterator[R]:
    """What is *made* of each item; an error tells which it was."""
    for index, item in enumerate(items):
        try:
            yield made(item)
        except InvalidTaskError as error:
            raise InvalidTaskError(f"item {index}: {error}") from None


def as_new_task(task: NewTask | Mapping[str, Any]) -> NewTask:
    if isinstance(task, NewTask):
        return task
    if not isinstance(task, Mapping):
        raise InvalidTaskError(f"a NewTask or a mapping is needed, not a {type(task).__name__}")
    if unknown := sorted(map(ascii, set(task) - NEW_TASK_FIELDS)):
        raise InvalidTaskError(f"unknown field {', '.join(unknown)}")
    if "payload" not in task:
        raise InvalidTaskError("payload is missing")
    return NewTask(**task)


def new_life() -> UUID:
    return UUID(new_lives(1)[0])


def new_lives(count: int) -> list[str]:
    """UUIDs of version 7: unique for ever, and lives begun together lie together in an index."""
    milliseconds = f"{time.time_ns() // 1_000_000:012x}"  # only for the order; no rule reads it
    begin = f"{milliseconds[:8]}-{milliseconds[8:]}-7"
    digits = os.urandom(10 * count).hex()
    each = (digits[at : at + 20] for at in range(0, len(digits), 20))
    return [f"{begin}{r[:3]}-{VARIANT[r[3]]}{r[4:7]}-{r[7:19]}" for r in each]
