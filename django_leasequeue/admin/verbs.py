"""What operators do to a selection of tasks: the words for it, and what came of it.

One mechanism for every verb: ask, rehearse, put the selection on record as a batch, go on with it,
and tell how many moved and why the others did not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django import forms
from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Count, Q, QuerySet
from django.utils.translation import (
    gettext,
    gettext_lazy as _,
    ngettext,
    ngettext_lazy,
    pgettext_lazy,
)

from ..batches import ALIVE, BUSY, LEFT, begin, stayed, would_stay
from ..models import Batch, Task, counted
from ..policy import gap_of
from ..transitions import State
from .wording import to_the_second

TOLD_MAX: Final = 10  # tasks that a page or a message names one by one
SECONDS_AT_ONCE: Final = 2.0  # what takes longer goes on on a page of its own
REASONS: Final = {
    BUSY: _("busy"),
    LEFT: _("it has left the queue"),
    ALIVE: _("it is no dead letter any more"),
    "not held": _("it has left the queue"),
}
KEY_HELD: Final = re.compile("key (?P<key>.*) is held by (?P<holder>.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One of the operators' moves.

    Args:
        name: in addresses, in permissions, in batches, and of the page that asks.
        states: of which tasks it is asked.
        told, skipped: what came of it, where all moved and where some stayed.
        then: what comes next, where something does; with a place for the queues.
    """

    name: str
    states: frozenset[State]
    short: Any
    button: Any
    title: Any
    told: Any
    skipped: Any
    then: Any = ""


REDRIVE: Final = Verb(
    name="redrive",
    states=frozenset({State.DEAD}),
    short=_("Redrive"),
    button=_("Redrive"),
    title=_("Redrive dead letters"),
    told=ngettext_lazy("%(moved)d redriven.", "%(moved)d redriven.", "moved"),
    skipped=ngettext_lazy(
        "%(moved)d redriven, %(skipped)d skipped: %(why)s",
        "%(moved)d redriven, %(skipped)d skipped: %(why)s",
        "moved",
    ),
    then=_("Ready now, for the next worker of %s."),
)
CANCEL: Final = Verb(
    name="cancel",
    states=frozenset(State),
    short=pgettext_lazy("tasks", "Cancel"),
    button=_("Cancel task"),
    title=_("Cancel tasks"),
    told=ngettext_lazy("%(moved)d cancelled.", "%(moved)d cancelled.", "moved"),
    skipped=ngettext_lazy(
        "%(moved)d cancelled, %(skipped)d skipped: %(why)s",
        "%(moved)d cancelled, %(skipped)d skipped: %(why)s",
        "moved",
    ),
)
VERBS: Final = {verb.name: verb for verb in (REDRIVE, CANCEL)}


class ReasonForm(forms.Form):
    """What an operator confirms, and why.

    Of a selection a subclass adds ``until``: what came later isn't meant by it.
    """

    reason = forms.CharField(
        label=_("Reason (optional)"),
        help_text=_("Kept on record with your name."),
        required=False,
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
    )


@dataclass(frozen=True, kw_only=True)
class Share:
    """Those of a selection that are of one queue and function, with errors that are alike.

    ``leased`` of them run, ``keyed`` have a dedupe key.
    """

    queue: str
    path: str
    fingerprint: str | None
    count: int
    leased: int
    keyed: int

    @property
    def function(self) -> str:
        return self.path.rpartition(".")[2]


def shares_of(tasks: QuerySet[Task], now: datetime) -> list[Share]:
    """The shares of *tasks*, the largest first."""
    leased = Count("pk", filter=Q(state=State.LEASED, visible_at__gt=now))
    more = {"leased": leased, "keyed": Count("dedupe_key")}
    return [Share(**row) for row in counted(tasks, "queue", "path", "fingerprint", **more)]


def by_queue(shares: Iterable[Share]) -> list[dict[str, object]]:
    counts: Counter[str] = Counter()
    for share in shares:
        counts[share.queue] += share.count
    return [{"queue": queue, "count": counts[queue]} for queue in sorted(counts)]


def rehearse(
    tasks: QuerySet[Task], shares: Sequence[Share], now: datetime, form: ReasonForm
) -> dict[str, Any]:
    """How many would move, how many would stay for their key's sake, and when the last is due."""
    count = sum(share.count for share in shares)
    at_stake = "rate" in form.fields and any(share.keyed for share in shares)  # of a redrive only
    stay = would_stay(tasks, now) if at_stake else 0
    rate = form.cleaned_data.get("rate")
    return {
        "moves": count - stay,
        "stay": stay,
        "last_at": now + max(0, count - stay - 1) * gap_of(rate) if rate else None,
        "shares": shares[:TOLD_MAX],
        "more": len(shares) > TOLD_MAX,
    }


def put_on_record(
    verb: Verb,
    tasks: QuerySet[Any],
    *,
    user: Any,
    reason: str,
    rate: float | None = None,
    chosen: str = "",
    letters: bool = False,
) -> Batch:
    """Begin a batch, and tell Django's own log, which the admin's start page shows."""
    by = who(user)
    how: dict[str, Any] = {"by": by, "reason": reason, "rate": rate, "chosen": chosen}
    batch = begin(tasks, verb=verb.name, letters=letters, **how)
    LogEntry.objects.log_actions(user.pk, [batch], CHANGE, reason, single_object=True)
    return batch


def who(user: Any) -> str:
    """*user*, for the record."""
    name = user.get_username()[:150]  # a site's own may be longer than we keep
    return f"{name} (user {user.pk})"


def reason_text(why: str) -> str:
    """Why a task stayed, in the reader's language where it is one of ours."""
    if found := KEY_HELD.fullmatch(why):
        return gettext("key %(key)s is held by %(holder)s") % found.groupdict()
    return str(REASONS[ALIVE] if why.startswith("not dead: ") else REASONS.get(why, why))


def told(batch: Batch, *, just_now: bool = False) -> str:
    """What came of *batch*, in a sentence or two; what comes next only where it was *just_now*."""
    verb = VERBS[batch.verb]
    counts = {"moved": batch.moved, "skipped": batch.skipped}
    if batch.skipped:
        return str(verb.skipped % (counts | {"why": "; ".join(whys(batch))}))
    moved = verb.told % counts
    if batch.next_at and batch.moved > 1:
        last_at = batch.next_at - gap_of(batch.rate)
        due = gettext("One after the other, until %s.") % to_the_second(last_at)
        return f"{moved} {due}"
    coming = just_now and batch.moved and verb.then
    return f"{moved} {coming % batch.queues}" if coming else str(moved)


def whys(batch: Batch) -> list[str]:
    """Why the first of *batch* stayed, and how many more did."""
    named = [f"{name}: {reason_text(why)}" for name, why, _ in stayed(batch, TOLD_MAX)]
    if (more := batch.skipped - TOLD_MAX) > 0:
        named.append(ngettext("and %(more)s more", "and %(more)s more", more) % {"more": more})
    return named
