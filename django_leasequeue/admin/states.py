"""Where tasks stand by the clock, as a database expression: what ``as_of`` says of a record."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Case, CharField, F, Q, Value, When

from ..models import dead_at
from ..transitions import State


def state_at(now: datetime) -> Case:
    """The state of a task at *now*, whether or not anybody wrote it down."""
    return Case(
        When(dead_at(now), then=Value(State.DEAD)),
        When(Q(state=State.LEASED, visible_at__lte=now), then=Value(State.READY)),
        When(Q(state=State.READY, visible_at__gt=now), then=Value(State.SCHEDULED)),
        default=F("state"),
        output_field=CharField(),
    )
