"""The store on PostgreSQL: a move is one statement, in a file of its own under sql/.

Where something conflicts it takes up to three: an enqueue that met a held id or key, a claim that
met what came due by time, a redrive that met a task dead by the clock alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, Unpack
from uuid import UUID

from django.db import IntegrityError, OperationalError, transaction
from django.db.models import Subquery
from psycopg.errors import DeadlockDetected, SerializationFailure

from ...lease import Lease
from ...records import Admitted, Depth, EnqueuedTask, Outlook, Part, Slots
from ...transitions import Kind, State, TaskRecord, json_text
from ...validation import Why
from ..base import BATCH, Clock, Failure, Finish, Old, Pruned, Wake
from ..database import REPEATS_MAX, DatabaseStore
from . import columns, rows
from .heads import Head
from .rows import Claimed, Row
from .statements import run, run_ahead, run_along, run_plain

KEY_REPEATS: Final = 5  # of a redrive whose key is taken under its hands
NO_HOLDER: Final = {"key": None, "held_by": None}  # that could be named
PRUNE_EVERY: Final = 1009  # tokens; a prime, so that no rhythm of log rows steps over it


class PostgresStore(DatabaseStore):
    """The tasks of one PostgreSQL database."""

    def __init__(self, using: str, clock: Clock | None = None) -> None:
        super().__init__(using, clock)
        # By queue, where the last claim saw no other. A guess: the statement checks it.
        self.only_tenant: dict[str, str] = {}
        self.heads: dict[str, Head] = {}

    def run(self, name: str, **parameters: Any) -> list[Row]:
        """Run sql/*name*.sql at the present instant; the rows it answers."""
        return self.repeated(lambda: run(self.using, name, self.at_present(parameters)))

    def run_claim(self, name: str, queue: str, worker: str, **parameters: Any) -> Claimed:
        """As ``run``; the many columns of many leases never become dictionaries."""
        asked = self.at_present({"queue": queue, "worker": worker, **parameters})
        answer = self.repeated(lambda: run_plain(self.using, name, asked))
        return rows.claimed(answer, queue=queue, worker=worker)

    def at_present(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return {"now": self.clock.now() if self.clock else None, **parameters}

    def lost_a_conflict(self, error: OperationalError) -> bool:
        return isinstance(error.__cause__, DeadlockDetected | SerializationFailure)

    def now(self) -> datetime:
        return rows.utc(self.run("now")[0]["now"])

    def enqueue(
        self, queue: str, tasks: Sequence[Admitted], wake: Wake | None = None
    ) -> list[EnqueuedTask]:
        if len(tasks) > 1:
            stored = self.repeated(lambda: self.store_chunks(queue, tasks))
        else:
            met = False
            if wake and not columns.borrows(tasks[0]):
                if told := self.store_and_tell(queue, tasks[0], wake):
                    return [told]
                met = True
            stored = self.store_chunk(queue, tasks, met=met)
        self.wake_for(stored, wake)
        return stored

    def store_and_tell(self, queue: str, task: Admitted, wake: Wake) -> EnqueuedTask | None:
        """Store *task* and tell of it, in one go where that can be; None where it met a holder.

        That tells, too: who sleeps looks once in vain.
        """
        asked = self.at_present({"queue": queue, **columns.of_task(task)})
        answer, told = self.repeated(
            lambda: run_along(self.using, "enqueue_one", asked, "notify", wake.told)
        )
        if not answer:
            return None
        if told:  # there was no transaction but its own
            wake.here()
        else:
            self.on_commit(wake)
        [(_, *facts)] = answer
        return rows.stored_as(facts, life=task.life, id=task.id, tenant=task.tenant)

    def store_chunks(self, queue: str, tasks: Sequence[Admitted]) -> list[EnqueuedTask]:
        with transaction.atomic(using=self.using):
            chunks = columns.chunks(tasks)
            return [task for chunk in chunks for task in self.store_chunk(queue, chunk)]

    def store_chunk(
        self, queue: str, tasks: Sequence[Admitted], *, met: bool = False
    ) -> list[EnqueuedTask]:
        """Store *tasks*, which may have *met* a holder already."""
        # No index tells that an id is the life's text of another task. There is no race: nobody
        # knows of a life before its task is there.
        answers = self.find_holders(queue, [task for task in tasks if met or columns.borrows(task)])
        for step in (self.insert, self.find_holders) * REPEATS_MAX:
            waiting = [task for task in tasks if task.life not in answers]
            if not waiting:
                return [answers[task.life] for task in tasks]
            answers |= step(queue, waiting)
        raise IntegrityError(
            f"queue {queue!r}: a task is neither stored nor held; has leasequeue_task a trigger,"
            " an index or a row policy of the site's own?"
        )

    def insert(self, queue: str, tasks: Sequence[Admitted]) -> dict[UUID, EnqueuedTask]:
        """Store what meets no held id and no live key; the stored ones, by the given lives."""
        if len(tasks) == 1:
            answer = self.run("enqueue_one", queue=queue, **columns.of_task(tasks[0]))
        else:
            answer = self.run("enqueue", queue=queue, **columns.of_tasks(tasks))
        stored = {row["life"]: row for row in answer}
        return {
            task.life: rows.enqueued(row, life=task.life, id=task.id, tenant=task.tenant)
            for task in tasks
            if (row := stored.get(task.life))
        }

    def enqueue_alike(
        self, queue: str, like: Admitted, payloads: Iterable[str], wake: Wake | None = None
    ) -> Iterator[Part]:
        shared = self.at_present({"queue": queue, **columns.of_kind(like)})
        batches = (shared | batch for batch in columns.batches(payloads))
        stored = False
        with transaction.atomic(using=self.using):
            for batch, [answer] in run_ahead(self.using, "enqueue_alike", batches):
                tasks = rows.StoredAlike(answer, lives=batch["ids"].values, tenant=like.tenant)
                yield Part(tasks=tasks, payloads=batch["payloads"].values)
                stored = True
            if wake and stored:
                self.on_commit(wake)

    def find_holders(self, queue: str, tasks: Sequence[Admitted]) -> dict[UUID, EnqueuedTask]:
        """Log the duplicates among *tasks*; who holds their id or key, by the given lives.

        Where the holder left meanwhile, or is dead and lets go of the key, nothing is answered.
        """
        if not tasks:
            return {}
        answer = self.run("duplicate", queue=queue, **columns.of_duplicates(tasks))
        self.announce(rows.happened(answer, queue))
        return {
            tasks[row["number"]].life: rows.enqueued(
                row, life=row["life"], id=row["id"], tenant=row["tenant"], duplicate=True
            )
            for row in answer
            if row["number"] is not None
        }

    def claim(self, queue: str, *, worker: str, limit: int) -> list[Lease]:
        leases: list[Lease] = []
        head = self.head_of(queue).begun(limit)
        partly = head.partly
        while wanted := min(limit - len(leases), columns.ROWS_MAX):
            claimed = self.settle_and_take(head, queue, worker, wanted)
            leases += claimed.leases
            if len(claimed.leases) == wanted or claimed.due:
                continue
            # Of several tenants some may have had less than their share: others have more.
            if claimed.alone or not claimed.leases:
                head.forget()
                if not partly:
                    break
                partly = False
        self.heads[queue] = head
        return leases

    def head_of(self, queue: str) -> Head:
        if queue not in self.heads:
            self.heads[queue] = Head()
        return self.heads[queue]

    def settle_and_take(self, head: Head, queue: str, worker: str, limit: int) -> Claimed:
        """Lease tasks; write down a batch of what came due first, more while that yields none.

        ``due`` of the answer says that more may have come due.
        """
        claimed = self.take(head, queue, worker, limit, gate=True)
        while claimed.due and not claimed.leases:
            full = self.settle_behind(head, queue, BATCH) == BATCH
            claimed = replace(self.take(head, queue, worker, limit, gate=False), due=full)
        return claimed

    def take(self, head: Head, queue: str, worker: str, limit: int, *, gate: bool) -> Claimed:
        """Lease tasks by the statement that fits; a wrong guess costs a round trip, not a turn."""
        tenant = self.only_tenant.get(queue)
        asked: dict[str, Any] = {"limit": limit, "gate": gate, "queue": queue, "worker": worker}
        if tenant is not None:
            name = "claim_onward" if head.partly else "claim"
            claimed = self.run_claim(name, tenant=tenant, **asked, **head.asked())
            if claimed.alone:
                head.learn(claimed, limit, gate=gate)
                return claimed
        claimed = self.run_claim("claim_rotating", **asked, **head.asked())
        head.learn(claimed, limit, gate=gate)
        self.remember(queue, claimed)
        return claimed

    def remember(self, queue: str, claimed: Claimed) -> None:
        if not claimed.alone:
            self.only_tenant.pop(queue, None)
        elif claimed.leases:
            self.only_tenant[queue] = claimed.leases[0].tenant
        if any(lease.token % PRUNE_EVERY == 0 for lease in claimed.leases):
            self.run("prune_turns", queue=queue)

    def heartbeat(self, lease: Lease, details: str | None) -> Lease | None:
        data = None if details is None else f'{{"details":{details}}}'
        [row] = self.run("heartbeat", seq=lease.seq, token=lease.token, details=details, data=data)
        if not row["live"]:
            return None
        if row["deadline"] is None:
            return lease._replace(renewed=False)
        return lease._replace(
            deadline=rows.utc(row["deadline"]),
            seconds_left=row["remaining"].total_seconds(),
            details_text=row["details"],
            renewed=True,
        )

    def complete(self, finishes: Sequence[Finish]) -> set[int]:
        answer = self.run("complete", **columns.of_finishes(finishes))
        return {row["token"] for row in answer}

    def fail(self, failures: Sequence[Failure]) -> set[int]:
        answer = self.run("fail", **columns.of_failures(failures))
        for row in answer:
            self.announce(rows.happened([row], row["queue"]))
        return {row["token"] for row in answer}

    def release(self, leases: Sequence[Lease]) -> set[int]:
        answer = self.run(
            "release",
            seqs=[lease.seq for lease in leases],
            tokens=[lease.token for lease in leases],
            since=[lease.visible_since for lease in leases],
        )
        for name in {lease.queue for lease in leases} & self.heads.keys():
            self.heads[name].forget()  # they are visible again where we began
        return {row["token"] for row in answer}

    def settle(self, queue: str, *, limit: int = BATCH) -> int:
        return self.settle_behind(self.head_of(queue), queue, limit)

    def settle_behind(self, head: Head, queue: str, limit: int) -> int:
        answer = self.run("settle", queue=queue, limit=limit, due_from=head.bounds.due_from)
        if answer:
            head.settled(min(rows.utc(row["at"]) for row in answer))
        self.announce(rows.happened(answer, queue))
        return len(answer)

    def adopt(self, queue: str, worker: str) -> list[TaskRecord]:
        data = json_text({"adopted_by": worker})
        answer = self.run("adopt", queue=queue, worker=worker, data=data)
        self.announce(rows.happened(answer, queue))
        return [rows.record(row) for row in answer]

    def redrive_held(
        self, queue: str, tenant: str, ids: Sequence[str], slots: Slots | None, **why: Unpack[Why]
    ) -> dict[str, str | None]:
        data = json_text(why)
        verdicts: dict[str, str | None] = {}
        while ids:
            answer = self.redrive_batch(queue, ids, slots, tenant=tenant, data=data)
            found = [row for row in answer if row["state"] is not None]
            told = {row["id"]: rows.skipped(row) for row in found if not row["again"]}
            slots = slots and slots.since(self.now()).after(list(told.values()).count(None))
            verdicts |= told
            ids = [row["id"] for row in found if row["again"]]
        return verdicts

    def redrive_batch(
        self, queue: str, ids: Sequence[str], slots: Slots | None, **asked: str
    ) -> list[Row]:
        some = {
            "ids": ids,
            "lives": [columns.life_in(id) for id in ids],
            "first_at": slots and slots.first_at,
            "gap_us": slots.gap // columns.MICROSECOND if slots else 0,
        }

        def guarded() -> list[Row]:
            with transaction.atomic(using=self.using):
                return self.run("redrive", queue=queue, **asked, **some)

        for _ in range(KEY_REPEATS):
            try:
                answer = self.repeated(guarded)
            except IntegrityError:
                continue  # an enqueue took a letter's key at that moment: now it can be seen
            self.announce(rows.happened(answer, queue))
            return answer
        # Not by a caller's transaction that looks at what was: then only one letter is in its way.
        if len(ids) == 1:
            return [{"id": ids[0], "state": State.DEAD, "kind": None, "again": False} | NO_HOLDER]
        answer = []
        for id in ids:
            one = self.redrive_batch(queue, [id], slots, **asked)
            slots = slots and slots.after(sum(row["kind"] == Kind.REDRIVEN for row in one))
            answer += one
        return answer

    def cancel(
        self, queue: str, ids: Sequence[str], *, tenant: str, **why: Unpack[Why]
    ) -> set[str]:
        data = json_text(why)
        lives = [columns.life_in(id) for id in ids]
        asked = {"queue": queue, "tenant": tenant, "ids": list(ids), "lives": lives}
        return {row["id"] for row in self.run("cancel", **asked, data=data)}

    def erase(self, queue: str, life: UUID, **why: Unpack[Why]) -> bool:
        data = json_text(why)
        return bool(self.run("erase", queue=queue, life=life, data=data)[0]["done"])

    def find(self, life: UUID) -> TaskRecord | None:
        # By its number, the place of its first row in the log: a life has no index of its own.
        rows = self.transitions.filter(life=life).order_by("id")
        number = rows.values("id")[:1]
        task = self.tasks.filter(seq=Subquery(number)).first()
        return task.record if task else None

    def held(self, queue: str, id: str, tenant: str) -> TaskRecord | None:
        answer = self.run("held", queue=queue, tenant=tenant, id=id, life=columns.life_in(id))
        numbers = [row["seq"] for row in answer]
        task = self.tasks.filter(seq__in=numbers).first()
        return task.record if task else None

    def depth(self, queue: str) -> Depth:
        [row] = self.run("depth", queue=queue)
        return Depth(**{name: count for name, count in row.items() if name != "oldest"})

    def oldest_visible(self, queue: str) -> timedelta | None:
        oldest: timedelta | None = self.run("depth", queue=queue)[0]["oldest"]
        return oldest

    def outlook(self, queue: str) -> Outlook:
        [answer] = self.run("outlook", queue=queue)
        return Outlook(visible=answer["visible"], due_in=answer["remaining"])

    def prune(self, old: Old, *, behind: int, size: int) -> Pruned:
        [row] = self.run(
            "prune",
            kinds=[str(kind) for kind in old.kinds],
            seconds=old.age.total_seconds(),
            queues=None if old.queues is None else list(old.queues),
            behind=behind,
            size=size,
        )
        return Pruned(rows=row["pruned"], upto=row["upto"], more=row["more"])
