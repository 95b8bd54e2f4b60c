"""The queue in Django's admin. It shows and asks; what may happen, the queue decides."""

from __future__ import annotations

from django.contrib import admin

from ..models import DeadLetter
from .dead_letters import DeadLetterAdmin

admin.site.register(DeadLetter, DeadLetterAdmin)

__all__ = ["DeadLetterAdmin"]
