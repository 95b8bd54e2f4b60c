"""B52: cancelled in the admin, or deleted behind the queue's back, while a worker has it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.test import Client

from django_leasequeue import LeaseLostError, Queue
from django_leasequeue.admin.access import ReadOnlyTaskAdmin
from django_leasequeue.audit import verify
from django_leasequeue.drift import Drift
from django_leasequeue.models import AppendOnlyError, Task
from tests.admin.desk import Desk, log_of, number, poll
from tests.databases import on_all
from tests.waiting import wait_for
from tests.worker import tasks as work
from tests.worker.conftest import Site


@pytest.fixture
def operator(site: Site, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(ReadOnlyTaskAdmin, "using", lambda self: site.using)
    user = User.objects.create_superuser("ada")
    client = Client()
    client.force_login(user)
    return Desk(client, user, model="task")


@on_all
def test_a_worker_whose_task_is_cancelled_in_the_admin_goes_on(
    site: Site, operator: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    doomed = site.enqueue(work.wait_at_the_gate)

    with site.worker():
        wait_for(lambda: work.runs == ["at the gate"])
        said = operator.cancel(number(site.queue, doomed.id), reason="not needed any more")
        work.gate.set()
        wait_for(lambda: "reason=cancelled" in caplog.text)
        site.enqueue(work.add, 1, 2)
        wait_for(lambda: (1, 2) in work.runs)

    assert said == "1 cancelled."
    assert site.kinds()[:3] == ["enqueued", "leased", "cancelled"]


@on_all
def test_a_worker_whose_tasks_row_is_deleted_goes_on_and_verify_tells_of_it(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """G11"""
    doomed = site.enqueue(work.wait_at_the_gate)

    with site.worker():
        wait_for(lambda: work.runs == ["at the gate"])
        with connections[site.using].cursor() as cursor:
            cursor.execute(f"DELETE FROM {Task._meta.db_table}")  # noqa: S608
        work.gate.set()
        wait_for(lambda: "reason=gone" in caplog.text)
        site.enqueue(work.add, 1, 2)
        wait_for(lambda: site.kinds().count("acked") == 1)

    [found] = [each for step in verify(site.queue.store) for each in step.findings]
    assert (found.drift, str(found.life)) == (Drift.MISSING, doomed.id)


def test_the_orm_deletes_no_task(emails: Queue) -> None:
    emails.enqueue({}, id="a")
    rows = Task.objects.using(emails.using)

    for delete in (rows.delete, rows.get().delete):
        with pytest.raises(AppendOnlyError):
            delete()


def test_a_row_deleted_behind_the_queues_back_is_a_lost_lease(emails: Queue) -> None:
    emails.enqueue({}, id="a")
    lease = poll(emails)
    with connections[emails.using].cursor() as cursor:
        cursor.execute(f"DELETE FROM {Task._meta.db_table}")  # noqa: S608

    with pytest.raises(LeaseLostError, match="gone"):
        emails.heartbeat(lease)
    for end in (emails.complete, emails.release):
        with pytest.raises(LeaseLostError, match="gone"):
            end(lease)
    with pytest.raises(LeaseLostError, match="gone"):
        emails.fail(lease, "too late")
    assert [row.kind for row in log_of(emails)] == ["enqueued", "leased"]


@on_all
def test_a_flushed_database_is_a_lost_lease(site: Site) -> None:
    site.queue.enqueue({}, id="a")
    [lease] = site.queue.claim(worker="w1")

    call_command("flush", database=site.using, interactive=False, verbosity=0)

    with pytest.raises(LeaseLostError, match="gone"):
        site.queue.complete(lease)
    assert site.kinds() == []
    assert not site.queue.enqueue({}, id="a").duplicate
