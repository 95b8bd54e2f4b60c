"""A site's own rows, which keep the last token, and the worker that comes too late for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections, models, transaction

from django_leasequeue import Lease, LeaseLostError, LostReason, Queue
from django_leasequeue.fencing import fenced
from django_leasequeue.testing import FakeClock
from django_leasequeue.testing.running import CallsAtOnce, nothing
from django_leasequeue.worker import CurrentLease
from django_leasequeue.worker.deliveries import Deliveries, Delivery
from django_leasequeue.worker.outage import Outage
from tests.conftest import DATABASES
from tests.waiting import PATIENCE, blocked_sessions, in_thread, wait_for


class Report(models.Model):
    total = models.IntegerField(default=0)
    fencing_token = models.BigIntegerField(null=True)
    stamp = models.BigIntegerField(default=0)

    class Meta:
        app_label = "tests"

    def __str__(self) -> str:
        return f"{self.pk}: {self.total}"


Reports = models.QuerySet[Report]
Leases = tuple[Lease, Lease]


@pytest.fixture(params=DATABASES)
def using(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[str]:
    """An alias of a database with two reports, 7 and 8."""
    connection = connections[request.param]
    with connection.schema_editor() as editor:
        editor.create_model(Report)
    for number in (7, 8):
        Report(pk=number).save(using=request.param)
    yield request.param
    with connection.schema_editor() as editor:
        editor.delete_model(Report)


@pytest.fixture
def leases(using: str, clock: FakeClock) -> Leases:
    """A lease that has lapsed, and the one that superseded it."""
    queue = Queue("emails", using=using, clock=clock)
    queue.enqueue({}, visibility=30)
    [stale] = queue.claim(worker="w1")
    clock.advance(30)
    [newer] = queue.claim(worker="w2")
    return stale, newer


@pytest.fixture
def reports(using: str) -> Reports:
    return models.QuerySet(Report, using=using)


def totals(reports: Reports) -> list[tuple[int, int | None]]:
    return list(reports.order_by("pk").values_list("total", "fencing_token"))


def test_a_row_keeps_the_last_token_and_the_same_one_may_write_again(
    reports: Reports, leases: Leases
) -> None:
    stale, newer = leases

    for lease, total in ((stale, 1), (stale, 2), (newer, 3)):
        assert fenced(lease).update(reports.filter(pk=7), total=total) == 1
        assert totals(reports)[0] == (total, lease.token)


def test_a_stale_worker_cant_write_over_a_newer_ones_data(reports: Reports, leases: Leases) -> None:
    """G56: Not where it would write other rows beside it, either."""
    stale, newer = leases
    fenced(newer).update(reports.filter(pk=7), total=9)

    for rows in (reports.filter(pk=7), reports.filter(pk__in=[7, 8])):
        with pytest.raises(LeaseLostError) as lost:
            fenced(stale).update(rows, total=1)
        assert lost.value.reason is LostReason.SUPERSEDED

    assert totals(reports) == [(9, newer.token), (0, None)]


def test_rows_that_belong_to_an_object_are_where_it_is(reports: Reports, leases: Leases) -> None:
    """Those of ``upload.lines``, say, whichever database the upload was read from."""
    rows: Reports = models.QuerySet(Report, hints={"instance": reports.get(pk=7)})

    assert fenced(leases[0]).update(rows.filter(pk=7), total=1) == 1

    assert totals(reports)[0] == (1, leases[0].token)


def test_a_row_that_is_not_there_is_told_apart(reports: Reports, leases: Leases) -> None:
    with pytest.raises(Report.DoesNotExist, match="no such report"):
        fenced(leases[0]).update(reports.filter(pk=9), total=1)


def test_the_field_may_have_another_name(reports: Reports, leases: Leases) -> None:
    stale, newer = leases
    fenced(newer, field="stamp").update(reports.filter(pk=7), total=9)

    with pytest.raises(LeaseLostError):
        fenced(stale, field="stamp").update(reports.filter(pk=7), total=1)

    assert reports.get(pk=7).stamp == newer.token


def test_two_workers_at_once_come_out_as_their_tokens_say(
    reports: Reports, using: str, leases: Leases
) -> None:
    """G56: Whichever came first; the stale one looked before the newer one's commit."""
    stale, newer = leases
    rows = reports.filter(pk=7)
    fenced(stale).update(rows, total=1)

    with transaction.atomic(using=using):
        fenced(newer).update(rows, total=9)
        late = in_thread(lambda: fenced(stale).update(rows.all(), total=2))
        if connections[using].vendor == "postgresql":
            wait_for(lambda: blocked_sessions("default") == 1)

    with pytest.raises(LeaseLostError):
        late.result(PATIENCE)
    assert totals(reports)[0] == (9, newer.token)


def test_the_current_lease_will_do(reports: Reports, using: str, leases: Leases) -> None:
    stale, newer = leases
    calls = CallsAtOnce(Deliveries(1, nothing), Outage(), nothing)
    delivery = Delivery(queue=Queue("emails", using=using), lease=stale, sent_at=0.0)
    fenced(newer).update(reports.filter(pk=7), total=9)

    with pytest.raises(LeaseLostError):
        fenced(CurrentLease(delivery, calls)).update(reports.filter(pk=7), total=1)
