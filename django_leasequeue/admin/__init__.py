"""The queue in Django's admin. It shows and asks; what may happen, the queue decides.

To limit who sees whose tasks, override ``tenants_for`` once, in a mixin, and register each class
of PAGES with it in place of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.contrib import admin
from django.db.models import Model

from ..models import Batch, DeadLetter, Overview, Pause, Task, TaskTransition
from .access import ReadOnlyTaskAdmin
from .batches import BatchAdmin
from .dead_letters import DeadLetterAdmin
from .log import TransitionAdmin
from .overview import OverviewAdmin, PauseAdmin
from .tasks import TaskAdmin

PAGES: Final[Mapping[type[Model], type[ReadOnlyTaskAdmin]]] = {
    DeadLetter: DeadLetterAdmin,
    Overview: OverviewAdmin,
    Pause: PauseAdmin,
    Task: TaskAdmin,
    TaskTransition: TransitionAdmin,
    Batch: BatchAdmin,
}
for model, page in PAGES.items():
    admin.site.register(model, page)

__all__ = [
    "PAGES",
    "BatchAdmin",
    "DeadLetterAdmin",
    "OverviewAdmin",
    "PauseAdmin",
    "TaskAdmin",
    "TransitionAdmin",
]
