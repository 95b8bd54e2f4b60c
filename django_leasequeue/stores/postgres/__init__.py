"""The store on PostgreSQL: every move is one statement, each in its own file under sql/."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from django.db import OperationalError, connections, transaction
from psycopg.errors import DeadlockDetected, SerializationFailure

from ...lease import Lease
from ...records import Admitted, EnqueuedTask
from ...transitions import State, enqueued_data
from ..base import BATCH, Clock, Finish, Store
from . import rows
from .statements import run

Answer = TypeVar("Answer")
REPEATS_MAX: Final = 20
ROWS_MAX: Final = 1000  # tasks that one statement stores or leases
MICROSECOND: Final = timedelta(microseconds=1)


class PostgresStore(Store):
    """The tasks of one PostgreSQL database."""

    def __init__(self, using: str, clock: Clock | None = None) -> None:
        super().__init__(using, clock)
        self.only_tenant: dict[
            str, str
        ] = {}  # by queue, as the last claim there saw it

    def run(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """Run sql/*name*.sql at the present instant; the rows it answers."""
        now = self.clock.now() if self.clock else None
        return self.repeated(lambda: run(self.using, name, {"now": now, **parameters}))

    def repeated(self, act: Callable[[], Answer]) -> Answer:
        """Do *act*, again where the server asks for it; inside a transaction it's the caller's."""
        if not connections[self.using].get_autocommit():
            return act()
        for _ in range(REPEATS_MAX):
            try:
                return act()
            except OperationalError as error:
                if not isinstance(
                    error.__cause__, DeadlockDetected | SerializationFailure
                ):
                    raise
        return act()

    def now(self) -> datetime:
        return rows.utc(self.run("now")[0]["now"])

    def enqueue(self, queue: str, tasks: Sequence[Admitted]) -> list[EnqueuedTask]:
        if len(tasks) == 1:
            return self.store_chunk(queue, tasks)
        return self.repeated(lambda: self.store_chunks(queue, tasks))

    def store_chunks(self, queue: str, tasks: Sequence[Admitted]) -> list[EnqueuedTask]:
        with transaction.atomic(using=self.using):
            return [
                task
                for chunk in chunks(tasks)
                for task in self.store_chunk(queue, chunk)
            ]

    def store_chunk(self, queue: str, tasks: Sequence[Admitted]) -> list[EnqueuedTask]:
        stored = {}
        for row in self.run("enqueue", queue=queue, **arrays(tasks)):
            stored[row["life"]] = row["scheduled"]
        return [
            EnqueuedTask(
                life=task.life,
                id=task.id,
                tenant=task.tenant,
                state=State.SCHEDULED if stored[task.life] else State.READY,
                duplicate=False,
            )
            for task in tasks
        ]

    def claim(self, queue: str, *, worker: str, limit: int) -> list[Lease]:
        answer = self.run(
            "claim_rotating", queue=queue, worker=worker, limit=limit, gate=False
        )
        return rows.leases(answer, queue=queue, worker=worker)

    def complete(self, finishes: Sequence[Finish]) -> set[int]:
        accepted = self.run(
            "complete",
            lives=[finish.lease.life for finish in finishes],
            tokens=[finish.lease.token for finish in finishes],
            data=[f'{{"result":{finish.result}}}' for finish in finishes],
        )
        return {row["token"] for row in accepted}


def chunks(tasks: Sequence[Admitted]) -> Iterator[list[Admitted]]:
    """*tasks* in order, cut so that no chunk meets itself in an id or a key."""
    chunk: list[Admitted] = []
    taken: set[tuple[str, str, str]] = set()
    for task in tasks:
        names = {("id", task.tenant, task.id)}
        if task.dedupe_key is not None:
            names.add(("key", task.tenant, task.dedupe_key))
        if len(chunk) == ROWS_MAX or taken & names:
            yield chunk
            chunk, taken = [], set()
        chunk.append(task)
        taken |= names
    if chunk:
        yield chunk


def arrays(tasks: Sequence[Admitted]) -> dict[str, list[Any]]:
    """The columns of *tasks*, as enqueue.sql takes them."""
    moments = [task.run_after for task in tasks]
    return {
        "lives": [task.life for task in tasks],
        "ids": [task.id for task in tasks],
        "tenants": [task.tenant for task in tasks],
        "paths": [task.path for task in tasks],
        "priorities": [task.priority for task in tasks],
        "payloads": [task.payload for task in tasks],
        "keys": [task.dedupe_key for task in tasks],
        "run_ats": [at if isinstance(at, datetime) else None for at in moments],
        "delays_us": [
            wait // MICROSECOND if isinstance(wait, timedelta) else None
            for wait in moments
        ],
        "max_attempts": [task.max_attempts for task in tasks],
        "visibilities_us": [task.visibility // MICROSECOND for task in tasks],
        "max_leases_us": [task.max_lease // MICROSECOND for task in tasks],
        "data": [enqueued_data(task) for task in tasks],
    }
