"""B50: markup in what tasks carry is text on every page, and in every message."""

from __future__ import annotations

import html

import pytest

from django_leasequeue import Queue
from tests.admin.desk import Desk, a_dead_letter, log_of, poll

EVIL = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</pre></details></td></table><img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "javascript:alert(1)",
]


@pytest.mark.parametrize("evil", EVIL)
def test_no_page_takes_it_for_markup(desk: Desk, emails: Queue, evil: str) -> None:
    """G52"""
    options = {"tenant": evil, "dedupe_key": evil, "path": evil, "payload": {evil: [evil]}}
    letter = a_dead_letter(emails, evil, error=ValueError(evil), **options)
    emails.redrive([evil], tenant=evil, by=evil, reason=evil)
    lease = poll(emails, worker=evil)
    emails.heartbeat(lease, details={evil: evil})
    emails.fail(lease, evil, retryable=False)

    pages = [desk.page(), desk.page(q=evil), desk.page(of_tenant=evil), desk.story(letter)]
    pages += [desk.ask(letter), desk.client.get(desk.url("groups"))]
    pages.append(desk.ask(letter, confirmed="yes", reason=evil * 200))
    for page in pages:
        assert_is_text(evil, page.content.decode())


@pytest.mark.parametrize("evil", EVIL)
def test_nor_does_a_message(desk: Desk, emails: Queue, evil: str) -> None:
    """G52"""
    letter = a_dead_letter(emails, evil, dedupe_key=evil)
    emails.enqueue({}, id=f"twin {evil}", dedupe_key=evil)

    said = desk.redrive(letter, reason=evil)

    assert evil in said
    assert_is_text(evil, desk.page().content.decode())
    assert_is_text(evil, desk.client.get("/admin/").content.decode())
    batches = desk.at("batch")
    for page in (batches.page(), *(batches.story(row.pk) for row in batches.rows())):
        assert evil in html.unescape(page.content.decode())
        assert_is_text(evil, page.content.decode())


@pytest.mark.parametrize("evil", EVIL)
def test_nor_do_the_tasks_and_the_log(tasks: Desk, log: Desk, emails: Queue, evil: str) -> None:
    options = {"tenant": evil, "dedupe_key": evil, "path": evil, "payload": {evil: [evil]}}
    task = a_dead_letter(emails, evil, error=ValueError(evil), **options)
    emails.redrive([evil], tenant=evil, by=evil, reason=evil)
    lease = poll(emails, worker=evil)
    emails.heartbeat(lease, details={evil: evil})

    emails.enqueue({}, id="done")
    emails.complete(poll(emails), result={evil: evil})

    pages = [tasks.page(), tasks.page(q=evil), tasks.page(of_tenant=evil), tasks.story(task)]
    pages += [tasks.ask(task, verb="cancel"), log.page(), log.page(q=evil), log.page(kind=evil)]
    pages += [log.story(row.pk) for row in log_of(emails)]
    assert "1 cancelled." in tasks.cancel(task, reason=evil)
    pages += [tasks.page(), tasks.story(task), log.story(log_of(emails)[-1].pk)]
    for page in pages:
        assert_is_text(evil, page.content.decode())


def assert_is_text(evil: str, page: str) -> None:
    if "<" in evil:
        assert evil not in page
    assert 'href="javascript' not in page
    assert "onerror=alert(1)>" not in page
    assert "onload=alert(1)>" not in page
