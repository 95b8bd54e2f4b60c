"""Of tasks that are alike one part is made while the server stores the part before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction
from psycopg.pq import TransactionStatus

from django_leasequeue.models import Task, TaskTransition
from django_leasequeue.records import EnqueuedTask, Part
from django_leasequeue.stores.postgres import PostgresStore, columns
from tests.builders import a_task

SOME = 3 * columns.ROWS_MAX - 1


def status() -> TransactionStatus:
    return TransactionStatus(connection.connection.pgconn.transaction_status)


def payloads(seen: list[TransactionStatus]) -> Iterator[str]:
    for number in range(SOME):
        seen.append(status() if connection.connection else TransactionStatus.IDLE)
        yield str(number)


def flat(parts: Iterable[Part]) -> list[EnqueuedTask]:
    return [task for part in parts for task in part.tasks]


def test_the_server_works_while_the_next_part_is_made(store: PostgresStore) -> None:
    seen: list[TransactionStatus] = []
    list(store.enqueue_alike("q", a_task("x"), payloads(seen)))

    assert seen[-1] is TransactionStatus.ACTIVE
    assert status() is TransactionStatus.IDLE


@pytest.mark.parametrize("debug", [True, False])
def test_they_are_stored_alike_where_each_statement_is_logged(
    store: PostgresStore, settings: Any, *, debug: bool
) -> None:
    settings.DEBUG = debug
    stored = flat(store.enqueue_alike("q", a_task("x", tenant="t"), payloads([])))

    tasks = Task.objects.order_by("seq")
    assert [(task.life, task.task_id, task.tenant) for task in tasks] == [
        (task.life, task.id, task.tenant) for task in stored
    ]
    assert [task.payload for task in tasks] == [str(number) for number in range(SOME)]
    assert TaskTransition.objects.filter(kind="enqueued").count() == SOME


@pytest.mark.parametrize("wait", [None, timedelta(seconds=9)])
def test_each_has_the_answer_and_the_rows_that_it_would_have_had_alone(
    store: PostgresStore, wait: timedelta | None
) -> None:
    of_their_own = {"seq", "id", "life", "task_id"}
    kind = a_task(tenant="t", path="a.b", priority=3, max_attempts=2, run_after=wait)

    [alike] = flat(store.enqueue_alike("q", kind, ["7"]))
    life = a_task().life
    [alone] = store.enqueue("q", [replace(kind, life=life, id=str(life), payload="7")])

    assert alike == replace(alone, life=alike.life, id=alike.id)
    for rows in (Task.objects.order_by("seq"), TaskTransition.objects.order_by("id")):
        one, other = (
            {name: value for name, value in row.items() if name not in of_their_own}
            for row in rows.values()
        )
        assert one == other


def test_large_payloads_are_cut_into_parts_that_the_server_can_take(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "CHARACTERS_MAX", 10)
    texts = ["1234567", "1234", "1", "12345678901234"]
    parts = [batch["payloads"].values for batch in columns.batches(texts)]
    assert parts == [["1234567"], ["1234", "1"], ["12345678901234"]]


def test_where_the_reader_stops_nothing_is_stored(store: PostgresStore) -> None:
    stored = store.enqueue_alike("q", a_task("x"), payloads([]))
    next(stored)
    stored.close()  # type: ignore[attr-defined]

    assert status() is TransactionStatus.IDLE
    assert not Task.objects.exists()


def test_a_session_that_dies_under_way_stores_nothing(store: PostgresStore) -> None:
    def texts() -> Iterator[str]:
        for number, text in enumerate(payloads([])):
            if number == columns.ROWS_MAX + 1:
                kill()
            yield text

    with pytest.raises(OperationalError):
        list(store.enqueue_alike("q", a_task("x"), texts()))
    connection.close()
    assert not Task.objects.exists()


def kill() -> None:
    pid = connection.connection.info.backend_pid
    other = connections["default"].copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    other.close()


def test_none_at_all_is_no_statement(store: PostgresStore, django_assert_num_queries: Any) -> None:
    with transaction.atomic(), django_assert_num_queries(2):  # the savepoint
        assert list(store.enqueue_alike("q", a_task("x"), [])) == []


def test_who_watches_the_connection_may_ask_it(store: PostgresStore) -> None:
    def watch(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        answer = execute(sql, params, many, context)
        if "INSERT" in sql:
            connection.connection.execute("SELECT 1")
        return answer

    with connection.execute_wrapper(watch):
        assert len(flat(store.enqueue_alike("q", a_task("x"), payloads([])))) == SOME
