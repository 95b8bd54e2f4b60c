"""Whatever is thrown at a public parameter: it is taken, or refused by name. Nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from django_leasequeue import ALL, InvalidTaskError, LeaseLostError, Queue, QueuePolicy
from django_leasequeue.lease import Lease
from django_leasequeue.testing.clock import START
from tests.conftest import MakeQueue
from tests.words.test_lease import LEASE

AWKWARD: Final = [
    *("", " ", "a\x00", "\udc80", "\x85", "x" * 101, "x" * 201, "x" * 1001, "%s", "'; --", "😀"),
    *(b"", b"x", None, True, -1, 0, 2**31, 2**63, 10**400, -0.0, 1e-9, 1e300),
    *(float("nan"), float("inf"), float("-inf"), 1j, decimal.Decimal("NaN"), uuid.UUID(int=0)),
    *(dt.timedelta.min, dt.timedelta.max, START.replace(tzinfo=None), dt.date.max),
    *(dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)),
    *(dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-12))), dt.time.max),
    *([], ["a", "\x00"], [[]], {}, {"payload": 1}, {1: 2}, set(), object(), type, ALL, LEASE),
]
junk = st.sampled_from(AWKWARD) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)

CALLS: Final[list[Callable[..., Any]]] = [
    *(Queue.enqueue, Queue.enqueue_many, Queue.claim, Queue.poll, Queue.check, Queue.heartbeat),
    *(Queue.complete, Queue.complete_many, Queue.fail, Queue.release, Queue.adopt, Queue.cancel),
    *(Queue.like, Queue.enqueue_like, Queue.enqueue_alike, Queue.release_many),
    *(
        Queue.cancel_many,
        Queue.pause,
        Queue.resume,
        Queue.paused,
        Queue.erase,
        Queue.dead_letters,
        Queue.redrive,
        Queue.redrive_all,
        Queue.depth,
        Queue.stats,
    ),
]
MANY: Final = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_every_public_call_is_here() -> None:
    """A new one is to be thrown at, too."""
    public = {
        name
        for name, value in vars(Queue).items()
        if inspect.isfunction(value) and f"a{name}" in dir(Queue)
    }

    assert public <= {call.__name__ for call in CALLS}


def arguments(call: Callable[..., Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Junk for its parameters; those that may be left out mostly are."""
    parameters = list(inspect.signature(call).parameters.values())[1:]
    needed = {p.name: junk for p in parameters if p.default is p.empty}
    return st.fixed_dictionaries(
        needed, optional={p.name: junk for p in parameters if p.name not in needed}
    )


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@MANY
@given(data=st.data())
def test_junk_is_taken_or_refused_by_name(
    make_queue: MakeQueue, call: Callable[..., Any], data: st.DataObject
) -> None:
    """G36"""
    queue = make_queue()
    given = data.draw(arguments(call))
    if call is Queue.poll and isinstance(given.get("wait"), int | float):
        given["wait"] = min(given["wait"], 0)  # the clock stands still
    before = queue.depth()

    refused = refusal(lambda: consumed(call(queue, **given)))

    if isinstance(refused, LeaseLostError):
        assert refused.lease is LEASE
    elif refused:
        assert isinstance(refused, InvalidTaskError), refused
        assert queue.depth() == before
        str(refused).encode()


def refusal(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return error
    return None


def consumed(answer: object) -> object:
    return list(answer) if isinstance(answer, Iterator) else answer


@pytest.mark.parametrize("make", [Queue, QueuePolicy, Lease.from_string], ids=lambda m: m.__name__)
@MANY
@given(data=st.data())
def test_so_it_is_where_the_queue_s_values_are_made(
    make: Callable[..., Any], data: st.DataObject
) -> None:
    """G36"""
    left_out = {"using", "clock", "cls"}
    names = [name for name in inspect.signature(make).parameters if name not in left_out]
    optional = set(names) - {"name", "text", "now"}
    given = data.draw(
        st.fixed_dictionaries(
            {name: junk for name in names if name not in optional},
            optional=dict.fromkeys(optional, junk),
        )
    )

    refused = refusal(lambda: make(**given))

    assert refused is None or isinstance(refused, InvalidTaskError)
    str(refused).encode()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda queue: queue.redrive(5), "ids must be a list or another iterable, not a int"),
        (lambda queue: queue.enqueue_many(None), "tasks must be a list"),
        (lambda queue: list(queue.enqueue_alike(queue.like({"payload": 1}), 5)), "payloads must"),
        (lambda queue: queue.complete_many([5]), "finished must hold pairs"),
        (lambda queue: queue.release_many(LEASE), "lease must be a Lease"),
        (lambda queue: queue.enqueue_like({}, 1), "like must be what Queue.like"),
        (lambda queue: Queue("a", using=5), "using must be an alias"),  # type: ignore[arg-type]
        (lambda queue: Queue("a", clock=5), "clock must be a clock"),  # type: ignore[arg-type]
        (lambda queue: LEASE.to_string(using=5), "using must be an alias"),  # type: ignore[arg-type]
        (lambda queue: Lease.from_string("", now=dt.datetime(1, 1, 1)), "now must be"),  # noqa: DTZ001
    ],
    ids=range(10),
)
def test_a_value_of_another_type_is_refused_by_name(
    make_queue: MakeQueue, call: Callable[[Any], Any], words: str
) -> None:
    """G36"""
    with pytest.raises(InvalidTaskError, match=words):
        call(make_queue())
