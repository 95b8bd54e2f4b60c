"""The migrations can be taken back and made again."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from tests.databases import ALIASES, IDS, on_all


def schema(alias: str) -> dict[str, Any]:
    """The queue's tables, each with its columns, indexes and constraints."""
    look = connections[alias].introspection
    with connections[alias].cursor() as cursor:
        return {
            name: (look.get_table_description(cursor, name), look.get_constraints(cursor, name))
            for name in look.table_names(cursor)
            if name.startswith("leasequeue_")
        }


@on_all
@pytest.mark.parametrize("alias", ALIASES, ids=IDS)
def test_what_is_taken_back_is_made_again(alias: str) -> None:
    before = schema(alias)

    for target in ("0003", "0002", "0001", "zero"):
        call_command("migrate", "leasequeue", target, database=alias, verbosity=0)
        left = schema(alias)
        call_command("migrate", "leasequeue", database=alias, verbosity=0)

        assert schema(alias) == before

    assert left == {}
