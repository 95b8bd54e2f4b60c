"""Tasks, leases and dead letters, ready to be looked at."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django_leasequeue.lease import Lease
from django_leasequeue.records import Admitted
from django_leasequeue.stores.base import Failure, Finish, Store
from django_leasequeue.transitions import Kind, Transition, enqueued_data, json_text

QUEUE = "emails"


def a_task(id: str = "a", **changes: Any) -> Admitted:
    """A new task as it comes from validation: V = 30, M = 3, L = 70."""
    task = Admitted(
        life=uuid4(),
        id=id,
        tenant="",
        path="",
        priority=0,
        payload="{}",
        dedupe_key=None,
        run_after=None,
        max_attempts=3,
        visibility=timedelta(seconds=30),
        max_lease=timedelta(seconds=70),
    )
    return replace(task, **changes)


def a_lease(store: Store, id: str = "a", *, worker: str = "w", **changes: Any) -> Lease:
    """The lease on a new task; nothing else may be visible."""
    store.enqueue(QUEUE, [a_task(id, **changes)])
    return a_claim(store, id, worker=worker)


def a_claim(store: Store, id: str = "a", *, worker: str = "w") -> Lease:
    """The lease on the task that is next."""
    [lease] = store.claim(QUEUE, worker=worker, limit=1)
    assert lease.id == id
    return lease


def a_finish(lease: Lease, result: str = "null") -> Finish:
    return Finish(lease=lease, result=result)


def a_failure(lease: Lease, kind: Kind = Kind.RETRIED, seconds: float = 0) -> Failure:
    error = json_text({"type": "E", "message": "m", "traceback": "", "summary": "E: m"})
    return Failure(lease=lease, kind=kind, error=error, delay=timedelta(seconds=seconds))


def a_dead_letter(store: Store, id: str = "a", **changes: Any) -> Lease:
    """The last lease of a task that failed for good; nothing else may be visible."""
    lease = a_lease(store, id, **changes)
    store.fail([a_failure(lease, Kind.DEAD)])
    return lease


def a_beginning(at: datetime, task: Admitted | None = None, **changes: Any) -> Transition:
    """The enqueued transition of *task*, at the first place of the log."""
    new = task or a_task()
    transition = Transition(
        kind=Kind.ENQUEUED,
        at=at,
        life=new.life,
        queue=QUEUE,
        tenant=new.tenant,
        visible_at=at,
        position=1,
        id=new.id,
        payload=new.payload,
        data=enqueued_data(new),
    )
    return replace(transition, **changes)


def kinds(store: Store, *lives: UUID) -> list[str]:
    """What happened to those lives, in log order."""
    return [str(transition.kind) for transition in store.history(lives)]


def redriven(store: Store, *ids: str, tenant: str = "") -> tuple[int, dict[str, str]]:
    batch = store.redrive(QUEUE, ids, tenant=tenant, by="7 ada", reason="fixed")
    return batch.redriven, dict(batch.skipped)


def erased(store: Store, life: UUID) -> bool:
    return store.erase(QUEUE, life, by="7 ada", reason="she asked for it")


def cancelled(store: Store, id: str = "a", tenant: str = "") -> bool:
    ids = [id, "nobody's"]
    return store.cancel(QUEUE, ids, tenant=tenant, by="7 ada", reason="unwanted") == {id}
