"""What operators do to a selection of tasks: the words for it, the queue's move, what came of it.

One mechanism for every verb: ask, hand the selection to the queue that knows the rules, and tell
how many moved and why the others did not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django import forms
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext, gettext_lazy as _

from ..models import Task
from ..queue import Queue
from ..stores.base import BATCH
from ..transitions import State

CHUNK: Final = 10_000  # tasks in memory at a time
TOLD_MAX: Final = 10  # tasks that a page or a message names one by one
LEFT: Final = _("it has left the queue")


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One of the operators' moves.

    Args:
        name: in addresses, in permissions, and of the page that asks.
        states: of which tasks it is asked.
        move: moves tasks of one queue and tenant; ids of those that stayed, with the reason.
        then: what comes next, where something does; with a place for the queues.
    """

    name: str
    states: frozenset[State]
    move: Callable[..., Mapping[str, str]]
    button: Any
    title: Any
    done: Any
    told: Any
    then: Any = ""


def redrive(
    queue: Queue, tasks: Sequence[Task], *, by: str, reason: str | None
) -> Mapping[str, str]:
    ids = [task.task_id for task in tasks]
    return queue.redrive(ids, tenant=tasks[0].tenant, by=by, reason=reason).skipped


def cancel(
    queue: Queue, tasks: Sequence[Task], *, by: str, reason: str | None
) -> Mapping[str, str]:
    skipped: dict[str, str] = {}
    for start in range(0, len(tasks), BATCH):
        skipped |= cancel_batch(queue, tasks[start : start + BATCH], by=by, reason=reason)
    return skipped


def cancel_batch(
    queue: Queue, tasks: Sequence[Task], *, by: str, reason: str | None
) -> dict[str, str]:
    """Cancel those of *tasks* whose rows nobody else has locked.

    The rows are locked by number first: a namesake that came since is not taken for the task, and
    the page waits for no worker that is in the middle of a move.
    """
    rows = Task.objects.using(queue.using).filter(pk__in=[task.pk for task in tasks])
    with transaction.atomic(using=queue.using):
        free = rows.select_for_update(skip_locked=True).order_by("pk")
        locked = set(free.values_list("pk", flat=True))
        held = set(rows.values_list("pk", flat=True))
        ids = [task.task_id for task in tasks if task.pk in locked]
        queue.cancel_many(ids, tenant=tasks[0].tenant, by=by, reason=reason)
    return {
        task.task_id: gettext("busy") if task.pk in held else str(LEFT)
        for task in tasks
        if task.pk not in locked
    }


REDRIVE: Final = Verb(
    name="redrive",
    states=frozenset({State.DEAD}),
    move=redrive,
    button=_("Redrive"),
    title=_("Redrive dead letters"),
    done=_("Redriven"),
    told=_("%d redriven"),
    then=_("Ready now, for the next worker of %s."),
)
CANCEL: Final = Verb(
    name="cancel",
    states=frozenset(State),
    move=cancel,
    button=_("Cancel task"),
    title=_("Cancel tasks"),
    done=_("Cancelled"),
    told=_("%d cancelled"),
)


def reason_field() -> forms.CharField:
    return forms.CharField(
        label=_("Reason (optional)"),
        help_text=_("Kept on record with your name."),
        required=False,
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
    )


class SelectionForm(forms.Form):
    """What an operator confirms. A subclass adds ``until``: what came later isn't meant by it."""

    reason = reason_field()


@dataclass(kw_only=True)
class Outcome:
    """How many tasks moved, and why the others did not: (task, reason) each."""

    verb: Verb
    moved: int = 0
    queues: set[str] = field(default_factory=set)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        moved = self.verb.told % self.moved
        if not self.skipped:
            then = self.verb.then % ", ".join(sorted(self.queues)) if self.queues else ""
            return f"{moved}. {then}".rstrip()
        told = "; ".join(f"{task}: {why}" for task, why in self.skipped[:TOLD_MAX])
        if (more := len(self.skipped) - TOLD_MAX) > 0:
            told += gettext("; and %d more") % more
        counts = {"moved": moved, "skipped": len(self.skipped)}
        return gettext("%(moved)s, %(skipped)d skipped: ") % counts + told


def carry_out(verb: Verb, tasks: QuerySet[Task], *, user: Any, reason: str) -> Outcome:
    """Move *tasks*, any number of them; each chunk is on record as soon as it has moved."""
    outcome = Outcome(verb=verb)
    by = who(user)
    for chunk in in_chunks(tasks):
        moved: list[Task] = []
        for name, group in grouped(chunk).items():
            queue = Queue(name[0], using=tasks.db)
            skipped = verb.move(queue, group, by=by, reason=reason or None)
            gone_on = [task for task in group if task.task_id not in skipped]
            outcome.queues |= {queue.name} if gone_on and verb.then else set()
            moved += gone_on
            outcome.skipped += [(f"{queue.name}/{id}", why) for id, why in skipped.items()]
        outcome.moved += len(moved)
        note(verb, moved, user, reason)
    return outcome


def who(user: Any) -> str:
    """*user*, for the record."""
    return (
        f"{user.get_username()[:150]} (user {user.pk})"  # a site's own may be longer than we keep
    )


def in_chunks(tasks: QuerySet[Task]) -> Iterator[list[Task]]:
    """*tasks* by number: a cursor would stumble over rows that move while it is open."""
    rows = tasks.order_by("seq").only("seq", "queue", "tenant", "task_id")
    after = 0
    while chunk := list(rows.filter(seq__gt=after)[:CHUNK]):
        yield chunk
        after = chunk[-1].seq


def grouped(tasks: Iterable[Task]) -> dict[tuple[str, str], list[Task]]:
    groups = defaultdict(list)
    for task in tasks:
        groups[task.queue, task.tenant].append(task)
    return groups


def note(verb: Verb, moved: list[Task], user: Any, reason: str) -> None:
    """Tell Django's own log, which the admin's start page shows."""
    if moved:
        said = f"{verb.done}: {reason}" if reason else f"{verb.done}."
        LogEntry.objects.log_actions(user.pk, moved, CHANGE, said)
