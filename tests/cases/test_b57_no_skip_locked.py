"""B57: whether claims can step over locked rows is known before a worker runs into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connections
from django.db.backends.base import base

from django_leasequeue import Queue
from django_leasequeue.checks import check_servers
from tests.conftest import on_databases
from tests.databases import ALIASES, on_all
from tests.waiting import PATIENCE, in_thread
from tests.worker import tasks
from tests.worker.conftest import Site

MakeQueue = Callable[..., Queue]


@on_databases
def test_eight_claimers_lease_two_hundred_tasks_once_each(make_queue: MakeQueue) -> None:
    """G7"""
    queue = make_queue()
    queue.enqueue_many({"payload": {}, "id": str(number)} for number in range(200))

    def claim_all() -> list[tuple[str, int]]:
        mine = []
        while queue.depth().visible:  # what another claim has locked is not there for this one
            leases = queue.claim(worker="w", limit=3)
            mine += [(lease.id, lease.token) for lease in leases]
        return mine

    claimers = [in_thread(claim_all) for _ in range(8)]
    ids, tokens = zip(*(pair for each in claimers for pair in each.result(PATIENCE)), strict=True)

    assert sorted(ids, key=int) == [str(number) for number in range(200)]
    assert len(set(tokens)) == 200


@pytest.fixture
def old_site(monkeypatch: pytest.MonkeyPatch, fresh_tasks: None, transactional_db: None) -> Site:
    """As it would be on MariaDB 10.5."""
    if "mariadb" not in ALIASES:
        pytest.skip("no MariaDB")
    connection: Any = connections["mariadb"]
    features, name = connection.features, "has_select_for_update_skip_locked"
    monkeypatch.setattr(type(features), name, False)
    monkeypatch.delitem(vars(features), name, raising=False)  # what an earlier test found out
    return Site("mariadb")


@on_all
def test_a_system_check_names_the_version(old_site: Site, settings: Any) -> None:
    version = ".".join(map(str, connections["mariadb"].get_database_version()))
    backend = settings.TASKS[old_site.alias]
    settings.TASKS = {"default": backend}

    [error] = check_servers(None, databases=["mariadb"])

    assert f"MariaDB {version}, has no SKIP LOCKED" in error.msg


@on_all
def test_a_worker_refuses_to_start_in_the_same_words(old_site: Site) -> None:
    old_site.enqueue(tasks.add, 1, 1)

    with pytest.raises(CommandError, match="has no SKIP LOCKED"):
        old_site.drain()

    assert old_site.kinds() == ["enqueued"]


@on_all
def test_so_it_does_on_a_server_too_old_for_django(
    old_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_site.enqueue(tasks.add, 1, 1)
    versions = property(lambda self: (10, 3, 1))
    monkeypatch.setattr(type(connections["mariadb"]), "mysql_version", versions)
    monkeypatch.setattr(base, "RAN_DB_VERSION_CHECK", set())

    with pytest.raises(CommandError, match="or later is required"):
        old_site.drain()
