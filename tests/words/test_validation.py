"""What may be stored, and that nothing else is let through."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import given, strategies as st

from django_leasequeue import validation
from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.validation import DEPTH_MAX, instant, name, payload_text, result_text

storable = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | storable,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(storable, inner, max_size=4),
)


@given(values)
def test_json_comes_back_as_it_went_in(value: Any) -> None:
    text = payload_text(value)

    assert json.loads(text) == value
    assert payload_text(json.loads(text)) == text
    text.encode()


BAD = [
    ("\x00", "a NUL character"),
    ("\ud83d", "a lone surrogate"),
    (math.nan, "a float that isn't finite"),
    (-math.inf, "a float that isn't finite"),
    (b"bytes", "bytes"),
    ({1, 2}, "set"),
    (datetime(2026, 1, 1, tzinfo=UTC), "datetime"),
    ({1: "x"}, "a key of type int"),
    ({None: "x"}, "a key of type NoneType"),
    ({"k\x00": 1}, "a key with a NUL character"),
]


@given(st.lists(st.sampled_from(["key", "list"]), max_size=6), st.sampled_from(BAD))
def test_what_is_not_json_is_named_by_its_path(nest: list[str], bad: tuple[Any, str]) -> None:
    value, what = bad
    path = ""
    for layer in nest:
        value = {"key": value} if layer == "key" else ["before", value]
    for layer in reversed(nest):
        path += ("." if path else "") + "key" if layer == "key" else "[1]"

    with pytest.raises(InvalidTaskError) as error:
        payload_text(value)

    assert what in str(error.value)
    assert path in str(error.value)


def test_the_value_itself_is_never_in_the_message() -> None:
    with pytest.raises(InvalidTaskError) as error:
        payload_text({"password": "hunter2\x00"})

    assert str(error.value).startswith("payload at password is not JSON")
    assert "hunter2" not in str(error.value)


def test_the_six_characters_of_an_escaped_nul_are_text_like_any() -> None:
    """B01: what only looks like a NUL is let through, and not changed."""
    assert json.loads(payload_text("\\u0000")) == "\\u0000"


def test_values_too_deep_for_a_parser_are_refused() -> None:
    def nested(depth: int) -> Any:
        return [nested(depth - 1)] if depth else []

    payload_text(nested(DEPTH_MAX - 1))
    with pytest.raises(InvalidTaskError, match=f"more than {DEPTH_MAX} levels"):
        payload_text(nested(DEPTH_MAX))


def test_the_size_is_counted_in_bytes_and_both_sizes_are_named() -> None:
    text = "é" * 10

    assert payload_text(text, bytes_max=22)
    with pytest.raises(InvalidTaskError, match="payload has 22 bytes, at most 21 are allowed"):
        payload_text(text, bytes_max=21)


@pytest.mark.parametrize(
    ("field", "limit"),
    [("queue", 100), ("tenant", 100), ("id", 200), ("dedupe_key", 200), ("worker", 200)],
)
def test_a_name_is_text_of_bounded_length_without_control_characters(
    field: str, limit: int
) -> None:
    assert name(field, "é" * limit) == "é" * limit
    unprintable = ("a\nb", "a\x7f", "a\x80", "\x9f", "a\x00", "\udc80")
    for bad in (*unprintable, "", "é" * (limit + 1), 7, None, b"a"):
        with pytest.raises(InvalidTaskError, match=field):
            name(field, bad)


def test_a_tenant_may_be_empty() -> None:
    assert name("tenant", "", empty=True) == ""


def test_an_aware_instant_is_that_instant_in_utc() -> None:
    moment = datetime(2026, 3, 29, 2, 30, tzinfo=timezone(timedelta(hours=-5)))

    assert instant("run_after", moment) == moment
    assert getattr(instant("run_after", moment), "tzinfo", None) is UTC


@override_settings(USE_TZ=True)
def test_a_naive_instant_is_refused_where_zones_are_in_use() -> None:
    with pytest.raises(InvalidTaskError, match="run_after must be an aware datetime"):
        instant("run_after", datetime(2026, 1, 1))  # noqa: DTZ001


@override_settings(USE_TZ=False, TIME_ZONE="America/New_York")
def test_else_it_is_local_time() -> None:
    """B44."""
    local = datetime(2026, 1, 1)  # noqa: DTZ001

    assert instant("run_after", local) == datetime(2026, 1, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize("bad", [3, "tomorrow", timedelta(days=99999)])
def test_other_times_are_refused(bad: object) -> None:
    with pytest.raises(InvalidTaskError, match="run_after"):
        instant("run_after", bad)


@given(st.text(st.characters(categories=["Cs", "Cc", "L"])), st.integers(0, 20))
def test_any_text_is_made_storable_and_says_where_it_was_cut(text: str, limit: int) -> None:
    made = validation.storable_text(text, limit)

    made.encode()
    assert "\x00" not in made
    assert (len(text) > limit) == ("[cut:" in made)


@pytest.mark.parametrize("result", [object(), {1, 2}, math.nan, "x" * 200, [[[]]] * 99, b"x"])
def test_a_result_that_can_not_be_stored_becomes_a_marked_note(result: Any) -> None:
    """B09: the work is done; trouble with its result never makes it fail."""
    note = json.loads(result_text(result, bytes_max=150))

    assert note["unstorable_result"] == type(result).__name__
    assert note["why"].startswith("result")
