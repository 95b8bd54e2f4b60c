"""What can't be stored is refused at the call, by name, alike on every store; nothing is lost."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from django_leasequeue import InvalidTaskError, NewTask, Queue, QueuePolicy

MakeQueue = Callable[..., Queue]

PAYLOADS = [
    ({"a": {"b": ["x", "ok\x00"]}}, "payload at a.b[1]"),
    ({"a": {"\x00": 1}}, r"payload at a.\x00"),
    ({"name": "\ud83d"}, "payload at name"),
    ({"x": [1.0, math.nan]}, "payload at x[1]"),
    ({"x": [1.0, math.inf]}, "payload at x[1]"),
    (-math.inf, "payload is not JSON"),
    ({"v": uuid.uuid4()}, "payload at v is not JSON: UUID"),
    ({"v": decimal.Decimal(1)}, "payload at v is not JSON: Decimal"),
    ({"v": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, "payload at v is not JSON: datetime"),
    ({"v": {1}}, "payload at v is not JSON: set"),
    ({"v": b"x"}, "payload at v is not JSON: bytes"),
    ({"v": {1: 2}}, "payload at v is not JSON: a key of type int"),
    (["x" * (1024 * 1024)], "payload has 1048580 bytes, at most 1048576 are allowed"),
    (10**5000, "payload holds a number"),
]


@pytest.mark.parametrize(("payload", "message"), PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_payload_that_is_not_json_is_refused_by_its_path(
    make_queue: MakeQueue, payload: Any, message: str
) -> None:
    queue = make_queue()

    with pytest.raises(InvalidTaskError) as refused:
        queue.enqueue(payload)

    assert message in str(refused.value)
    assert queue.depth().visible == 0


def test_a_payload_nested_too_deeply_is_refused(make_queue: MakeQueue) -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]

    with pytest.raises(InvalidTaskError, match="more than 200 levels"):
        make_queue().enqueue(nested)


OPTIONS = [
    ({"id": ""}, "id must not be empty"),
    ({"id": "x" * 201}, "id has 201 characters, at most 200 are allowed"),
    ({"id": "a\nb"}, "id must not contain control characters"),
    ({"id": "\udc80"}, "id must not contain control characters or lone surrogates"),
    ({"id": 7}, "id must be a string"),
    ({"tenant": "x" * 101}, "tenant has 101 characters"),
    ({"tenant": "\udc80"}, "tenant must not contain"),
    ({"dedupe_key": ""}, "dedupe_key must not be empty"),
    ({"dedupe_key": "\udc80"}, "dedupe_key must not contain"),
    ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
    ({"max_attempts": True}, "max_attempts must be a whole number"),
    ({"max_attempts": 2**40}, "max_attempts must be a whole number"),
    ({"visibility": 0}, "visibility must be"),
    ({"visibility": math.nan}, "visibility must be"),
    ({"visibility": 1e300}, "visibility must be"),
    ({"visibility": 60, "max_lease": 30}, "max_lease must not be smaller than visibility"),
    ({"priority": 101}, "priority must be a whole number from -100 to 100"),
    ({"priority": -101}, "priority must be a whole number from -100 to 100"),
    ({"priority": 1.5}, "priority must be a whole number"),
    ({"run_after": dt.datetime(2026, 1, 1)}, "run_after must be an aware datetime"),  # noqa: DTZ001
    ({"run_after": "tomorrow"}, "run_after must be a datetime or a timedelta"),
    ({"run_after": dt.timedelta(days=9999)}, "run_after must be at most"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=range(len(OPTIONS)))
def test_a_field_out_of_bounds_is_refused_by_name_and_bound(
    make_queue: MakeQueue, options: dict[str, Any], message: str
) -> None:
    queue = make_queue()

    with pytest.raises(InvalidTaskError) as refused:
        queue.enqueue({}, **options)

    assert message in str(refused.value)
    assert queue.depth().visible == 0


@pytest.mark.parametrize("name", ["", "x" * 101, "a\x00b", "\udc80", None])
def test_a_queue_name_that_cant_be_stored_is_refused(name: Any) -> None:
    with pytest.raises(InvalidTaskError, match="queue"):
        Queue(name)


def test_a_worker_name_that_cant_be_stored_is_refused(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.enqueue({})

    for worker in ("", "x" * 201, "\udc80", "a\tb"):
        with pytest.raises(InvalidTaskError, match="worker"):
            queue.claim(worker=worker)

    assert queue.depth().visible == 1


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"payload": {"x": {1}}}, "item 57: payload at x is not JSON: set"),
        ({"payload": {}, "id": ""}, "item 57: id must not be empty"),
        ({"id": "a"}, "item 57: payload is missing"),
        ({"payload": {}, "colour": "red"}, "item 57: unknown field 'colour'"),
        (NewTask(payload={}, priority=1000), "item 57: priority"),
    ],
)
def test_one_bad_item_in_a_bulk_enqueue_stores_nothing(
    make_queue: MakeQueue, item: Any, message: str
) -> None:
    queue = make_queue()
    items = [{"payload": {"n": number}} for number in range(100)]
    items[57] = item

    with pytest.raises(InvalidTaskError) as refused:
        queue.enqueue_many(items)

    assert str(refused.value).startswith(message)
    assert queue.depth().visible == 0


def test_heartbeat_details_that_cant_be_stored_leave_the_lease_as_it_was(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue()
    queue.enqueue({})
    [lease] = queue.claim(worker="w")

    for details in ({"x": math.nan}, "x" * 70_000, {1}):
        with pytest.raises(InvalidTaskError, match="details"):
            queue.heartbeat(lease, details=details)

    assert queue.heartbeat(lease, details={"page": 3}).details == {"page": 3}


@pytest.mark.parametrize(
    ("asked", "waited"), [(-5, 0), (math.nan, 0), (1e12, 365 * 86_400), ("soon", 0), (12.5, 12.5)]
)
def test_a_wait_out_of_bounds_is_clamped_and_noted_and_the_failure_is_recorded(
    make_queue: MakeQueue, asked: Any, waited: float
) -> None:
    queue = make_queue()
    queue.enqueue({}, id="a")
    [lease] = queue.claim(worker="w")

    queue.fail(lease, "refused", retry_after=asked)

    task = queue.store.held(queue.name, "a", "")
    assert task
    assert (task.visible_at - queue.now()).total_seconds() == pytest.approx(waited)
    noted = "clamped" in (queue.store.history([task.life])[-1].data or "")
    assert noted == (asked != waited)


def test_a_result_that_cant_be_stored_is_replaced_and_the_task_is_done(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue()
    task = queue.enqueue({})
    [lease] = queue.claim(worker="w")

    queue.complete(lease, result={1, 2})

    assert queue.store.history([task.life])[-1].facts["result"]["unstorable_result"] == "set"


@pytest.mark.parametrize(
    "policy",
    [
        {"visibility": 0},
        {"max_attempts": 0},
        {"max_lease": 1},
        {"backoff_base": -1},
        {"backoff_factor": 0.5},
        {"jitter": 2},
        {"on_fatal": "explode"},
        {"backoff_cap": math.inf},
    ],
)
def test_a_policy_out_of_bounds_is_refused_by_name(policy: dict[str, Any]) -> None:
    with pytest.raises(InvalidTaskError, match=next(iter(policy))):
        QueuePolicy(**policy)


def test_text_of_many_kinds_comes_back_as_it_went_in(make_queue: MakeQueue) -> None:
    queue = make_queue()
    payload = {
        "six characters": "\\u0000",
        "emoji": "😀",
        "quotes": "'\"\\;--",
        "big": 2**80,
        "float": 1e308,
        "tiny": 5e-324,
        "nothing": None,
        "": [True, False, {}],
        "%s %(now)s": "%%",
    }

    queue.enqueue(payload, id="Ä 'x' %s", tenant="ß;", dedupe_key="ключ")

    [lease] = queue.claim(worker="wörker 'w'")
    assert lease.payload == payload
    assert (lease.id, lease.tenant, lease.worker) == ("Ä 'x' %s", "ß;", "wörker 'w'")


def test_names_compare_byte_for_byte(make_queue: MakeQueue) -> None:
    queue = make_queue()

    ids = ["a", "A", "a ", "á", "a\N{COMBINING ACUTE ACCENT}"]
    stored = [queue.enqueue({}, id=id, dedupe_key=id) for id in ids]

    assert not any(task.duplicate for task in stored)
    assert {lease.id for lease in queue.claim(worker="w", limit=10)} == set(ids)
