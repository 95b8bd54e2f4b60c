"""The state machine as a whole: every history that the rules allow, made up by Hypothesis."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from django_leasequeue.errors import IllegalTransitionError, LostReason
from django_leasequeue.testing.clock import START
from django_leasequeue.transitions import (
    ASIDES,
    NOTHING,
    RULES,
    Kind,
    State,
    TaskRecord,
    Transition,
    as_of,
    blanked,
    enqueued_data,
    erased,
    fold,
    fold_all,
    follow,
    json_text,
    lost_reason,
    overdue,
)
from tests.builders import a_beginning, a_task

SECOND = timedelta(seconds=1)
seconds = st.integers(0, 100).map(lambda count: count * SECOND)


def after(task: TaskRecord | None, kind: Kind, at: timedelta = SECOND) -> Transition:
    """A transition of *kind* for *task*, whether or not it may follow."""
    held = task or fold(None, a_beginning(START))
    assert held
    leased = kind is Kind.LEASED
    transition = follow(
        held,
        kind,
        START + at,
        attempt=held.attempt + leased,
        worker="w" if leased else None,
        visible_at=START + at,
    )
    return replace(transition, position=held.seq + int(at / SECOND) + 1)


@st.composite
def histories(draw: st.DrawFn) -> list[Transition]:
    """The log of one life, as the rules allow it."""
    history = [a_beginning(START, a_task(max_attempts=draw(st.integers(1, 3))))]
    task = fold_all(history)
    for step in range(draw(st.integers(0, 12))):
        if task is None:
            break
        fitting = [kind for kind in Kind if task.state in RULES[kind].after]
        history.append(after(task, draw(st.sampled_from(fitting)), (step + 1) * SECOND))
        task = fold(task, history[-1])
    return history


@given(histories())
def test_a_fold_may_stop_and_go_on_anywhere(history: list[Transition]) -> None:
    for cut in range(len(history) + 1):
        task = fold_all(history[:cut])
        for transition in history[cut:]:
            task = fold(task, transition)
        assert task == fold_all(history)
    assert fold_all([]) is None


@given(histories())
def test_a_task_knows_its_newest_lease_whatever_came_after_it(history: list[Transition]) -> None:
    for cut in range(2, len(history) + 1):
        task = fold_all(history[:cut])
        lease = next((row for row in reversed(history[:cut]) if row.kind is Kind.LEASED), None)
        if task and lease:
            newest = (lease.position, lease.worker, lease.at)
            assert (task.token, task.worker, task.leased_at) == newest


@given(histories())
def test_what_a_task_is_never_changes_only_where_it_stands(history: list[Transition]) -> None:
    first = fold(None, history[0])
    for cut in range(1, len(history) + 1):
        task = fold_all(history[:cut])
        if any(row.kind is Kind.ERASED for row in history[:cut]) and first:
            first = replace(first, payload=NOTHING)
        if task and first:
            own = ("seq", "life", "id", "tenant", "payload", "priority", "dedupe_key", "visibility")
            assert [getattr(task, name) for name in own] == [getattr(first, name) for name in own]
            assert task.state in (State.READY, State.LEASED, State.DEAD)
            assert (task.token is None) == (task.worker is None) == (task.leased_at is None)


@given(histories())
def test_what_an_erasure_leaves_in_the_log_folds_into_what_it_leaves_of_the_task(
    history: list[Transition],
) -> None:
    """G60"""
    task = fold_all(history)
    if task:
        erasure = after(task, Kind.ERASED)
        assert fold_all([*map(blanked, history), erasure]) == fold(task, erasure) == erased(task)


@pytest.mark.parametrize(("error", "left"), [("E: m", "erased"), ("", "")])
def test_an_erased_task_tells_that_there_was_an_error_but_not_which(error: str, left: str) -> None:
    """G60"""
    task = fold(None, a_beginning(START))
    assert task

    assert erased(replace(task, last_error=error)).last_error == left


def test_an_erasure_adds_nothing_to_a_row_that_told_nothing() -> None:
    """G60"""
    task = fold(None, a_beginning(START))
    assert task
    row = follow(task, Kind.LAPSED, START)

    assert blanked(row) == row


@given(histories())
def test_the_rules_say_for_every_kind_what_follows(history: list[Transition]) -> None:
    """From wherever a history has led, each kind is either refused or leads where RULES says."""
    task = fold_all(history)
    found = task.state if task else None
    for kind in Kind:
        transition = a_beginning(START) if kind is Kind.ENQUEUED else after(task, kind)
        if found not in RULES[kind].after:
            with pytest.raises(IllegalTransitionError, match=f"{kind} may not follow"):
                fold(task, transition)
            continue
        moved = fold(task, transition)
        if kind in ASIDES:
            assert moved == (erased(task) if task and kind is Kind.ERASED else task)
        else:
            assert (moved.state if moved else None) == RULES[kind].leads_to


def test_each_state_is_entered_and_left() -> None:
    entered = {rule.leads_to for rule in RULES.values()}
    left = {state for rule in RULES.values() for state in rule.after}
    held = {State.READY, State.LEASED, State.DEAD}
    assert held | {None} <= entered
    assert held | {None} == left


@given(
    priority=st.integers(-100, 100),
    key=st.none() | st.text(min_size=1),
    visibility=st.timedeltas(SECOND, timedelta(days=3000)),
    path=st.text(),
    payload=st.sampled_from(["null", '{"é":[1.5,"\U0001f4e6"]}']),
)
def test_a_task_is_born_as_it_was_admitted(
    priority: int, key: str | None, visibility: timedelta, path: str, payload: str
) -> None:
    """Limits to the microsecond."""
    new = a_task(
        priority=priority, dedupe_key=key, visibility=visibility, path=path, payload=payload
    )

    task = fold(None, a_beginning(START, new))

    assert task
    assert enqueued_data(task) == enqueued_data(new)
    assert (task.id, task.tenant, task.payload) == (new.id, new.tenant, new.payload)
    assert (task.visibility, task.dedupe_key, task.live_key) == (visibility, key, key)


@given(histories(), seconds)
def test_what_the_clock_did_is_what_its_transition_says(
    history: list[Transition], now: timedelta
) -> None:
    """``as_of`` before it is written down, and the fold after it is: the same task."""
    task = fold_all(history)
    if task is None:
        return
    seen = as_of(task, START + now)
    late = overdue(task, START + now)
    if late:
        written = fold(task, late)
        assert written == seen
        assert written is not None
        assert (late.at, written.visible_at) == (task.visible_at, task.visible_at)
        assert overdue(written, START + now) is None
    else:
        assert seen == task or (seen.state, task.state) == (State.SCHEDULED, State.READY)


def leased(worker: str = "w", **changes: Any) -> tuple[TaskRecord, list[Transition]]:
    """A task under its first lease, taken at the start, with its log."""
    history = [a_beginning(START, a_task(**changes))]
    task = fold_all(history)
    assert task
    claimed = follow(
        task, Kind.LEASED, START, attempt=1, worker=worker, visible_at=START + task.visibility
    )
    history.append(replace(claimed, position=2, token=2))
    task = fold_all(history)
    assert task
    return task, history


LATER = timedelta(seconds=20)
ENDINGS = [
    (Kind.ACKED, {}, LostReason.FINISHED),
    (Kind.DROPPED, {"error": {"summary": ""}}, LostReason.FINISHED),
    (Kind.RETRIED, {"error": {"summary": ""}}, LostReason.FINISHED),
    (Kind.RELEASED, {}, LostReason.FINISHED),
    (Kind.DEAD, {"error": {"summary": ""}}, LostReason.FINISHED),
    (Kind.DEAD, {"adopted_by": "w"}, LostReason.ADOPTED),
    (Kind.LAPSED, {"adopted_by": "w"}, LostReason.ADOPTED),
    (Kind.CANCELLED, {"by": "ada"}, LostReason.CANCELLED),
    (Kind.LAPSED, {}, LostReason.LAPSED),
    (Kind.DEAD, {}, LostReason.LAPSED),
]


@pytest.mark.parametrize(("kind", "facts", "reason"), ENDINGS)
def test_the_reason_is_how_the_delivery_ended(
    kind: Kind, facts: dict[str, Any], reason: LostReason
) -> None:
    task, history = leased()
    end = follow(task, kind, START + LATER, visible_at=START + LATER, **facts)
    history.append(replace(end, position=3))

    assert lost_reason(2, fold_all(history), history[1:], START + LATER) is reason


@pytest.mark.parametrize(("kind", "facts", "reason"), ENDINGS)
def test_a_newer_token_comes_first_whatever_else_happened(
    kind: Kind, facts: dict[str, Any], reason: LostReason
) -> None:
    task, history = leased()
    history.append(replace(follow(task, Kind.LEASED, START + LATER, worker="v"), position=3))
    history.append(replace(follow(task, kind, START + LATER, **facts), position=4, token=3))

    assert lost_reason(2, None, history[1:], START + LATER) is LostReason.SUPERSEDED


@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    ("beat", "reason"),
    [(None, LostReason.LAPSED), (60, LostReason.LAPSED), (70, LostReason.CAPPED)],
)
def test_the_reason_does_not_depend_on_its_being_written_down(
    max_attempts: int, written: bool, beat: int | None, reason: LostReason
) -> None:
    """V = 30, L = 70: capped only where the deadline was leased at + L."""
    task, history = leased(max_attempts=max_attempts)
    if beat:
        deadline = START + beat * SECOND
        renewal = follow(task, Kind.HEARTBEAT, START + LATER, visible_at=deadline)
        history.append(replace(renewal, position=3))
    now = START + 100 * SECOND
    held = fold_all(history)
    assert held
    if written:
        late = overdue(held, now)
        assert late
        history.append(replace(late, position=4))

    assert lost_reason(2, fold_all(history), history[1:], now) is reason


def test_a_live_lease_is_not_lost_until_its_very_deadline() -> None:
    task, history = leased()
    instants = [START + timedelta(seconds=30, microseconds=gap) for gap in (-1, 0)]

    reasons = [lost_reason(2, task, history[1:], instant) for instant in instants]

    assert reasons == [None, LostReason.LAPSED]


def test_without_a_record_the_lease_is_gone() -> None:
    assert lost_reason(2, None, [], START) is LostReason.GONE


def test_a_duplicates_row_after_a_lease_is_no_ending_of_it() -> None:
    """Rows of others in between, and a task that has left, say nothing of this delivery."""
    ready = fold(None, a_beginning(START))
    assert ready
    leased = after(ready, Kind.LEASED)
    task = fold(ready, leased)
    assert task
    asked = after(task, Kind.DUPLICATE)

    assert lost_reason(leased.position, None, [leased, asked], START) is LostReason.GONE
    assert lost_reason(leased.position, task, [], START + 99 * SECOND) is LostReason.GONE


def test_what_follows_belongs_to_the_task_s_queue_and_tenant() -> None:
    task = fold(None, a_beginning(START, a_task(tenant="t")))
    assert task

    bare, told = follow(task, Kind.CANCELLED, START), follow(task, Kind.CANCELLED, START, by="a")

    assert (bare.life, bare.queue, bare.tenant) == (task.life, task.queue, "t")
    assert (bare.data, told.data) == (None, '{"by":"a"}')


def test_a_lapsed_task_keeps_the_instant_of_its_deadline() -> None:
    ready = fold(None, a_beginning(START))
    assert ready
    task = fold(ready, after(ready, Kind.LEASED, 5 * SECOND))
    assert task

    late = overdue(task, START + 5 * SECOND)

    assert late
    assert late.at == late.visible_at == START + 5 * SECOND


def test_stored_json_is_the_same_characters_everywhere() -> None:
    assert json_text({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'
    assert enqueued_data(a_task()) == (
        '{"path":"","priority":0,"dedupe_key":null,'
        '"max_attempts":3,"visibility_us":30000000,"max_lease_us":70000000}'
    )
    with pytest.raises(ValueError, match="Out of range"):
        json_text(float("nan"))


@pytest.mark.parametrize("lacking", ["id", "payload", "visible_at"])
def test_a_beginning_that_lacks_something_begins_nothing(lacking: str) -> None:
    nothing: Any = {lacking: None}

    with pytest.raises(ValueError, match="an enqueued transition needs id, payload and vis"):
        fold(None, replace(a_beginning(START), **nothing))


def test_an_illegal_transition_is_told_with_what_it_met() -> None:
    task = fold(None, a_beginning(START))

    with pytest.raises(IllegalTransitionError, match="ready"):
        fold(task, after(task, Kind.ACKED))
