"""The databases that the tests run on, by alias; those that this machine has."""

from __future__ import annotations

from typing import Final

import pytest
from django.conf import settings

NAMES: Final = {"default": "postgres", "sqlite": "sqlite", "mariadb": "mariadb"}
ALIASES: Final = [alias for alias in NAMES if alias in settings.DATABASES]
IDS: Final = [NAMES[alias] for alias in ALIASES]

on_all = pytest.mark.django_db(databases=ALIASES, transaction=True)
"""For tests that see their own commits, in place of one transaction that is rolled back."""
