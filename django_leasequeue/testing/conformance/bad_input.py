"""What can't be stored is refused at the call, by name; nothing is stored, nothing is lost."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import uuid
from collections.abc import Callable
from typing import Any, Final

import pytest

from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.queue import Queue
from django_leasequeue.records import ALL

from ..clock import FakeClock
from .base import Chapter, MakeQueue, bury, claim_ids, claim_one, counts, leased

Call = Callable[[Any], Any]


class Who(str, enum.Enum):  # noqa: UP042  StrEnum prints its value
    """A site's own, whose members print as Who.ADA."""

    ADA = "ada"


class Level(enum.IntEnum):
    """A site's own."""

    HIGH = 7


NOT_JSON: Final = [
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
    (10**5000, "payload is not JSON: an integer of more than 4300 digits"),
]
BEFORE_THE_YEAR_1: Final = dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))
OUT_OF_BOUNDS: Final = [
    ({"id": ""}, "id must not be empty"),
    ({"id": "x" * 201}, "id has 201 characters, at most 200 are allowed"),
    ({"id": "a\nb"}, "id must not contain control characters"),
    ({"id": "\udc80"}, "id must not contain control characters or lone surrogates"),
    ({"id": 7}, "id must be a string"),
    ({"tenant": "x" * 101}, "tenant has 101 characters"),
    ({"tenant": "\udc80"}, "tenant must not contain"),
    ({"tenant": None}, "tenant must be a string"),
    ({"path": "a\x00"}, "path must not contain"),
    ({"path": "x" * 501}, "path has 501 characters, at most 500 are allowed"),
    ({"id": "\x85"}, "id must not contain control characters"),
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
    ({"run_after": dt.timedelta.max}, "run_after must be at most 3660 days away"),
    ({"run_after": dt.datetime.max.replace(tzinfo=dt.UTC)}, "run_after must lie in the years"),
    ({"run_after": BEFORE_THE_YEAR_1}, "run_after must lie in the years 1 to 9998"),
    ({"visibility": 10**400}, "visibility must be"),
    ({"priority": True}, "priority must be a whole number"),
]
OVER: Final = [dt.timedelta.min, dt.timedelta(seconds=-1), dt.datetime.min.replace(tzinfo=dt.UTC)]
CALLS: Final[list[tuple[Call, str]]] = [
    (lambda queue: queue.enqueue_many([5]), "item 0: a NewTask or a mapping is needed, not a int"),
    (lambda queue: queue.enqueue_many("ab"), "item 0: a NewTask or a mapping is needed"),
    (lambda queue: queue.enqueue_many([{5: 6}]), "item 0: unknown field 5"),
    (lambda queue: queue.claim(worker="w", limit=0), "limit must be a whole number from 1"),
    (lambda queue: queue.claim(worker="w", limit=True), "limit must be a whole number from 1"),
    (lambda queue: queue.claim(worker=None), "worker must be a string"),
    (lambda queue: queue.claim(worker=""), "worker must not be empty"),
    (lambda queue: queue.claim(worker="x" * 201), "worker has 201 characters"),
    (lambda queue: queue.claim(worker="a\tb"), "worker must not contain control characters"),
    (lambda queue: queue.poll(worker="\x00"), "worker must not contain"),
    (lambda queue: queue.poll(worker="w", wait=math.nan), "wait must be from 0 to"),
    (lambda queue: queue.poll(worker="w", wait=math.inf), "wait must be from 0 to"),
    (lambda queue: queue.poll(worker="w", wait=-1), "wait must be from 0 to"),
    (lambda queue: queue.poll(worker="w", wait=None), "wait must be from 0 to"),
    (lambda queue: queue.adopt(worker="\udc80"), "worker must not contain"),
    (lambda queue: queue.check("lease"), "lease must be a Lease"),
    (lambda queue: queue.heartbeat(None), "lease must be a Lease"),
    (lambda queue: queue.complete({}), "lease must be a Lease"),
    (lambda queue: queue.complete_many([(7, None)]), "lease must be a Lease"),
    (lambda queue: queue.fail(7, "error"), "lease must be a Lease"),
    (lambda queue: queue.release("lease"), "lease must be a Lease"),
    (lambda queue: queue.cancel("a\x00"), "id must not contain"),
    (lambda queue: queue.cancel(7), "id must be a string"),
    (lambda queue: queue.cancel("x" * 201), "id has 201 characters"),
    (lambda queue: queue.cancel("dead", tenant=ALL), "tenant must be a string"),
    (lambda queue: queue.cancel("dead", by=7), "by must be a string of at most 200 characters"),
    (lambda queue: queue.cancel("dead", by="\x00"), "by must not contain NUL characters"),
    (lambda queue: queue.cancel("dead", reason="\ud800"), "reason must not contain"),
    (lambda queue: queue.cancel("dead", reason="x" * 1001), "reason has 1001 characters"),
    (lambda queue: queue.redrive("dead"), "ids must be a list of ids, not one string"),
    (lambda queue: queue.cancel_many("dead"), "ids must be a list of ids, not one string"),
    (lambda queue: queue.cancel_many(["dead", "\x00"]), "id must not contain"),
    (lambda queue: queue.erase("dead", by=7), "by must be a string"),
    (lambda queue: queue.erase("dead", reason="\x00"), "reason must not contain"),
    (lambda queue: queue.redrive(["dead", "\x00"]), "id must not contain"),
    (lambda queue: queue.redrive(["dead"], tenant=None), "tenant must be a string"),
    (lambda queue: queue.redrive(["dead"], by="\ud800"), "by must not contain"),
    (lambda queue: queue.redrive(["dead"], reason=7), "reason must be a string"),
    (lambda queue: queue.redrive_all(tenant="\x00"), "tenant must not contain"),
    (lambda queue: queue.redrive_all(by="x" * 201), "by has 201 characters"),
    (lambda queue: queue.redrive_all(reason="\x00"), "reason must not contain"),
    (lambda queue: queue.dead_letters(tenant=None), "tenant must be a string"),
    (lambda queue: queue.dead_letters(tenant="x" * 101), "tenant has 101 characters"),
]
BAD_ITEMS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"payload": {"x": {1}}}, "item 57: payload at x is not JSON: set"),
    ({"payload": {}, "id": ""}, "item 57: id must not be empty"),
    ({"id": "a"}, "item 57: payload is missing"),
    ({"payload": {}, "colour": "red"}, "item 57: unknown field 'colour'"),
    ({"payload": {}, "priority": 1000}, "item 57: priority"),
]
WAITS: Final = [(-5, 0), (math.nan, 0), (1e12, 365 * 86_400), ("soon", 0)]


class BadInput(Chapter):
    """Chapter 8 of the guarantees."""

    @pytest.mark.parametrize(("payload", "message"), NOT_JSON, ids=range(len(NOT_JSON)))
    def test_a_payload_that_is_not_json_is_refused_by_its_path(
        self, queue: Queue, payload: Any, message: str
    ) -> None:
        """G36"""
        with pytest.raises(InvalidTaskError) as refused:
            queue.enqueue(payload)

        assert message in str(refused.value)
        assert counts(queue) == (0, 0, 0, 0)

    def test_a_payload_nested_too_deeply_is_refused(self, queue: Queue) -> None:
        """G36"""
        nested: list[Any] = []
        for _ in range(10_000):
            nested = [nested]

        with pytest.raises(InvalidTaskError, match="more than 200 levels"):
            queue.enqueue(nested)

    @pytest.mark.parametrize(("options", "message"), OUT_OF_BOUNDS, ids=range(len(OUT_OF_BOUNDS)))
    def test_a_field_out_of_bounds_is_refused_by_name_and_bound(
        self, queue: Queue, options: dict[str, Any], message: str
    ) -> None:
        """G36"""
        with pytest.raises(InvalidTaskError) as refused:
            queue.enqueue({}, **options)

        assert message in str(refused.value)
        assert counts(queue) == (0, 0, 0, 0)

    @pytest.mark.parametrize("when", OVER, ids=str)
    def test_a_time_that_is_over_is_now(self, queue: Queue, when: Any) -> None:
        """G6"""
        queue.enqueue({}, run_after=when)

        assert counts(queue) == (1, 0, 0, 0)

    @pytest.mark.parametrize(("call", "message"), CALLS, ids=range(len(CALLS)))
    def test_any_call_refuses_what_it_can_not_take_and_changes_nothing(
        self, queue: Queue, call: Call, message: str
    ) -> None:
        """G36"""
        bury(queue, "dead")
        queue.enqueue({}, id="waits")

        with pytest.raises(InvalidTaskError) as refused:
            call(queue)

        assert message in str(refused.value)
        assert counts(queue) == (1, 0, 0, 1)

    def test_a_member_of_an_enumeration_is_its_value(self, queue: Queue) -> None:
        """G35: not what it prints."""
        queue.enqueue({"who": Who.ADA, "level": Level.HIGH}, id=Who.ADA, priority=Level.HIGH)

        lease = claim_one(queue, Who.ADA)

        assert (lease.id, lease.worker, lease.priority) == ("ada", "ada", 7)
        assert lease.payload == {"who": "ada", "level": 7}
        assert type(lease.worker) is str

    @pytest.mark.parametrize("name", ["", "x" * 101, "a\x00b", "\udc80", "\x9f", None])
    def test_a_queue_name_that_cant_be_stored_is_refused(self, make: MakeQueue, name: Any) -> None:
        """G36"""
        with pytest.raises(InvalidTaskError, match="queue"):
            make(name)

    @pytest.mark.parametrize(("item", "message"), BAD_ITEMS, ids=range(len(BAD_ITEMS)))
    def test_one_bad_item_in_a_bulk_enqueue_stores_nothing(
        self, queue: Queue, item: dict[str, Any], message: str
    ) -> None:
        """G3"""
        items: list[dict[str, Any]] = [{"payload": {"n": number}} for number in range(100)]
        items[57] = item

        with pytest.raises(InvalidTaskError) as refused:
            queue.enqueue_many(items)

        assert str(refused.value).startswith(message)
        assert counts(queue) == (0, 0, 0, 0)

    def test_details_that_cant_be_stored_leave_the_lease_as_it_was(self, queue: Queue) -> None:
        """G36"""
        lease = leased(queue)

        for details in ({"x": math.nan}, "x" * 70_000, {1}):
            with pytest.raises(InvalidTaskError, match="details"):
                queue.heartbeat(lease, details=details)

        assert queue.heartbeat(lease).details is None

    @pytest.mark.parametrize(("asked", "waited"), WAITS)
    def test_a_wait_out_of_bounds_is_clamped_and_noted_and_the_failure_is_recorded(
        self, queue: Queue, clock: FakeClock, asked: Any, waited: float
    ) -> None:
        """G37"""
        queue.fail(leased(queue), "refused", retry_after=asked)

        assert counts(queue) == (waited == 0, waited > 0, 0, 0)
        clock.set(waited)
        queue.fail(claim_one(queue), "refused", retryable=False)
        [letter] = queue.dead_letters()
        error = letter.failures[0].error
        assert error
        assert "clamped" in error["note"]

    def test_a_result_that_cant_be_stored_costs_no_task(self, queue: Queue) -> None:
        """G37: it is done, whatever it answered."""
        queue.enqueue({})

        queue.complete(claim_one(queue), result={1, 2})

        assert counts(queue) == (0, 0, 0, 0)

    def test_text_of_many_kinds_comes_back_as_it_went_in(self, queue: Queue) -> None:
        """G35"""
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

        lease = claim_one(queue, "wörker 'w'")
        assert lease.payload == payload
        assert (lease.id, lease.tenant, lease.worker) == ("Ä 'x' %s", "ß;", "wörker 'w'")

    def test_names_compare_byte_for_byte(self, queue: Queue) -> None:
        """G35"""
        ids = ["a", "A", "a ", "á", "a\N{COMBINING ACUTE ACCENT}"]

        stored = [queue.enqueue({}, id=id, dedupe_key=id) for id in ids]

        assert not any(task.duplicate for task in stored)
        assert set(claim_ids(queue, limit=9)) == set(ids)
