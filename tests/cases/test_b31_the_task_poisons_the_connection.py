"""B31: what a task does to its database session must not reach the bookkeeping or the next task."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import connections

from tests.databases import on_all
from tests.waiting import wait_for
from tests.worker import tasks
from tests.worker.conftest import Site, sessions

pytestmark = on_all


POISONS = ["atomic", "open atomic", "autocommit", "broken", "BEGIN"]
SETTINGS = ["SET statement_timeout = 1", "SET search_path = nowhere"]


@pytest.fixture(autouse=True)
def kept_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that outlive the task: closed ones can't be poisoned."""
    for config in connections.settings.values():
        monkeypatch.setitem(config, "CONN_MAX_AGE", None)


@pytest.mark.parametrize("how", POISONS)
def test_the_failure_is_recorded_as_the_task_raised_it_and_the_next_task_works(
    site: Site, how: str
) -> None:
    """G41"""
    poisonous = site.enqueue(tasks.poison, how)
    following = site.enqueue(tasks.count_groups)

    site.drain()

    poisonous.refresh()
    following.refresh()
    assert "its own error" in poisonous.errors[0].traceback
    assert following.return_value == 0
    assert not Group.objects.using(site.using).exists()


@pytest.mark.parametrize("how", SETTINGS)
def test_settings_of_a_session_go_with_it(postgres: Site, how: str) -> None:
    """G41"""
    postgres.enqueue(tasks.poison, how)
    following = postgres.enqueue(tasks.count_groups)

    postgres.drain()

    following.refresh()
    assert following.return_value == 0


def test_between_tasks_no_session_is_idle_in_a_transaction(postgres: Site) -> None:
    """G41"""
    with postgres.worker():
        for how in POISONS:
            postgres.enqueue(tasks.poison, how)
        wait_for(lambda: postgres.kinds().count("dead") == len(POISONS))

        # One that was left behind would stay; the queue's own moves pass.
        wait_for(lambda: sessions("idle in transaction%") == 0)
