"""For sites with django-unfold: the queue's pages look like the rest of theirs by it."""

from __future__ import annotations

from typing import ClassVar

from unfold.admin import ModelAdmin


class UnfoldMixin(ModelAdmin):  # type: ignore[misc]  # it has no types
    """Goes behind the queue's own class: ``class Letters(DeadLetterAdmin, UnfoldMixin)``."""

    class Media:
        css: ClassVar = {"all": ["leasequeue/unfold.css"]}
