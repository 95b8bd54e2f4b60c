"""The databases that the tests run on, by alias; those that this machine has."""

from __future__ import annotations

import sys
from typing import Any, Final

import pytest
from django.conf import settings
from django.db.models import Model

NAMES: Final = {"default": "postgres", "sqlite": "sqlite", "mariadb": "mariadb"}
ALIASES: Final = [alias for alias in NAMES if alias in settings.DATABASES]
IDS: Final = [NAMES[alias] for alias in ALIASES]

on_all = pytest.mark.django_db(databases=ALIASES, transaction=True)
"""For tests that see their own commits, in place of one transaction that is rolled back."""


class NamedDatabases:
    """A router that nobody of ours may ask: the queue's database is the one that OPTIONS name.

    A site's own might send it elsewhere: to a replica, or to where the tables aren't.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> None:
        if model._meta.app_label == "leasequeue":
            frame = sys._getframe()
            while frame.f_back and frame.f_globals["__name__"].startswith((__name__, "django.")):
                frame = frame.f_back
            asker = frame.f_globals["__name__"]
            assert not asker.startswith("django_leasequeue."), f"{asker}: of which database?"

    db_for_write = db_for_read
