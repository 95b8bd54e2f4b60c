"""A killed server loses nothing that was committed, and no token is ever given out again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import environ
import pytest
from django.core.management import call_command
from django.db import connections

from django_leasequeue import Lease, Queue, QueueUnavailableError
from example_project import devdb

ALIAS = "private"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[devdb.Cluster]:
    """A PostgreSQL of the test's own, durable, under the alias ``private``."""
    try:
        cluster = devdb.start(tmp_path, keep=True)
    except devdb.DevDBError as error:
        pytest.skip(f"no PostgreSQL can be started here: {error}")
    defaults = connections["default"].settings_dict
    connections.settings[ALIAS] = (
        defaults | {"OPTIONS": {}} | environ.Env.db_url_config(cluster.url)
    )
    yield cluster
    connections[ALIAS].close()
    del connections.settings[ALIAS]
    del connections[ALIAS]
    cluster.close()
    shutil.rmtree((tmp_path / ".devdb").resolve(), ignore_errors=True)


def claim_all(queue: Queue) -> list[Lease]:
    return queue.claim(worker="w", limit=100)


def kill(server: devdb.Cluster) -> None:
    assert server.process
    server.process.kill()
    server.process.wait()
    connections[ALIAS].close()  # its session may outlive the server by a moment, and still answer


def test_a_killed_server_comes_back_with_every_task_and_larger_tokens(
    server: devdb.Cluster, django_db_blocker: pytest.FixtureRequest
) -> None:
    """G1, G10"""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        call_command("migrate", "leasequeue", database=ALIAS, verbosity=0)
        queue = Queue("emails", using=ALIAS)
        queue.enqueue_many({"payload": {}, "id": str(n), "visibility": 0.001} for n in range(10))
        before = claim_all(queue)

        kill(server)
        with pytest.raises(QueueUnavailableError):
            queue.enqueue({})
        server.start()

        after = claim_all(queue)
        assert {lease.id for lease in after} == {lease.id for lease in before}
        assert {lease.attempt for lease in after} == {2}
        assert min(lease.token for lease in after) > max(lease.token for lease in before)
