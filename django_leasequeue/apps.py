from __future__ import annotations

import django
from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LeaseQueueConfig(AppConfig):
    """The app, under a short label of its own: its tables are called ``leasequeue_...``."""

    name = "django_leasequeue"
    label = "leasequeue"
    verbose_name = _("Lease queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401, PLC0415

        if django.VERSION >= (6, 0):
            # django.tasks registers its checks when imported; the backport, an app, does it itself.
            from . import compat  # noqa: F401, PLC0415
