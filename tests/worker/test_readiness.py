"""What a worker looks at before its first claim, and refuses."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import NotSupportedError, connections

from django_leasequeue.worker import readiness
from django_leasequeue.worker.readiness import CannotStartError, refuse_unready
from tests.databases import ALIASES, on_all

pytestmark = on_all


@pytest.mark.parametrize("using", [alias for alias in ALIASES if alias != "sqlite"])
def test_a_server_without_skip_locked_is_refused(
    using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections[using].features, "has_select_for_update_skip_locked", False)

    with pytest.raises(CannotStartError, match="has no SKIP LOCKED"):
        refuse_unready(using)


def test_a_server_that_django_refuses_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise NotSupportedError("14 or later is required")

    monkeypatch.setattr(connections["sqlite"], "ensure_connection", refuse)

    with pytest.raises(CannotStartError, match="14 or later is required"):
        refuse_unready("sqlite")


@pytest.mark.parametrize(("using", "told"), [("default", "$"), ("sqlite", " --database sqlite$")])
def test_tables_that_are_not_up_to_date_are_refused(
    using: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "pending_migrations", lambda using: ["0009_new"])

    with pytest.raises(CannotStartError, match=rf"\(0009_new\).*migrate leasequeue{told}"):
        refuse_unready(using)
