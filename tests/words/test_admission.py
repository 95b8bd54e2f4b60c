"""What a task is given when it is admitted."""

from __future__ import annotations

from uuid import RFC_4122

import pytest

from django_leasequeue import InvalidTaskError, NewTask, QueuePolicy
from django_leasequeue.admission import admit, new_life


@pytest.mark.parametrize(
    ("chance", "life"),
    [
        (b"\x00", "018bcfe5-687b-7000-8000-000000000000"),
        (b"\xff", "018bcfe5-687b-7fff-bfff-ffffffffffff"),
    ],
)
def test_a_life_is_a_uuid_of_version_7(
    chance: bytes, life: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The milliseconds first, so that lives begun together lie together in an index."""
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_123_999_999)
    monkeypatch.setattr("os.urandom", lambda count: chance * count)

    made = new_life()

    assert (str(made), made.version, made.variant) == (life, 7, RFC_4122)


def test_no_two_lives_are_one() -> None:
    assert len({new_life() for _ in range(1000)}) == 1000


def test_a_payload_is_held_to_the_queue_s_own_limit() -> None:
    assert admit(NewTask(payload="abc"), QueuePolicy(), bytes_max=5).payload == '"abc"'
    with pytest.raises(InvalidTaskError, match="payload"):
        admit(NewTask(payload="abcd"), QueuePolicy(), bytes_max=5)
