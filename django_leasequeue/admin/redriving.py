"""A selection of dead letters, handed to the queue that knows the rules; and what came of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from django import forms
from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import QuerySet
from django.utils.translation import gettext, gettext_lazy as _

from ..models import DeadLetter
from ..queue import Queue

CHUNK: Final = 10_000  # letters in memory at a time
TOLD_MAX: Final = 10  # letters that a page or a message names one by one


class RedriveForm(forms.Form):
    """What an operator confirms. ``as_of``: whoever died after the question isn't meant by it."""

    reason = forms.CharField(
        label=_("Reason"),
        help_text=_("Kept on record with your name."),
        required=False,
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
    )
    as_of = forms.DateTimeField(widget=forms.HiddenInput)


@dataclass(kw_only=True)
class Outcome:
    """How many letters were redriven, and why the others were not: (letter, reason) each."""

    redriven: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        counts = {"redriven": self.redriven, "skipped": len(self.skipped)}
        if not self.skipped:
            return gettext("%(redriven)d redriven.") % counts
        told = "; ".join(f"{letter}: {why}" for letter, why in self.skipped[:TOLD_MAX])
        if more := len(self.skipped) - TOLD_MAX:
            told += gettext("; and %d more") % more if more > 0 else ""
        return gettext("%(redriven)d redriven, %(skipped)d skipped: ") % counts + told


def redrive(letters: QuerySet[DeadLetter], *, user: Any, reason: str) -> Outcome:
    """Redrive *letters*, any number of them; each chunk is on record as soon as it has moved."""
    outcome = Outcome()
    by = f"{user.pk} {user.get_username()}"
    for chunk in in_chunks(letters):
        moved: list[DeadLetter] = []
        for (queue, tenant), group in grouped(chunk).items():
            batch = Queue(queue, using=letters.db).redrive(
                [letter.task_id for letter in group], tenant=tenant, by=by, reason=reason or None
            )
            moved += [letter for letter in group if letter.task_id not in batch.skipped]
            outcome.redriven += batch.redriven
            outcome.skipped += [(f"{queue}/{id}", why) for id, why in batch.skipped.items()]
        note(moved, user, reason)
    return outcome


def in_chunks(letters: QuerySet[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """*letters* by number: a cursor would stumble over rows that move while it is open."""
    rows = letters.order_by("seq").only("seq", "queue", "tenant", "task_id")
    after = 0
    while chunk := list(rows.filter(seq__gt=after)[:CHUNK]):
        yield chunk
        after = chunk[-1].seq


def grouped(letters: Iterable[DeadLetter]) -> dict[tuple[str, str], list[DeadLetter]]:
    groups = defaultdict(list)
    for letter in letters:
        groups[letter.queue, letter.tenant].append(letter)
    return groups


def note(moved: list[DeadLetter], user: Any, reason: str) -> None:
    """Tell Django's own log, which the admin's start page shows."""
    if moved:
        said = gettext("Redriven: %s") % reason if reason else gettext("Redriven.")
        LogEntry.objects.log_actions(user.pk, moved, CHANGE, said)
