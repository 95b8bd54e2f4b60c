"""B07: an error that can't be stored as it is must not stop the queue."""

from __future__ import annotations

from django_leasequeue import Queue
from django_leasequeue.compat import TaskResultStatus
from tests.admin.desk import Desk, number, poll
from tests.databases import on_all
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


def test_enormous_errors_end_as_the_policy_says_and_the_work_goes_on(site: Site) -> None:
    """G37"""
    enormous = [
        site.enqueue(tasks.raise_twenty_megabytes, kind) for kind in ("long", "deep", "chained")
    ]
    healthy = [site.enqueue(tasks.add, number, 1) for number in range(10)]

    site.drain(threads=3)

    for result in enormous + healthy:
        result.refresh()
    assert [result.status for result in enormous] == [TaskResultStatus.FAILED] * 3
    assert [result.attempts for result in enormous] == [2, 2, 2]
    assert all(len(error.traceback) < 20_000 for result in enormous for error in result.errors)
    assert [result.return_value for result in healthy] == list(range(1, 11))


def test_the_page_of_such_a_task_opens(desk: Desk, emails: Queue) -> None:
    """G37"""
    emails.enqueue({}, id="a")
    emails.fail(poll(emails), ValueError("x" * 20_000_000), retryable=False)

    answer = desk.story(number(emails, "a"))

    assert answer.status_code == 200
    assert len(answer.content) < 100_000
    assert "[cut: " in answer.content.decode()
