"""Arguments of moves on many tasks, as the arrays that the statements take."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from ...admission import new_lives
from ...failure import fingerprint
from ...records import Admitted
from ...transitions import data_of
from ..base import Failure, Finish
from .statements import Packed

ROWS_MAX: Final = 1000  # tasks that one statement stores or leases
CHARACTERS_MAX: Final = 16 * 1024 * 1024  # of payloads in it; the server takes no more than 1 GB
MICROSECOND: Final = timedelta(microseconds=1)
LIFE_CHARACTERS: Final = 36
Columns = dict[str, list[Any]]


def chunks(tasks: Sequence[Admitted]) -> Iterator[list[Admitted]]:
    """*tasks* in order, cut so that no chunk grows too large or meets itself in an id or a key."""
    chunk: list[Admitted] = []
    characters = 0
    taken: set[tuple[str, ...]] = set()
    for task in tasks:
        names = {("id", task.tenant, task.id)}
        if task.dedupe_key is not None:
            names.add(("key", task.tenant, task.dedupe_key))
        full = len(chunk) == ROWS_MAX or characters + len(task.payload) > CHARACTERS_MAX
        if chunk and (full or taken & names):
            yield chunk
            chunk, taken, characters = [], set(), 0
        chunk.append(task)
        taken |= names
        characters += len(task.payload)
    if chunk:
        yield chunk


def batches(payloads: Iterable[str]) -> Iterator[dict[str, Packed]]:
    """*payloads* in order, with a new life each, cut so that no batch grows too large."""
    texts: list[str] = []
    characters = 0
    for text in payloads:
        if len(texts) == ROWS_MAX or (texts and characters + len(text) > CHARACTERS_MAX):
            yield batch(texts)
            texts, characters = [], 0
        texts.append(text)
        characters += len(text)
    if texts:
        yield batch(texts)


def batch(texts: list[str]) -> dict[str, Packed]:
    return {"ids": Packed(new_lives(len(texts)), uuids=True), "payloads": Packed(texts)}


def of_task(task: Admitted) -> dict[str, Any]:
    return {"life": task.life, "id": task.id, "payload": task.payload, **of_kind(task)}


def of_kind(task: Admitted) -> Mapping[str, Any]:
    """What *task* has in common with others."""
    limits = (task.max_attempts, task.visibility, task.max_lease)
    return kind(task.tenant, task.path, task.priority, task.dedupe_key, task.run_after, *limits)


@lru_cache(maxsize=1024)  # the tasks of one function mostly share it
def kind(
    tenant: str,
    path: str,
    priority: int,
    key: str | None,
    wait: datetime | timedelta | None,
    max_attempts: int,
    visibility: timedelta,
    max_lease: timedelta,
) -> Mapping[str, Any]:
    limits = (max_attempts, visibility // MICROSECOND, max_lease // MICROSECOND)
    return {
        "key": key,
        "tenant": tenant,
        "path": path,
        "priority": str(priority),
        "run_at": wait if isinstance(wait, datetime) else None,
        "delay_us": str(wait // MICROSECOND) if isinstance(wait, timedelta) else None,
        "max_attempts": str(max_attempts),
        "visibility_us": str(visibility // MICROSECOND),
        "max_lease_us": str(max_lease // MICROSECOND),
        "data": data_of(path, priority, key, *limits),
    }


def of_tasks(tasks: Sequence[Admitted]) -> Columns:
    """As ``of_task``, an array each."""
    rows = [of_task(task) for task in tasks]
    return {name: [row[name] for row in rows] for name in rows[0]}


def of_duplicates(tasks: Sequence[Admitted]) -> Columns:
    return {
        "numbers": list(range(len(tasks))),
        "tenants": [task.tenant for task in tasks],
        "ids": [task.id for task in tasks],
        "keys": [task.dedupe_key for task in tasks],
        "lives": [life_in(task.id) for task in tasks],
    }


def life_in(id: str) -> UUID | None:
    """The life whose text *id* is: a task without an id of its own has that one."""
    if len(id) != LIFE_CHARACTERS:
        return None
    try:
        life = UUID(id)
    except ValueError:
        return None
    return life if str(life) == id else None


def borrows(task: Admitted) -> bool:
    """Whether the task's id may be that of another one, which has none of its own."""
    return task.id != str(task.life) and life_in(task.id) is not None


def of_finishes(finishes: Sequence[Finish]) -> Columns:
    return {
        "seqs": [finish.lease.seq for finish in finishes],
        "tokens": [finish.lease.token for finish in finishes],
        "data": [f'{{"result":{finish.result}}}' for finish in finishes],
    }


def of_failures(failures: Sequence[Failure]) -> Columns:
    summaries = [json.loads(failure.error)["summary"] for failure in failures]
    return {
        "seqs": [failure.lease.seq for failure in failures],
        "tokens": [failure.lease.token for failure in failures],
        "kinds": [str(failure.kind) for failure in failures],
        "delays_us": [failure.delay // MICROSECOND for failure in failures],
        "summaries": summaries,
        "fingerprints": [fingerprint(summary) for summary in summaries],
        "data": [f'{{"error":{failure.error}}}' for failure in failures],
    }
