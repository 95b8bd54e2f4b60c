"""What is made again because of others, and what is not."""

from __future__ import annotations

import pytest
from django.db import OperationalError, transaction
from psycopg.errors import AdminShutdown, DeadlockDetected, SerializationFailure

from django_leasequeue.stores.database import REPEATS_MAX
from django_leasequeue.stores.postgres import PostgresStore


class Refused:
    """A move that the server refuses for *why*, so many times."""

    def __init__(self, why: type[Exception], times: int) -> None:
        self.why = why
        self.times = times
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        if self.made <= self.times:
            raise OperationalError from self.why()
        return "done"


@pytest.mark.parametrize("why", [DeadlockDetected, SerializationFailure])
def test_what_lost_a_conflict_is_made_again_until_others_are_through(
    store: PostgresStore, why: type[Exception]
) -> None:
    move = Refused(why, times=REPEATS_MAX)

    assert store.repeated(move) == "done"


def test_what_loses_every_conflict_is_given_up(store: PostgresStore) -> None:
    with pytest.raises(OperationalError):
        store.repeated(Refused(DeadlockDetected, times=REPEATS_MAX + 1))


def test_in_a_callers_transaction_the_conflict_is_the_callers(store: PostgresStore) -> None:
    move = Refused(DeadlockDetected, times=1)

    with pytest.raises(OperationalError), transaction.atomic():
        store.repeated(move)

    assert move.made == 1


def test_what_went_wrong_otherwise_is_not_made_again(store: PostgresStore) -> None:
    move = Refused(AdminShutdown, times=1)

    with pytest.raises(OperationalError):
        store.repeated(move)

    assert move.made == 1
