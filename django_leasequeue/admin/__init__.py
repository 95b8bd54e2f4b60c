"""The queue in Django's admin. It shows and asks; what may happen, the queue decides.

To limit who sees whose tasks, override ``tenants_for`` once, in a mixin, and register the three
classes with it in place of these.
"""

from __future__ import annotations

from django.contrib import admin

from ..models import DeadLetter, Task, TaskTransition
from .dead_letters import DeadLetterAdmin
from .log import TransitionAdmin
from .tasks import TaskAdmin

admin.site.register(DeadLetter, DeadLetterAdmin)
admin.site.register(Task, TaskAdmin)
admin.site.register(TaskTransition, TransitionAdmin)

__all__ = ["DeadLetterAdmin", "TaskAdmin", "TransitionAdmin"]
