"""The store for databases without a store of their own: the moves of ``folding`` through the ORM.

SQLite has one writer at a time: a transaction holds the whole database, and there are no rows to
lock.

MariaDB and MySQL lock the rows that a statement reads, not those that it finds: what passes by a
row on its way locks it, too, or waits for it. So rows are locked one at a time by a unique key, or
along an index that leads to nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, OperationalError, connections, transaction
from django.db.models import Count, F, Min, Q, QuerySet

from ..lease import Lease
from ..models import Effect, Task, TaskTransition, Turn, column, dead_at
from ..records import Admitted, Depth, EnqueuedTask, Outlook
from ..transitions import NOTHING, TRANSITION, Kind, State, TaskRecord, Transition, as_of
from . import pauses, pruning
from .base import Old, Pruned, move
from .database import REPEATS_MAX, DatabaseStore
from .drivers import CONFLICTS, DUPLICATE_KEY, number
from .folding import FoldingStore
from .mending import derived, row_of

TURNS_KEPT: Final = 1000  # claims in flight may still write places that they read this long ago
READ_COMMITTED: Final = "read committed"
BEAT_WAIT_MS: Final = 100  # how long a heartbeat waits for another writer of a SQLite database
WRITTEN_ANEW: Final = (
    *("state", "visible_at", "attempt", "token", "worker"),
    *("leased_at", "details", "last_error"),
)


class TakenMeanwhile(Exception):
    """Another transaction has stored the same id or dedupe key."""


class PortableStore(DatabaseStore, FoldingStore):
    """The tasks of one database that Django knows."""

    @property
    def on_mysql(self) -> bool:
        """Whether this is MariaDB or MySQL: Django has one word for both."""
        return connections[self.using].vendor == "mysql"

    def now(self) -> datetime:
        if self.clock:
            return self.clock.now()
        connection = connections[self.using]
        if connection.vendor == "sqlite":
            # The database runs inside this process; its own functions know milliseconds only.
            return datetime.now(UTC)  # noqa: TID251
        with connection.cursor() as cursor:
            cursor.execute("SELECT UTC_TIMESTAMP(6)")
            moment: datetime = cursor.fetchone()[0]
        return moment.replace(tzinfo=UTC)

    @contextmanager
    def moving(self) -> Iterator[datetime]:
        self.read_what_is_committed()
        self.begin_without_autocommit()
        with super().moving() as now:
            yield now

    def begin_without_autocommit(self) -> None:
        """On SQLite, the site's transaction, which would end with the move's savepoint.

        The driver begins one before it writes, and not before it takes a savepoint.
        """
        connection: Any = connections[self.using]
        if connection.vendor != "sqlite" or connection.get_autocommit():
            return
        if not connection.connection.in_transaction:
            connection._start_transaction_under_autocommit()

    def read_what_is_committed(self) -> None:
        """On MariaDB and MySQL, see to the isolation of the move that follows.

        REPEATABLE READ, a server's default, would lock the gaps between rows as well. Django asks
        for READ COMMITTED unless a site's settings name another one.
        """
        connection = connections[self.using]
        if not self.on_mysql or not connection.get_autocommit():
            return
        connection.close_if_health_check_failed()
        connection.ensure_connection()
        if connection.isolation_level != READ_COMMITTED:  # type: ignore[attr-defined]
            # By the driver's own cursor: it is for the next transaction, and alters no session.
            with connection.wrap_database_errors, connection.connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def lost_a_conflict(self, error: OperationalError) -> bool:
        return self.on_mysql and number(error) in CONFLICTS

    def log(self, transition: Transition) -> Transition:
        names = (name for name in TRANSITION if name != "position")
        row = TaskTransition(**{column(name): getattr(transition, name) for name in names})
        row.save_base(using=self.using, force_insert=True)
        if transition.kind is not Kind.LEASED:
            return replace(transition, position=row.id)
        # The position of a row is known once it is there, so that the token comes after it. Nobody
        # sees the row without: it is not committed before the move.
        self.transitions.filter(pk=row.id).update(token=row.id)
        return replace(transition, position=row.id, token=row.id)

    def rewrite(self, rows: Sequence[Transition]) -> None:
        for row in rows:
            self.transitions.filter(pk=row.position).update(payload=row.payload, data=row.data)
        effects = Effect.objects.using(self.using).filter(life__in={row.life for row in rows})
        effects.filter(result__isnull=False).update(result=NOTHING)

    def project(self, before: TaskRecord | None, after: TaskRecord | None, now: datetime) -> None:
        if before and after:
            erased = ("payload",) if after.payload != before.payload else ()
            written = {name: getattr(after, name) for name in (*WRITTEN_ANEW, *erased)}
            self.tasks.filter(seq=after.seq).update(**written, **derived(after, now))
        elif after:
            row = Task(**row_of(after, now))
            row.save_base(using=self.using, force_insert=True)
        elif before:
            self.tasks.filter(seq=before.seq).delete()

    def enqueue_one(self, queue: str, task: Admitted, now: datetime) -> EnqueuedTask:
        for _ in range(REPEATS_MAX if self.on_mysql else 0):
            with suppress(TakenMeanwhile), self.seeing_who_was_faster():
                return super().enqueue_one(queue, task, now)
        return super().enqueue_one(queue, task, now)

    def redrive_one(
        self, seen: TaskRecord, now: datetime, visible_at: datetime, **facts: str | None
    ) -> str | None:
        if not self.on_mysql:
            return super().redrive_one(seen, now, visible_at, **facts)
        with suppress(TakenMeanwhile), self.seeing_who_was_faster():
            return super().redrive_one(seen, now, visible_at, **facts)
        return "busy"  # an enqueue has just taken the letter's key

    @contextmanager
    def seeing_who_was_faster(self) -> Iterator[None]:
        """Undo what is done inside where somebody has stored its id or key since we looked."""
        try:
            with transaction.atomic(using=self.using):
                yield
        except IntegrityError as error:
            if number(error) != DUPLICATE_KEY:
                raise
            raise TakenMeanwhile from error

    def look(self, **match: Any) -> list[TaskRecord]:
        return [row.record for row in self.tasks.filter(**lookups(match)).order_by("seq")]

    def lock(self, *, wait: bool = True, **match: Any) -> list[TaskRecord]:
        if not self.on_mysql:
            return self.look(**match)
        rows = self.tasks.filter(**lookups(match))
        if "id" in match or "live_key" in match:
            # Waits for who is about to store it, too.
            return [row.record for row in self.for_update(rows, wait=wait)]
        numbers = list(rows.order_by("seq").values_list("seq", flat=True))
        one_by_one = (self.for_update(rows.filter(seq=seq), wait=wait) for seq in numbers)
        return [row.record for found in one_by_one for row in found]

    def lock_unless_running(self, now: datetime, **match: Any) -> list[TaskRecord]:
        connection = connections[self.using]
        # A look that is older than the statement might find a task that has left.
        if self.on_mysql and connection.isolation_level == READ_COMMITTED:  # type: ignore[attr-defined]
            found = self.look(**match)
            if found and all(as_of(task, now).state is State.LEASED for task in found):
                return found
        return self.lock(**match)

    def for_update(self, rows: QuerySet[Task], *, wait: bool) -> QuerySet[Task]:
        return rows.select_for_update(skip_locked=not wait)

    def unlocked(self, rows: QuerySet[Task], index: str) -> list[TaskRecord]:
        """The *rows* that nobody has locked, locked; *index* has them in their order."""
        if not self.on_mysql:
            return [row.record for row in rows]
        wanted = self.for_update(rows, wait=False)
        sql, parameters = wanted.query.get_compiler(self.using).as_sql()
        table = "FROM `leasequeue_task`"
        sql = sql.replace(table, f"{table} FORCE INDEX ({index})", 1)
        return [row.record for row in self.tasks.raw(sql, parameters)]

    def due(self, queue: str, now: datetime, limit: int) -> list[TaskRecord]:
        late = self.tasks.filter(queue=queue, lane="later", visible_at__lte=now)
        rows = late.order_by("visible_at", "seq")[:limit]
        return self.unlocked(rows, "leasequeue_task_later")

    def head(self, queue: str, tenant: str, now: datetime) -> TaskRecord | None:
        visible = self.tasks.filter(queue=queue, lane="now", tenant=tenant)
        rows = visible.order_by("-priority", "visible_at", "seq")[:1]
        return next(iter(self.unlocked(rows, "leasequeue_task_now")), None)

    def next_tenant(
        self, queue: str, now: datetime, *, after: str | None, last: str | None
    ) -> str | None:
        visible = self.tasks.filter(queue=queue, lane="now")
        if after is not None:
            visible = visible.filter(tenant__gt=after)
        if last is not None:
            visible = visible.filter(tenant__lte=last)
        return visible.order_by("tenant").values_list("tenant", flat=True).first()

    def turn(self, queue: str) -> str | None:
        place = self.newest_turn(queue)
        return place.tenant if place else None

    def newest_turn(self, queue: str) -> Turn | None:
        places = Turn.objects.using(self.using).filter(queue=queue)
        return places.order_by("-stamp", "-token").first()

    def take_turn(self, queue: str, tenant: str, token: int) -> None:
        place = self.newest_turn(queue)
        if place and place.tenant == tenant:
            return  # a queue with one tenant writes a single row, once in its life
        turns, stamp = Turn.objects.using(self.using), place.stamp + 1 if place else 1
        turns.create(queue=queue, stamp=stamp, token=token, tenant=tenant)
        turns.filter(queue=queue, stamp__lt=stamp - TURNS_KEPT).delete()

    def may_claim(self, queue: str) -> bool:
        return pauses.may_claim(self.using, queue)

    def heartbeat(self, lease: Lease, details: str | None) -> Lease | None:
        try:
            with self.impatient():
                return super().heartbeat(lease, details)
        except OperationalError as error:
            if not getattr(error.__cause__, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                raise
            return lease._replace(renewed=False)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """On SQLite, don't wait for another writer: it may be the task's own transaction."""
        if connections[self.using].vendor != "sqlite":
            yield
            return
        with connections[self.using].cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout")
            patience = cursor.fetchone()[0]
            cursor.execute(f"PRAGMA busy_timeout = {BEAT_WAIT_MS}")
            try:
                yield
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {patience}")

    def depth(self, queue: str) -> Depth:
        at = self.now()
        counts = self.tasks.filter(queue=queue).aggregate(
            visible=Count("seq", visible(at)),
            scheduled=Count("seq", Q(state=State.READY, visible_at__gt=at)),
            leased=Count("seq", Q(state=State.LEASED, visible_at__gt=at)),
            dead=Count("seq", dead_at(at)),
        )
        return Depth(**counts)

    def oldest_visible(self, queue: str) -> timedelta | None:
        at = self.now()
        since = self.tasks.filter(visible(at), queue=queue).aggregate(at=Min("visible_at"))["at"]
        return at - since if since else None

    def outlook(self, queue: str) -> Outlook:
        at = self.now()
        later = self.tasks.filter(queue=queue, lane="later")
        following = later.filter(visible_at__gt=at).aggregate(at=Min("visible_at"))["at"]
        visible = self.tasks.filter(queue=queue, lane="now").exists()
        return Outlook(
            visible=visible or later.filter(visible_at__lte=at).exists(),
            due_in=following - at if following else None,
        )

    @move
    def prune(self, old: Old, *, behind: int, size: int) -> Pruned:
        with self.moving() as now:
            return pruning.Batch(using=self.using, asked=old, now=now).prune(behind, size)


def visible(at: datetime) -> Q:
    """The tasks that may be claimed at an instant, whether or not it is written down."""
    due = Q(visible_at__lte=at)
    return due & (Q(state=State.READY) | Q(state=State.LEASED, attempt__lt=F("max_attempts")))


def lookups(match: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a task record and what they have to be, as the ORM spells it."""
    return {
        column(name) + ("__in" if isinstance(wanted, set) else ""): wanted
        for name, wanted in match.items()
    }
