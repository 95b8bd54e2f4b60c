"""The queue in Django's admin. It shows and asks; what may happen, the queue decides.

To limit who sees whose tasks, override ``tenants_for`` once, in a mixin, and register these classes
with it in place of them.
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Batch, DeadLetter, Overview, Pause, Task, TaskTransition
from .batches import BatchAdmin
from .dead_letters import DeadLetterAdmin
from .log import TransitionAdmin
from .overview import OverviewAdmin, PauseAdmin
from .tasks import TaskAdmin

admin.site.register(DeadLetter, DeadLetterAdmin)
admin.site.register(Overview, OverviewAdmin)
admin.site.register(Pause, PauseAdmin)
admin.site.register(Task, TaskAdmin)
admin.site.register(TaskTransition, TransitionAdmin)
admin.site.register(Batch, BatchAdmin)

__all__ = [
    "BatchAdmin",
    "DeadLetterAdmin",
    "OverviewAdmin",
    "PauseAdmin",
    "TaskAdmin",
    "TransitionAdmin",
]
