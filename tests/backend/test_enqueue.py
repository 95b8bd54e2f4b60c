"""What goes in: through a task's own calls, into the queue, or back to the caller."""

from __future__ import annotations

import asyncio
import enum
import math
import uuid
from collections import UserList
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from django_leasequeue import InvalidTaskError
from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import (
    TASKS_LOGGER,
    InvalidTask,
    TaskResultStatus,
    task_enqueued,
)
from django_leasequeue.results import queued_result
from django_leasequeue.testing.clock import START, FakeClock

from . import tasks


class Colour(enum.StrEnum):
    RED = "red"


def test_a_task_carries_its_call_to_the_worker(backend: LeaseQueueBackend) -> None:
    tasks.send.enqueue("ada", subject="hello")

    [lease] = backend.queue("mail").claim(worker="w1")
    assert lease.path == "tests.backend.tasks.send"
    assert lease.payload == {"args": ["ada"], "kwargs": {"subject": "hello"}}


def test_the_result_id_is_the_life_of_the_task(backend: LeaseQueueBackend) -> None:
    result = tasks.send.enqueue("ada")

    [lease] = backend.queue("mail").claim(worker="w1")
    assert result.id == str(lease.life)


def test_a_fresh_result_says_what_was_stored(backend: LeaseQueueBackend, clock: FakeClock) -> None:
    result = tasks.send.enqueue("ada", subject="hello")

    assert result.status == TaskResultStatus.READY
    assert result.task == tasks.send
    assert (result.args, result.kwargs) == (["ada"], {"subject": "hello"})
    assert result.enqueued_at == clock.now()
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.attempts, result.errors, result.backend) == (0, [], "default")


def test_many_calls_are_stored_in_one_go(backend: LeaseQueueBackend) -> None:
    results = tasks.send.enqueue_many([["ada"], ("bob",), {"to": "eve", "subject": "hello"}])

    leases = backend.queue("mail").claim(worker="w1", limit=10)
    assert [lease.payload for lease in leases] == [
        {"args": ["ada"], "kwargs": {}},
        {"args": ["bob"], "kwargs": {}},
        {"args": [], "kwargs": {"to": "eve", "subject": "hello"}},
    ]
    assert [result.id for result in results] == [str(lease.life) for lease in leases]
    assert {lease.path for lease in leases} == {"tests.backend.tasks.send"}


def test_of_many_calls_with_one_key_the_first_is_stored(backend: LeaseQueueBackend) -> None:
    first, second = tasks.send.using(dedupe_key="k").enqueue_many([["ada"], ["bob"]])

    assert second.id == first.id
    assert second.args == ["ada"]


def test_the_result_of_one_with_a_key_says_what_was_stored(backend: LeaseQueueBackend) -> None:
    """And goes on saying so, whatever becomes of the call that was handed in."""
    send = tasks.send.using(dedupe_key="k")
    calls: list[Any] = [("ada",), ["ada"], {"to": "ada"}]
    for at, call in enumerate(calls):
        [result] = send.using(tenant=str(at)).enqueue_many([call])
        if not isinstance(call, tuple):
            call.clear()

        assert result == backend.get_result(result.id)


@pytest.mark.parametrize("call", ["ada", 7, None, [object()], {"to": math.nan}])
def test_of_many_calls_one_that_can_not_be_stored_is_named_and_none_is(
    backend: LeaseQueueBackend, call: Any
) -> None:
    with pytest.raises(InvalidTaskError, match="item 1"):
        tasks.send.enqueue_many([["ada"], call])
    with pytest.raises(InvalidTask, match="calls must be a list"):
        tasks.send.enqueue_many(7)  # type: ignore[arg-type]

    assert backend.queue("mail").depth().visible == 0


def test_the_results_of_many_are_made_when_they_are_asked_for(
    backend: LeaseQueueBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make one takes longer than to store its task. What was made is kept: it is refreshed."""
    made = []

    def noted(*args: Any) -> Any:
        made.append(args)
        return queued_result(*args)

    monkeypatch.setattr("django_leasequeue.results.queued_result", noted)
    results = tasks.send.enqueue_many([["ada"], ["bob"], ["eve"]])
    ids = [str(lease.life) for lease in backend.queue("mail").claim(worker="w1", limit=3)]

    assert (len(results), made) == (3, [])
    assert [results[-1].id, results[2].args] == [ids[2], ["eve"]]
    assert len(made) == 1
    results[2].refresh()
    assert results[2].status == TaskResultStatus.RUNNING
    assert [result.id for result in results[:2]] == ids[:2]
    with pytest.raises(IndexError):
        results[3]


@pytest.mark.parametrize("uid", [None, "mine", ["not", "hashable"]])
def test_who_listens_is_told_of_each_of_many(backend: LeaseQueueBackend, uid: Any) -> None:
    told = []

    def listen(task_result: Any, **_: Any) -> None:
        told.append(task_result.id)

    task_enqueued.connect(listen, dispatch_uid=uid)
    try:
        results = tasks.send.enqueue_many([["ada"], ["bob"]])
    finally:
        task_enqueued.disconnect(listen, dispatch_uid=uid)
    assert told == [result.id for result in results]


def test_what_nobody_listens_to_is_not_sent(
    backend: LeaseQueueBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But to Django's own receiver, whose log nobody wants."""
    monkeypatch.setattr(task_enqueued, "send_robust", None)

    tasks.send.enqueue("ada")
    tasks.send.enqueue_many([["bob"]])

    assert backend.queue("mail").depth().visible == 2


def test_djangos_log_has_each_of_many_where_the_site_wants_it(
    backend: LeaseQueueBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", logger=TASKS_LOGGER):
        results = tasks.send.enqueue_many([["ada"], ["bob"]])
    lines = [record.getMessage() for record in caplog.records if record.name == TASKS_LOGGER]
    assert len(lines) == 2
    assert all(result.id in line for result, line in zip(results, lines, strict=True))


LATE = 2500  # of which the first two thousand have been sent to the database


def test_of_very_many_each_has_its_own_place(backend: LeaseQueueBackend) -> None:
    results = tasks.send.enqueue_many([str(number)] for number in range(LATE))

    leases = backend.queue("mail").claim(worker="w1", limit=LATE)
    assert [lease.payload["args"] for lease in leases] == [[str(n)] for n in range(LATE)]
    assert [result.id for result in results] == [str(lease.life) for lease in leases]
    assert {result.enqueued_at for result in results} == {lease.enqueued_at for lease in leases}


def test_of_very_many_a_late_one_that_can_not_be_stored_undoes_all(
    backend: LeaseQueueBackend,
) -> None:
    """They are under way while the rest is looked at; what the caller did before stays."""
    using = backend.lease_options.using
    calls = [["ada"] for _ in range(LATE)]
    calls[-1] = [math.nan]  # type: ignore[list-item]
    with transaction.atomic(using=using):
        tasks.send.enqueue("before")
        with pytest.raises(InvalidTaskError, match=f"item {LATE - 1}"):
            tasks.send.enqueue_many(calls)
        tasks.send.enqueue("after")

    leases = backend.queue("mail").claim(worker="w1", limit=10)
    assert [lease.payload["args"] for lease in leases] == [["before"], ["after"]]


def test_many_can_wait_for_their_time(backend: LeaseQueueBackend, clock: FakeClock) -> None:
    late = tasks.send.using(run_after=timedelta(minutes=1))
    results = late.enqueue_many([["ada"], ["bob"]])

    assert [result.task.run_after for result in results] == [START + timedelta(minutes=1)] * 2
    assert backend.queue("mail").claim(worker="w1", limit=2) == []
    clock.advance(60)
    assert len(backend.queue("mail").claim(worker="w1", limit=2)) == 2


def test_calls_that_ask_the_database_are_read_before_anything_is_sent(
    backend: LeaseQueueBackend,
) -> None:
    def calls() -> Iterator[list[str]]:
        for number in range(LATE):
            backend.queue("mail").depth() if number % 500 == 0 else None
            yield [str(number)]

    assert len(tasks.send.enqueue_many(calls())) == LATE


@pytest.mark.parametrize("named", [False, True])
def test_arguments_that_ask_the_database_are_read_before_anything_is_sent(
    backend: LeaseQueueBackend, *, named: bool
) -> None:
    class Page(UserList[str]):
        def __iter__(self) -> Iterator[str]:
            backend.queue("mail").depth()
            return super().__iter__()

    given = [Page(["ada"]) if number % 500 == 499 else str(number) for number in range(LATE)]
    results = tasks.send.enqueue_many({"to": to} if named else [to] for to in given)
    assert [*results[499].args, *results[499].kwargs.values()] == [["ada"]]


async def many_later() -> Any:
    return await tasks.send.aenqueue_many([["ada"], ["bob"]])


def test_many_calls_have_an_async_twin(backend: LeaseQueueBackend) -> None:
    assert len(async_to_sync(many_later)()) == 2


def test_a_tasks_own_limits_bind_it(backend: LeaseQueueBackend) -> None:
    tasks.limited.enqueue()

    [lease] = backend.queue("mail").claim(worker="w1")
    assert (lease.priority, lease.max_attempts) == (7, 2)
    assert lease.deadline - lease.leased_at == timedelta(seconds=10)
    assert lease.max_lease == timedelta(seconds=20)


def test_using_queues_otherwise(backend: LeaseQueueBackend, clock: FakeClock) -> None:
    other = tasks.send.using(tenant="acme", priority=9, queue_name="slow", dedupe_key="k")
    result = other.enqueue("ada")

    [lease] = backend.queue("slow").claim(worker="w1")
    assert (lease.tenant, lease.priority) == ("acme", 9)
    assert result.task == other
    assert tasks.send.tenant == ""


def test_run_after_may_be_a_delay_by_the_databases_clock(
    backend: LeaseQueueBackend, clock: FakeClock
) -> None:
    result = tasks.send.using(run_after=timedelta(seconds=60)).enqueue("ada")

    assert result.task.run_after == START + timedelta(seconds=60)
    assert result.status == TaskResultStatus.READY
    assert backend.queue("mail").depth().scheduled == 1
    clock.advance(60)
    assert backend.queue("mail").depth().visible == 1


def test_a_run_after_that_has_passed_delays_nothing(backend: LeaseQueueBackend) -> None:
    result = tasks.send.using(run_after=START - timedelta(hours=1)).enqueue("ada")

    assert result.task.run_after is None
    assert backend.queue("mail").depth().visible == 1


def test_a_duplicate_answers_with_the_task_that_is_stored(backend: LeaseQueueBackend) -> None:
    announced: list[str] = []

    def announce(task_result: Any, **_: Any) -> None:
        announced.append(task_result.id)

    task_enqueued.connect(announce)
    try:
        first = tasks.send.using(dedupe_key="k").enqueue("ada")
        second = tasks.send.using(dedupe_key="k").enqueue("bob")
    finally:
        task_enqueued.disconnect(announce)

    assert second == first
    assert second.args == ["ada"]
    assert announced == [first.id]


def test_an_enqueue_belongs_to_the_callers_transaction(backend: LeaseQueueBackend) -> None:
    using = backend.lease_options.using
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=using):
        tasks.send.enqueue("ada")
        raise ZeroDivisionError

    assert backend.queue("mail").depth().visible == 0


@pytest.mark.parametrize("backend", ["default"], indirect=True)
def test_an_async_enqueue_belongs_to_the_callers_transaction(backend: LeaseQueueBackend) -> None:
    def rolled_back() -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            async_to_sync(tasks.send.aenqueue)("ada")
            raise ZeroDivisionError

    async def view() -> None:
        await sync_to_async(rolled_back)()
        await asyncio.gather(*(tasks.send_later.aenqueue(str(n)) for n in range(3)))

    async_to_sync(view)()
    assert backend.queue("mail").depth().visible == 3


def test_what_django_makes_json_of_is_taken_as_django_does(backend: LeaseQueueBackend) -> None:
    given: list[Any] = [b"gr\xc3\xbc\xc3\x9fe", (1, 2), UserList([3]), range(2), Colour.RED]
    result = tasks.send.enqueue(*given, subject=MappingProxyType({"a": b"b"}))  # type: ignore[arg-type]

    assert result.args == ["grüße", [1, 2], [3], [0, 1], "red"]
    assert result.kwargs == {"subject": {"a": "b"}}
    assert backend.get_result(result.id) == result


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "args[0]"),
        (uuid.uuid4(), "args[0]"),
        ({"x": [1, {2}]}, "args[0].x[1]"),
        ({"x": [1.0, math.nan]}, "args[0].x[1]"),
        (-math.inf, "args[0]"),
        (b"\xff", "args[0]"),
        ("a\x00b", "args[0]"),
        ({1: 2}, "args[0]"),
        ({(1, 2): 3}, "args[0]"),
    ],
)
@pytest.mark.parametrize("backend", ["default"], indirect=True)
def test_arguments_that_are_not_json_are_refused_at_the_call(
    backend: LeaseQueueBackend, value: object, where: str
) -> None:
    """B04, B06: under our name and under Django's, naming the place; nothing is stored."""
    with transaction.atomic():
        for expected in (InvalidTaskError, TypeError):
            with pytest.raises(expected, match="Unsupported type or value: payload at ") as refused:
                tasks.send.enqueue(value)  # type: ignore[arg-type]
            assert f"payload at {where} is" in str(refused.value)

    assert backend.queue("mail").depth().visible == 0


def test_arguments_that_contain_themselves_are_refused(backend: LeaseQueueBackend) -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(InvalidTaskError, match="more than 200 levels"):
        tasks.send.enqueue(loop)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"priority": 101}, "priority must be a whole number between -100 and 100"),
        ({"run_after": datetime(2026, 1, 1)}, "run_after must be an aware datetime"),  # noqa: DTZ001
        ({"run_after": timedelta(days=99999)}, "run_after must be at most"),
        ({"run_after": "tomorrow"}, "run_after must be a datetime or a timedelta"),
        ({"tenant": "x" * 101}, "tenant has 101 characters, at most 100"),
        ({"dedupe_key": ""}, "dedupe_key must not be empty"),
        ({"queue_name": "a\nb"}, "queue must not contain control characters"),
        ({"queue_name": 7}, "queue must be a string"),
        ({"queue_name": ["mail"]}, "queue must be a string"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"priority": math.nan}, "priority must be a whole number"),
        ({"priority": 10**400}, "priority must be a whole number"),
        ({"tenant": 7}, "tenant must be a string"),
        ({"run_after": datetime.max.replace(tzinfo=UTC)}, "run_after must lie in the years"),
    ],
)
@pytest.mark.parametrize("backend", ["default"], indirect=True)
def test_what_can_not_be_stored_is_refused_by_using(
    backend: LeaseQueueBackend, changes: dict[str, Any], message: str
) -> None:
    for expected in (InvalidTaskError, InvalidTask):
        with pytest.raises(expected, match=message):
            tasks.send.using(**changes)
