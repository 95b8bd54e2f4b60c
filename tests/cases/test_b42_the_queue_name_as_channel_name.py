"""B42: a queue's name is never a server's identifier: no 63 bytes, no quoting, no case.

The limit is 100 characters, however many bytes; what is longer is refused at the call.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from django.db import connection

from django_leasequeue import InvalidTaskError, Queue, wakeups
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread, wait_for
from tests.worker.conftest import DJANGO, ROOT, Site, surroundings, wait_until_said

MakeQueue = Callable[..., Queue]

NAMES = ["q" * 57, "q" * 63, "q" * 64, "q" * 100, "é" * 40, "é" * 100, "a b", "a'b", 'a"b', "a;b--"]
PAIRS = [
    ("q" * 63 + "a", "q" * 63 + "b"),
    ("Mail", "mail"),
    ("mail", "mail "),
    ("é", "e\u0301"),
    ("%s", "%%s"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_within_the_limit_works(make_queue: MakeQueue, name: str) -> None:
    """G35"""
    queue = make_queue(name)
    queue.enqueue({}, id="a")

    [lease] = queue.claim(worker="w")
    queue.complete(lease)

    assert (lease.queue, queue.depth().visible) == (name, 0)


@pytest.mark.parametrize("name", ["q" * 101, "é" * 101, "q" * 200])
def test_a_longer_one_is_refused_with_the_limit(make_queue: MakeQueue, name: str) -> None:
    """G36"""
    with pytest.raises(InvalidTaskError, match="at most 100 are allowed"):
        make_queue(name)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_names_that_a_server_might_take_for_one_are_two(
    make_queue: MakeQueue, one: str, other: str
) -> None:
    """G35"""
    make_queue(one).enqueue({}, id="a")

    assert make_queue(other).claim(worker="w") == []
    assert make_queue(one).depth().visible == 1


@pytest.fixture
def never_looking(transactional_db: None) -> Iterator[Callable[..., Queue]]:
    """A maker of queues whose poll interval never helps."""
    if connection.vendor != "postgresql":
        pytest.skip("LISTEN needs PostgreSQL: DATABASE_URL names another database")
    opened: list[Queue] = []

    def make(name: str) -> Queue:
        queue = Queue(name)
        queue.options = replace(queue.options, poll_interval=3600)
        opened.append(queue)
        return queue

    yield make
    for queue in opened:
        queue.close()


def somebody_sleeps() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database AS place ON place.oid = database"
            " WHERE locktype = 'advisory' AND classid = %s AND datname = current_database()",
            [wakeups.LOCK_CLASS],
        )
        return bool(cursor.fetchone()[0])


def wake_up(queue: Queue, sender: Queue) -> str | None:
    """The id of the task that wakes a poll of *queue*."""
    polling = in_thread(lambda: queue.poll(worker="sleeper", wait=300))
    wait_for(lambda: polling.done() or somebody_sleeps())
    sender.enqueue({}, id="a")
    lease = polling.result(PATIENCE)
    return lease.id if lease else None


@pytest.mark.parametrize("name", NAMES)
def test_its_wake_up_is_prompt(never_looking: Callable[..., Queue], name: str) -> None:
    """G28"""
    assert wake_up(never_looking(name), never_looking(name)) == "a"


@pytest.fixture
def elsewhere(postgres: Site) -> Iterator[str]:
    """The database by another address: what is made there lies in a schema of its own."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA elsewhere")
    yield f"{os.environ['DATABASE_URL']}?options=-c%20search_path%3Delsewhere"
    postgres.close()
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA elsewhere CASCADE")


@on_all
def test_in_a_schema_of_its_own_a_worker_is_woken(postgres: Site, elsewhere: str) -> None:
    """G28"""
    there = surroundings() | {"DATABASE_URL": elsewhere}
    enqueue = "from tests.worker.tasks import add; add.enqueue(1, 2)"
    subprocess.run([*DJANGO, "migrate", "leasequeue", "-v0"], check=True, cwd=ROOT, env=there)
    worker = postgres.start("--poll-interval", "600", DATABASE_URL=elsewhere)
    wait_until_said(worker, "started")
    wait_for(somebody_sleeps)

    subprocess.run([*DJANGO, "shell", "-v0", "-c", enqueue], check=True, cwd=ROOT, env=there)

    wait_until_said(worker, "acked queue=work")
    assert postgres.kinds() == []
