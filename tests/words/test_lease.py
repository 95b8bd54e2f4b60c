"""A lease as a signed string: a bearer right to one delivery."""

from __future__ import annotations

import pprint
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core import signing
from django.test import override_settings

from django_leasequeue.errors import InvalidTaskError, LeaseLostError, LostReason
from django_leasequeue.lease import Lease
from django_leasequeue.testing.clock import START

LEASE = Lease(
    queue="emails",
    tenant="é",
    id="42",
    seq=7,
    life=uuid4(),
    token=981,
    attempt=2,
    max_attempts=2,
    worker="w7",
    leased_at=START,
    deadline=START + timedelta(seconds=30, microseconds=1),
    max_lease=timedelta(seconds=70),
    seconds_left=30.000001,
    enqueued_at=START,
    visible_since=START,
    previous_token=11,
    dedupe_key="k",
    payload_text='{"card":"4111"}',
    details_text='"page 3"',
)


def test_it_comes_back_as_it_was_without_payload_and_details() -> None:
    """G53"""
    text = LEASE.to_string()

    assert Lease.from_string(text, now=START) == LEASE._replace(
        payload_text="null", details_text=None
    )
    assert "4111" not in str(signing.loads(text, salt="django_leasequeue.lease"))


def test_it_expires_with_the_longest_life_its_lease_could_have_had() -> None:
    """G53"""
    text = LEASE.to_string()

    assert Lease.from_string(text, now=START + timedelta(seconds=69)).token == 981
    with pytest.raises(InvalidTaskError, match="expired"):
        Lease.from_string(text, now=START + timedelta(seconds=70))


def test_it_is_for_one_database_only() -> None:
    """G53"""
    text = LEASE.to_string(using="tasks")

    assert Lease.from_string(text, using="tasks", now=START).id == "42"
    with pytest.raises(InvalidTaskError, match="not for the database 'default'"):
        Lease.from_string(text, now=START)


def test_a_string_that_was_touched_is_refused() -> None:
    """G53"""
    text = LEASE.to_string()

    for touched in (text[:-1], f"x{text}", ""):
        with pytest.raises(InvalidTaskError, match="not signed by this site"):
            Lease.from_string(touched, now=START)


@pytest.mark.parametrize("text", [None, 7, b"", b"x", [], "\x00", "\ud800", "é:x:y"])
def test_what_is_no_such_string_is_refused(text: Any) -> None:
    """G36"""
    with pytest.raises(InvalidTaskError, match="lease string"):
        Lease.from_string(text, now=START)


@pytest.mark.parametrize(
    "changes",
    [
        {"leased_at": "9999-12-31T23:59:59+00:00"},
        {"leased_at": "soon"},
        {"leased_at": None},
        {"max_lease": 10**30},
        {"life": "x"},
        {"life": 7},
        {"colour": "red"},
    ],
    ids=str,
)
def test_a_signed_string_that_holds_no_lease_is_refused(changes: dict[str, Any]) -> None:
    """G36: another version of this package may have written it."""
    facts = signing.loads(LEASE.to_string(), salt="django_leasequeue.lease")

    for wrong in (facts | changes, [facts], None):
        with pytest.raises(InvalidTaskError, match="holds no lease"):
            Lease.from_string(signing.dumps(wrong, salt="django_leasequeue.lease"), now=START)


def test_another_site_s_string_is_refused_and_an_older_key_s_is_not() -> None:
    with override_settings(SECRET_KEY="older"):
        text = LEASE.to_string()

    with pytest.raises(InvalidTaskError):
        Lease.from_string(text, now=START)
    with override_settings(SECRET_KEY_FALLBACKS=["older"]):
        assert Lease.from_string(text, now=START).token == 981


def test_a_string_signed_for_another_purpose_is_refused() -> None:
    facts = signing.loads(LEASE.to_string(), salt="django_leasequeue.lease")

    with pytest.raises(InvalidTaskError):
        Lease.from_string(signing.dumps(facts, salt="another"), now=START)


def test_the_payload_is_parsed_anew_at_each_call() -> None:
    LEASE.payload["card"] = "changed"

    assert LEASE.payload == {"card": "4111"}
    assert LEASE.details == "page 3"
    assert LEASE.last_attempt


def test_a_lost_lease_says_which_and_why_and_never_the_payload() -> None:
    error = LeaseLostError(LEASE, LostReason.SUPERSEDED)

    assert str(error) == "emails/42 attempt 2 token 981 is superseded; nothing was changed"


def test_what_shows_it_shows_neither_payload_nor_details() -> None:
    """Sentry tells a tuple's values one by one, unless it is told otherwise."""
    for shown in (repr(LEASE), LEASE.__sentry_repr__(), pprint.pformat(LEASE)):
        assert "981" in shown
        assert "4111" not in shown
        assert "page 3" not in shown
