"""Drift of every kind, planted by hand: ``verify`` names it, ``rebuild`` mends what it can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from django.db import connections, transaction
from django.db.models import QuerySet

from django_leasequeue.audit import rebuild, verify
from django_leasequeue.drift import Drift, Finding, Story
from django_leasequeue.lease import Lease
from django_leasequeue.management.verbs.auditing import line
from django_leasequeue.models import Task, TaskTransition
from django_leasequeue.records import Depth
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.mending import Mending
from django_leasequeue.stores.projection import Stretch
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind
from tests.builders import (
    QUEUE,
    a_claim,
    a_dead_letter,
    a_failure,
    a_finish,
    a_lease,
    a_task,
    cancelled,
    erased,
    redriven,
)
from tests.databases import ALIASES, IDS, on_all
from tests.waiting import PATIENCE, blocked, blocked_sessions, in_thread, wait_for

pytestmark = pytest.mark.parametrize("alias", ALIASES, indirect=True, ids=IDS)
SECRET: Final = '"4711-secret"'
LONG: Final = '"' + "x" * 100 + '"'


@contextmanager
def door(using: str) -> Iterator[None]:
    """The log's guard, held open: what no user can do, and a crooked disk can."""
    connection = connections[using]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT set_config('leasequeue.door', 'open', false)")
        yield
        if connection.vendor == "postgresql":
            cursor.execute("SELECT set_config('leasequeue.door', '', false)")


def log(store: Store, life: Any = None) -> QuerySet[TaskTransition]:
    rows: QuerySet[TaskTransition] = QuerySet(TaskTransition, using=store.using)
    return rows.filter(life=life) if life else rows


def tasks(store: Store) -> QuerySet[Task]:
    return QuerySet(Task, using=store.using)


def found(store: Store, **options: Any) -> list[Finding]:
    return [finding for step in verify(store, **options) for finding in step.findings]


def mended(store: Store, **options: Any) -> list[str]:
    steps = rebuild(store, **options)
    return [finding.mended for step in steps for finding in step.findings]


def rows(store: Store) -> list[dict[str, Any]]:
    return [dict(row) for row in tasks(store).order_by("seq").values()]


def one_of_each(store: Store, clock: FakeClock) -> None:
    """Tasks in every state, with every kind of row behind them, and lives that have left."""
    a_dead_letter(store, "dead", dedupe_key="k", payload=LONG)
    store.complete([a_finish(a_lease(store, "done"))])
    store.fail([a_failure(a_lease(store, "dropped"), Kind.DROPPED)])
    store.release([a_lease(store, "released")])
    a_claim(store, "released")
    store.enqueue(QUEUE, [a_task("released")])
    a_dead_letter(store, "redriven")
    redriven(store, "redriven")
    lease = a_claim(store, "redriven", worker="v")
    store.heartbeat(lease, '{"page":3}')
    store.fail([a_failure(lease, seconds=9)])
    erased(store, a_lease(store, "erased").life)
    cancelled(store, "erased")
    a_lease(store, "lapsing", max_attempts=1, payload=LONG)
    a_lease(store, "adopted", worker="u")
    store.adopt(QUEUE, "u")
    store.enqueue(QUEUE, [a_task("later", run_after=timedelta(hours=1), dedupe_key="k")])
    clock.advance(60)
    store.settle(QUEUE)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_queue_that_was_only_used_has_no_drift(store: Store, clock: FakeClock, size: int) -> None:
    one_of_each(store, clock)

    steps = list(verify(store, size=size))

    assert [finding for step in steps for finding in step.findings] == []
    assert sum(step.tasks for step in steps) == tasks(store).count()
    assert sum(step.rows for step in steps) == log(store).count()
    assert sum(step.lives for step in steps) == log(store).filter(kind="enqueued").count()
    assert steps[-1].done == 1


WRONG: Final[dict[str, Any]] = {
    "life": uuid4(),
    "queue": "other",
    "tenant": "x",
    "task_id": "b",
    "path": "a.b",
    "payload": "1",
    "priority": 7,
    "dedupe_key": "k",
    "max_attempts": 9,
    "visibility": timedelta(seconds=1),
    "max_lease": timedelta(days=1),
    "state": "dead",
    "enqueued_at": FakeClock().now() + timedelta(microseconds=1),
    "visible_at": FakeClock().now() + timedelta(microseconds=1),
    "attempt": 3,
    "token": 1,
    "worker": "other",
    "leased_at": None,
    "details": '"x"',
    "last_error": "x",
    "live_key": "k",
    "lane": "now",
}


def test_it_ends_though_more_comes_than_it_reads(store: Store) -> None:
    for number in range(4):
        store.enqueue(QUEUE, [a_task(str(number))])

    done = 0.0
    for count, step in enumerate(verify(store, size=2)):
        store.enqueue(QUEUE, [a_task(f"{count} {number}") for number in range(5)])
        done = step.done
        assert count < 10

    assert done == 1


def test_a_wrong_column_is_named_and_mended(store: Store) -> None:
    """G63 G64"""
    lease = a_lease(store)
    before = rows(store)
    for column, wrong in WRONG.items():
        tasks(store).update(**{column: wrong})

        [finding] = found(store)

        assert (finding.drift, finding.life) == (Drift.DIFFERS, lease.life)
        assert column.removeprefix("task_") in finding.what
        assert mended(store) == ["rewritten"]
        assert rows(store) == before


def test_what_a_task_was_given_is_not_told(store: Store) -> None:
    a_lease(store, payload=LONG)
    told = ("payload", "details", "last_error")
    tasks(store).update(**dict.fromkeys(told, '"secret"' + LONG))

    [finding] = found(store)

    assert finding.what == "; ".join(f"another {column}" for column in told)


def test_all_of_a_lost_projection_comes_back_bit_for_bit(store: Store, clock: FakeClock) -> None:
    """G33 G64"""
    one_of_each(store, clock)
    before = rows(store)
    tasks(store).delete()

    assert {finding.drift for finding in found(store, size=4)} == {Drift.MISSING}
    assert set(mended(store, size=4)) == {"restored"}

    assert rows(store) == before
    assert found(store) == []


def test_a_task_that_has_left_and_is_still_there_is_taken_away(store: Store) -> None:
    lease = a_lease(store)
    row = tasks(store).get()
    store.complete([a_finish(lease)])
    row.save_base(using=store.using, force_insert=True)

    [finding] = found(store)

    assert (finding.drift, finding.life) == (Drift.EXTRA, lease.life)
    assert "it has left" in finding.what
    assert mended(store) == ["removed"]
    assert rows(store) == []


def test_a_task_that_the_log_does_not_know_is_kept_unless_one_says_so(store: Store) -> None:
    """G64: It may be all that is left of what was enqueued."""
    lease = a_lease(store)
    with door(store.using):
        log(store).delete()

    [finding] = found(store)

    assert (finding.drift, finding.life) == (Drift.EXTRA, lease.life)
    assert "the log knows no task of that number" in finding.what
    assert mended(store) == [""]
    assert len(rows(store)) == 1
    assert mended(store, unlogged=True) == ["removed"]
    assert rows(store) == []


def test_a_task_whose_id_was_given_away_is_not_restored_over_the_other(store: Store) -> None:
    lost = a_lease(store)
    tasks(store).delete()
    store.enqueue(QUEUE, [a_task("a")])
    tasks(store).filter(task_id="b").delete()

    assert mended(store) == [""]
    assert cancelled(store)
    assert mended(store) == ["restored"]

    assert store.find(lost.life) is not None


def append(store: Store, kind: Kind | str, like: TaskTransition, **changes: Any) -> None:
    """A row that no move wrote, behind all others."""
    row = log(store).get(pk=like.pk)
    row.pk, row.kind, row.data = None, kind, changes.pop("data", None)
    for name, value in changes.items():
        setattr(row, name, value)
    row.save_base(using=store.using, force_insert=True)


Rows = list[tuple[Kind | str, dict[str, Any]]]


def illegal(last: TaskTransition) -> dict[str, tuple[Rows, Drift, str]]:
    """What can't follow *last*, the second lease of three: rows, and what is said of them."""
    deadline, token = last.visible_at, last.token
    again = (Kind.RETRIED, {"visible_at": last.at})
    return {
        "two acks": (
            [(Kind.ACKED, {}), (Kind.ACKED, {})],
            Drift.ILLEGAL,
            "acked may not follow a task that is not held",
        ),
        "lapsed without a lease": (
            [(Kind.LAPSED, {"at": deadline}), (Kind.LAPSED, {"at": deadline})],
            Drift.ILLEGAL,
            "lapsed may not follow ready",
        ),
        "enqueued twice": (
            [(Kind.ACKED, {}), (Kind.ENQUEUED, {})],
            Drift.ILLEGAL,
            "enqueued a second time",
        ),
        "no kind": ([("melted", {})], Drift.ILLEGAL, "the melted row can't be read"),
        "no JSON": (
            [(Kind.HEARTBEAT, {"data": "{"})],
            Drift.ILLEGAL,
            "the heartbeat row can't be read",
        ),
        "attempts that jump": (
            [(Kind.RETRIED, {"attempt": 3})],
            Drift.ILLEGAL,
            "retried as attempt 3, after attempt 2",
        ),
        "an ack under another token": (
            [(Kind.ACKED, {"token": 1})],
            Drift.TOKEN,
            f"acked under token 1; the newest is {token}",
        ),
        "an ack after the deadline": (
            [(Kind.ACKED, {"at": deadline})],
            Drift.ILLEGAL,
            f"acked at {deadline}, when the lease was over since {deadline}",
        ),
        "a lapse before the deadline": (
            [(Kind.LAPSED, {})],
            Drift.ILLEGAL,
            f"the lease's deadline is {deadline}",
        ),
        "dead with attempts left": (
            [(Kind.DEAD, {"at": deadline})],
            Drift.ILLEGAL,
            "dead of lapsing after attempt 2 of 3",
        ),
        "a repeated token": (
            [again, (Kind.LEASED, {"attempt": 3})],
            Drift.TOKEN,
            f"token {token} is given out twice",
        ),
        "a falling token": (
            [again, (Kind.LEASED, {"attempt": 3, "token": 1})],
            Drift.TOKEN,
            f"token 1 after token {token}",
        ),
        "a token that is no place in the log": (
            [again, (Kind.LEASED, {"attempt": 3, "token": 10**9})],
            Drift.TOKEN,
            f"token {10**9} of the lease at position",
        ),
        "a last attempt that is retried": (
            [again, (Kind.LEASED, {"attempt": 3, "token": None}), (Kind.RETRIED, {"attempt": 3})],
            Drift.TOKEN,
            f"token None after token {token}",
        ),
    }


def test_what_no_move_writes_into_the_log_is_named(store: Store) -> None:
    expected = {}
    for name in illegal(TaskTransition(at=FakeClock().now(), token=1)):
        store.fail([a_failure(a_lease(store, name))])
        last = log(store, a_claim(store, name).life).order_by("-id")[0]
        planted, drift, what = illegal(last)[name]
        for kind, changes in planted:
            append(store, kind, last, **changes)
        expected[name] = (drift, what)

    first: dict[str, Finding] = {}
    for finding in found(store):
        first.setdefault(finding.id, finding)

    assert {name: each.drift for name, each in first.items()} == {
        name: drift for name, (drift, _) in expected.items()
    }
    for name, (_, what) in expected.items():
        assert what in first[name].what


@pytest.mark.parametrize("kind", [Kind.RETRIED, Kind.LAPSED])
def test_a_task_that_goes_on_after_its_last_attempt_is_named(store: Store, kind: Kind) -> None:
    a_lease(store, max_attempts=1)
    last = log(store).order_by("-id")[0]
    at = last.visible_at if kind is Kind.LAPSED else last.at
    append(store, kind, last, at=at)

    first, *_ = found(store)

    assert f"{kind} after attempt 1 of 1" in first.what


def test_a_life_without_its_beginning_is_named_and_left_alone(store: Store) -> None:
    a_lease(store)
    with door(store.using):
        log(store).filter(kind=Kind.ENQUEUED).delete()
    before = rows(store)

    drifts = [finding.drift for finding in found(store)]

    assert set(drifts) == {Drift.EXTRA, Drift.ILLEGAL}
    assert mended(store, unlogged=True) == ["", ""]
    assert rows(store) == before


def test_a_page_of_the_log_ends_anywhere(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_of_each(store, clock)
    monkeypatch.setattr("django_leasequeue.stores.projection.PAGE_ROWS", 2)

    assert found(store) == []


def test_a_lease_that_was_renewed_very_often_is_one_stretch(store: Store, clock: FakeClock) -> None:
    lease: Lease | None = a_lease(store, max_lease=timedelta(days=1))
    for _ in range(20):
        clock.advance(20)
        assert lease
        lease = store.heartbeat(lease, None)

    assert found(store, size=3) == []


def test_an_id_and_a_key_of_a_line_are_quoted(store: Store) -> None:
    """A name may hold what a terminal would obey."""
    a_lease(store, "a\u202eb", tenant="x")
    tasks(store).delete()

    [finding] = found(store)

    assert "'a\\u202eb' of 'x'" in line(store.using, finding)


@on_all
def test_what_moves_while_it_is_read_is_no_drift(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G63: A stretch is of one instant, though it takes several statements to read."""
    leases = [a_lease(store, id) for id in "abc"]
    plain = Stretch.stories

    def stories(part: Stretch) -> Iterator[Story]:
        for act in (
            lambda: store.complete([a_finish(leases[0])]),
            lambda: store.fail([a_failure(leases[1])]),
            lambda: store.enqueue(QUEUE, [a_task("new")]),
        ):
            in_thread(act).result(PATIENCE)
        return plain(part)

    monkeypatch.setattr(Stretch, "stories", stories)

    assert found(store) == []
    assert store.depth(QUEUE) == Depth(visible=2, scheduled=0, leased=1, dead=0)


@on_all
def test_a_task_that_is_being_moved_is_mended_as_it_is_after_that(store: Store) -> None:
    if store.using == "sqlite":
        pytest.skip("one writer at a time: a rebuild can't meet another")
    done, failed = a_lease(store, "done"), a_lease(store, "failed")
    tasks(store).update(priority=7)

    with transaction.atomic(using=store.using):
        store.complete([a_finish(done)])
        store.fail([a_failure(failed)])
        late = in_thread(lambda: mended(store))
        wait_for(lambda: blocked_sessions(store.using) > 0 or late.done())

    assert sorted(late.result(PATIENCE)) == ["has left", "rewritten"]
    [task] = rows(store)
    assert (task["task_id"], task["state"], task["priority"]) == ("failed", "ready", 0)
    assert found(store) == []


def a_missing_secret(store: Store) -> UUID:
    """The life of a task that knows one; the projection has lost it."""
    if store.using == "sqlite":
        pytest.skip("one writer at a time: a rebuild can't meet an erasure")
    [task] = store.enqueue(QUEUE, [a_task(payload=SECRET)])
    tasks(store).delete()
    return task.life


@on_all
def test_a_rebuild_that_waited_behind_an_erasure_brings_nothing_back(store: Store) -> None:
    life = a_missing_secret(store)

    with transaction.atomic(using=store.using):
        assert erased(store, life)
        late = blocked(lambda: mended(store), store.using)

    assert late.result(PATIENCE) == ["restored"]
    assert SECRET not in repr(rows(store))
    assert found(store) == []


@on_all
def test_an_erasure_that_meets_a_rebuild_finds_what_that_brings_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = a_missing_secret(store)
    plain, erasing = Mending.insert, list[Any]()

    def insert(mending: Mending, missing: Any) -> None:
        """Between the look at the log and the write."""
        erasing.append(in_thread(lambda: erased(store, life)))
        wait_for(lambda: blocked_sessions(store.using) > 0 or erasing[0].done())
        plain(mending, missing)

    monkeypatch.setattr(Mending, "insert", insert)

    assert mended(store) == ["restored"]
    assert erasing[0].result(PATIENCE)
    assert SECRET not in repr(rows(store))
    assert found(store) == []
