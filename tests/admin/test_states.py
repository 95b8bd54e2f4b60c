"""Where the pages say a task stands: the expression says what ``as_of`` says of the record."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_leasequeue import Queue
from django_leasequeue.admin.filters import state_at
from django_leasequeue.models import Task
from django_leasequeue.testing.clock import START
from django_leasequeue.transitions import as_of
from tests.admin.desk import a_dead_letter, poll


@pytest.mark.parametrize("seconds", [0, 29.999999, 30, 30.000001, 59, 60, 61])
def test_at_every_instant_around_a_deadline(emails: Queue, seconds: float) -> None:
    a_dead_letter(emails, "dead")
    for id, attempts in (("lapses", 2), ("dies", 1)):
        emails.enqueue({}, id=id, max_attempts=attempts)
        poll(emails)
    emails.enqueue({}, id="scheduled", run_after=timedelta(seconds=60))
    emails.enqueue({}, id="ready")
    now = START + timedelta(seconds=seconds)

    rows = Task.objects.using(emails.using).annotate(standing=state_at(now))

    assert rows.count() == 5
    for row in rows:
        assert row.standing == as_of(row.record, now).state
