"""The two tables: the log, and the projection that is its fold.

Nothing here changes a task: the stores do. The managers refuse what would rewrite history.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from django.core.checks import CheckMessage
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from .failure import SUMMARY_CHARACTERS_MAX
from .fields import ExactCharField, Instant
from .transitions import TASK, TRANSITION, Kind, State, TaskRecord, Transition
from .validation import CHARACTERS_MAX

STORED_STATES: Final = (State.READY, State.LEASED, State.DEAD)
COLUMNS: Final = {"id": "task_id", "position": "id"}


class AppendOnlyError(TypeError):
    """The log, and the tasks that follow from it, are not changed through the ORM."""


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise AppendOnlyError("the queue's tables are written by the queue only: use its moves")


def column(name: str) -> str:
    """Of the tables, for the state machine's *name*."""
    return COLUMNS.get(name, name)


def told(row: models.Model, names: Iterable[str]) -> dict[str, Any]:
    """What *row* has by the state machine's *names*."""
    return {name: getattr(row, column(name)) for name in names}


class ReadOnlyQuerySet(models.QuerySet[Any]):
    """A queryset that reads. PostgreSQL refuses the rest for the log on its own account."""

    update = delete = update_or_create = get_or_create = refuse
    create = bulk_create = bulk_update = refuse

    def newest(self) -> int:
        """The highest number; 0 where there is none."""
        return self.aggregate(newest=models.Max("pk"))["newest"] or 0


def counted(rows: models.QuerySet[Any], *names: str, **more: Any) -> models.QuerySet[Any, Any]:
    """How many *rows* have each of the values of *names*, and *more*; the most frequent first."""
    groups: models.QuerySet[Any, Any]
    groups = rows.order_by().values(*names).annotate(count=models.Count("pk"), **more)
    return groups.order_by("-count", *names)


class TaskTransition(models.Model):
    """One row of the append-only log. Its primary key is the log position."""

    id = models.BigAutoField(_("position"), primary_key=True)
    life = models.UUIDField(_("life"))
    kind = ExactCharField(_("kind"), max_length=20, choices=[(k, k) for k in Kind])
    at = Instant(_("at"))
    queue = ExactCharField(_("queue"), max_length=CHARACTERS_MAX["queue"])
    tenant = ExactCharField(_("tenant"), max_length=CHARACTERS_MAX["tenant"], blank=True)
    attempt = models.IntegerField(_("attempt"))
    token = models.BigIntegerField(_("fencing token"), null=True)
    worker = ExactCharField(_("worker"), max_length=CHARACTERS_MAX["worker"], null=True)
    visible_at = Instant(_("visible at"), null=True)
    task_id = ExactCharField(_("id"), max_length=CHARACTERS_MAX["id"], null=True)
    payload = models.TextField(_("payload"), null=True)
    data = models.TextField(_("data"), null=True)

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        db_table = "leasequeue_transition"
        verbose_name = _("transition")
        verbose_name_plural = _("transitions")
        default_permissions = ("view",)
        indexes = [models.Index(fields=["life", "id"], name="leasequeue_transition_life")]

    save = delete = refuse

    def __str__(self) -> str:
        return f"{self.id} {self.kind} {self.queue}"

    @property
    def transition(self) -> Transition:
        """The row as the state machine knows it."""
        return Transition(**told(self, TRANSITION) | {"kind": Kind(self.kind)})


class Task(models.Model):
    """A held task: the fold of its transitions, plus what finds it fast.

    ``live_key``, ``fingerprint`` and ``lane`` follow from the other columns: the dedupe key while
    it binds, what the last error has in common with others of its kind (NULL: none yet), and where
    PostgreSQL looks for the task: 'now' (written down as visible), 'later' (will become due
    by time), NULL (a dead letter).
    """

    seq = models.BigIntegerField(_("number"), primary_key=True)
    life = models.UUIDField(_("life"), unique=True)
    queue = ExactCharField(_("queue"), max_length=CHARACTERS_MAX["queue"])
    tenant = ExactCharField(_("tenant"), max_length=CHARACTERS_MAX["tenant"], blank=True)
    task_id = ExactCharField(_("id"), max_length=CHARACTERS_MAX["id"])
    path = models.TextField(_("task"), blank=True)
    payload = models.TextField(_("payload"))
    priority = models.SmallIntegerField(_("priority"))
    dedupe_key = ExactCharField(_("dedupe key"), max_length=CHARACTERS_MAX["dedupe_key"], null=True)
    live_key = ExactCharField(max_length=CHARACTERS_MAX["dedupe_key"], null=True, editable=False)
    max_attempts = models.IntegerField(_("max attempts"))
    visibility = models.DurationField(_("visibility"))
    max_lease = models.DurationField(_("max lease"))
    state = ExactCharField(_("state"), max_length=10, choices=[(s, s) for s in STORED_STATES])
    enqueued_at = Instant(_("enqueued at"))
    visible_at = Instant(_("visible at"))
    attempt = models.IntegerField(_("attempt"))
    token = models.BigIntegerField(_("fencing token"), null=True)
    worker = ExactCharField(_("worker"), max_length=CHARACTERS_MAX["worker"], null=True)
    leased_at = Instant(_("leased at"), null=True)
    details = models.TextField(_("details"), null=True)
    last_error = models.TextField(_("last error"), blank=True)
    fingerprint = ExactCharField(max_length=SUMMARY_CHARACTERS_MAX, null=True, editable=False)
    lane = ExactCharField(max_length=5, null=True, editable=False)

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        db_table = "leasequeue_task"
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        default_permissions = ("view",)
        permissions = [
            ("redrive_task", _("Can redrive dead letters")),
            ("cancel_task", _("Can cancel tasks")),
            ("view_payload", _("Can view payloads, details and results")),
        ]
        constraints = [
            # The telling column first: begun with (queue, tenant), each would serve the other's
            # look-ups as well in the eyes of a planner without statistics.
            models.UniqueConstraint(
                fields=["task_id", "tenant", "queue"], name="leasequeue_task_id"
            ),
            models.UniqueConstraint(
                fields=["live_key", "tenant", "queue"], name="leasequeue_task_live_key"
            ),
        ]
        indexes = [
            # The two never hold the same row, so that a task costs one entry at a time.
            models.Index(
                F("queue"),
                F("tenant"),
                F("priority").desc(),
                F("visible_at"),
                F("seq"),
                condition=Q(lane="now"),
                name="leasequeue_task_now",
            ),
            models.Index(
                fields=["queue", "visible_at", "seq"],
                condition=Q(lane="later"),
                name="leasequeue_task_later",
            ),
            models.Index(
                fields=["queue", "seq"], condition=Q(state="dead"), name="leasequeue_task_dead"
            ),
            models.Index(
                fields=["visible_at", "seq"], condition=Q(state="dead"), name="leasequeue_task_died"
            ),
        ]

    save = delete = refuse

    def __str__(self) -> str:
        return f"{self.queue}/{self.task_id}"

    @classmethod
    def check(cls, **kwargs: Any) -> list[CheckMessage]:
        """Without the warnings of indexes that MySQL can't have: a migration makes others."""
        foreseen = {"models.W037", "models.W043"}
        return [message for message in super().check(**kwargs) if message.id not in foreseen]

    @property
    def record(self) -> TaskRecord:
        """The row as the state machine knows it."""
        return TaskRecord(**told(self, TASK) | {"state": State(self.state)})


def dead_at(now: datetime) -> Q:
    """Which tasks are dead letters at *now*, on the database's clock.

    A task whose last lease has run out is one, whether or not anybody wrote it down.
    """
    return Q(state=State.DEAD) | died_at(now)


def died_at(now: datetime) -> Q:
    """Which tasks are dead at *now* by the clock alone."""
    # By the lane, too: the index of what comes due by time has few that are past it. A planner that
    # knew the instants would go by the whole table, where most are; so it is told neither end.
    past = {"visible_at__gt": Untold(LONG_AGO), "visible_at__lte": Untold(now)}
    return Q(lane="later", state=State.LEASED, attempt__gte=F("max_attempts"), **past)


LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Untold(models.Func):
    """An instant whose value the planner isn't told."""

    template = "(SELECT %(expressions)s)"

    def __init__(self, moment: Any) -> None:
        super().__init__(models.Value(moment, Instant()), output_field=Instant())


class DeadLetter(Task):
    """A task that stopped, as the admin lists it; ``dead_at`` says which ones do."""

    class Meta:
        proxy = True
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        default_permissions = ("view",)


class Turn(models.Model):
    """Whose turn it was: the rotation between a queue's tenants, newest position last.

    Rows are only inserted, and pruned at the low end, so that claimers share no hot row. Losing
    them all loses nothing but the place in the lap.
    """

    pk = models.CompositePrimaryKey("queue", "stamp", "token")
    queue = ExactCharField(max_length=CHARACTERS_MAX["queue"])
    stamp = models.BigIntegerField()
    token = models.BigIntegerField()
    tenant = ExactCharField(max_length=CHARACTERS_MAX["tenant"], blank=True)

    class Meta:
        db_table = "leasequeue_turn"
        default_permissions = ()


class Effect(models.Model):
    """Something a task does outside the database, named by the task: ``started``, later ``done``.

    Both are committed on their own, so that a delivery finds what the ones before it did.
    """

    pk = models.CompositePrimaryKey("life", "name")
    life = models.UUIDField()
    name = ExactCharField(max_length=CHARACTERS_MAX["effect"])
    token = models.BigIntegerField()
    started_at = Instant()
    done_at = Instant(null=True)
    result = models.TextField(null=True)

    class Meta:
        db_table = "leasequeue_effect"
        default_permissions = ()


class WorkerName(models.Model):
    """A configured worker's name while it is taken, on databases that can't lock a name.

    Whoever holds it moves ``expires_at``; who died lets go of it that way.
    """

    name = ExactCharField(max_length=CHARACTERS_MAX["worker"], primary_key=True)
    holder = models.UUIDField()
    expires_at = Instant()

    class Meta:
        db_table = "leasequeue_worker_name"
        default_permissions = ()


class Tally(models.Model):
    """How often something happened on a queue that the log doesn't tell, or no longer tells.

    ``kind`` is that of transitions which were pruned, or 'refused': calls on lost leases.
    """

    pk = models.CompositePrimaryKey("queue", "kind")
    queue = ExactCharField(max_length=CHARACTERS_MAX["queue"])
    kind = ExactCharField(max_length=20)
    count = models.BigIntegerField()

    class Meta:
        db_table = "leasequeue_tally"
        default_permissions = ()


class Pause(models.Model):
    """A time in which nothing was, or is, claimed from a queue: who began and ended it, and why.

    ``paused_queue`` is the queue's name while it lasts, NULL from then on: so that there is one at
    a time, and a claim finds it in a table of none to a few.
    """

    id = models.BigAutoField(_("number"), primary_key=True)
    queue = ExactCharField(_("queue"), max_length=CHARACTERS_MAX["queue"])
    paused_queue = ExactCharField(max_length=CHARACTERS_MAX["queue"], null=True, editable=False)
    paused_at = Instant(_("paused at"))
    paused_by = ExactCharField(_("paused by"), max_length=CHARACTERS_MAX["by"], null=True)
    reason = ExactCharField(_("reason"), max_length=CHARACTERS_MAX["reason"], null=True)
    resumed_at = Instant(_("resumed at"), null=True)
    resumed_by = ExactCharField(_("resumed by"), max_length=CHARACTERS_MAX["by"], null=True)
    resume_reason = ExactCharField(
        _("reason of the resumption"), max_length=CHARACTERS_MAX["reason"], null=True
    )

    class Meta:
        db_table = "leasequeue_pause"
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        default_permissions = ("view",)
        permissions = [("pause_queue", _("Can pause and resume queues"))]
        constraints = [
            models.UniqueConstraint(fields=["paused_queue"], name="leasequeue_pause_queue")
        ]

    def __str__(self) -> str:
        return f"{self.queue}: {self.paused_at:%Y-%m-%d %H:%M:%S}"


class Overview(Pause):
    """The page of all queues in the admin, which hangs there on a model like any other."""

    class Meta:
        proxy = True
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        default_permissions = ("view",)


class Worker(models.Model):
    """A worker as it last told of itself, for people to look at; nothing else depends on it.

    ``queues`` is a JSON list of names, ``tasks`` one of what runs: see ``registry``.
    """

    name = ExactCharField(max_length=CHARACTERS_MAX["worker"], primary_key=True)
    host = ExactCharField(max_length=255)
    pid = models.IntegerField()
    threads = models.IntegerField()
    queues = models.TextField()
    started_at = Instant()
    seen_at = Instant()
    tasks = models.TextField()

    class Meta:
        db_table = "leasequeue_worker"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.name)


class Batch(models.Model):
    """What an operator did to many tasks at once: who, when, why, to which, and how far it is.

    ``by`` and ``reason`` stand in the log beside each task that moved, too. ``queues`` and
    ``chosen`` are words: what was selected, and by which filters. ``letters`` says that it was dead
    letters: one that somebody has redriven since isn't meant. ``next_at`` is when a redrive at a
    rate has its next task become visible.
    """

    id = models.BigAutoField(primary_key=True)
    verb = ExactCharField(_("what"), max_length=20)
    by = ExactCharField(_("by"), max_length=CHARACTERS_MAX["by"])
    reason = ExactCharField(_("reason"), max_length=CHARACTERS_MAX["reason"], blank=True)
    queues = ExactCharField(_("queues"), max_length=3000, blank=True)
    chosen = ExactCharField(_("selection"), max_length=1000, blank=True)
    letters = models.BooleanField(default=False)
    rate = models.FloatField(_("rate"), null=True)
    at = Instant(_("at"))
    next_at = Instant(null=True)
    done_at = Instant(_("done at"), null=True)
    total = models.IntegerField(_("selected"), default=0)
    moved = models.IntegerField(_("moved"), default=0)
    skipped = models.IntegerField(_("skipped"), default=0)

    class Meta:
        db_table = "leasequeue_batch"
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        default_permissions = ("view",)
        # Every worker asks for the oldest unfinished one, again and again.
        indexes = [models.Index(fields=["done_at", "id"], name="leasequeue_batch_unfinished")]

    def __str__(self) -> str:
        return f"{self.verb} {self.id}"

    @property
    def using(self) -> str:
        """Alias of its tasks' database."""
        return str(self._state.db)

    @property
    def passed(self) -> int:
        """How many of the selected tasks it has dealt with."""
        return self.moved + self.skipped


class BatchItem(models.Model):
    """One task of a batch, by its number; ``outcome`` is why it stayed, empty where it moved.

    ``place`` is the order in which they are dealt with, from 1.
    """

    pk = models.CompositePrimaryKey("batch_id", "place")
    batch_id = models.BigIntegerField()
    place = models.IntegerField()
    seq = models.BigIntegerField()
    outcome = ExactCharField(max_length=500, null=True)

    class Meta:
        db_table = "leasequeue_batch_item"
        default_permissions = ()
