"""The page of one dead letter: where it stands, and how it came there."""

from __future__ import annotations

from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_leasequeue import Queue
from django_leasequeue.models import Effect, Task
from tests.admin.desk import Desk, MakeDesk, a_dead_letter, number, poll


def advance(queue: Queue, seconds: float) -> None:
    queue.store.clock.advance(seconds)  # type: ignore[union-attr]


def a_letter_with_a_past(queue: Queue) -> int:
    """A failure, a redrive, a worker that vanished, a failure for good."""
    letter = a_dead_letter(queue, "a", error=ValueError("first round"))
    queue.redrive(["a"], by="7 bob", reason="mailbox is back")
    poll(queue, "w2")
    advance(queue, 30)
    lease = poll(queue, "w3")
    queue.heartbeat(lease, details={"page": 3})
    advance(queue, 2.5)
    queue.fail(lease, KeyError("second round"))
    return letter


def test_every_attempt_of_every_round_is_told(desk: Desk, emails: Queue) -> None:
    """G21"""
    letter = a_letter_with_a_past(emails)

    story = desk.story(letter).context["story"]

    told = [
        (event.attempt.worker, event.attempt.attempt, event.outcome, event.duration)
        for event in story.events
        if hasattr(event, "attempt")
    ]
    assert told == [
        ("w1", 1, "failed", "0 s"),
        ("w2", 1, "worker vanished", "30 s"),
        ("w3", 2, "failed", "2.5 s"),
    ]


def test_an_id_that_only_repeats_the_life_is_not_told_twice(desk: Desk, emails: Queue) -> None:
    made_up = emails.enqueue({}).id
    emails.fail(poll(emails), "no such mailbox", retryable=False)
    letters = [number(emails, made_up), a_dead_letter(emails, "order-17")]
    log = desk.at("tasktransition")

    for pages in (desk, log):
        first, second = (pages.story(letter).content.decode() for letter in letters)
        assert "<dt>Id</dt>" not in first
        assert made_up in first
        assert "<dt>Id</dt><dd>order-17</dd>" in second


def test_errors_are_told_in_full_and_acts_with_who_and_why(desk: Desk, emails: Queue) -> None:
    letter = a_letter_with_a_past(emails)

    page = desk.story(letter).content.decode()

    for told in (
        "ValueError: first round",
        "KeyError",
        "7 bob",
        "mailbox is back",
        "&quot;page&quot;: 3",
    ):
        assert told in page


def test_one_who_may_not_view_payloads_sees_neither_payload_nor_details_nor_result(
    make_desk: MakeDesk, emails: Queue
) -> None:
    """G50"""
    letter = a_dead_letter(emails, "a", payload={"card": "4111"})
    emails.redrive(["a"])
    lease = poll(emails)
    emails.heartbeat(lease, details={"seen": "4222"})
    emails.complete(lease, result={"paid": "4333"})

    hidden = make_desk("redrive_task").story(letter).content.decode()
    shown = make_desk("view_payload", name="eve").story(letter).content.decode()

    assert [secret in hidden for secret in ("4111", "4222", "4333")] == [False] * 3
    assert [secret in shown for secret in ("4111", "4222", "4333")] == [True] * 3


def test_after_the_redrive_the_page_tells_where_the_task_stands(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")

    def standing() -> tuple[str, str]:
        context = desk.story(letter).context
        return str(context["title"]), str(context["story"].standing)

    assert standing() == ("Dead letter", "Dead since")
    emails.redrive(["a"])
    assert standing() == ("Task", "Ready since")
    lease = poll(emails)
    emails.complete(lease)
    assert standing() == ("Task", "Done at")


def test_a_cancelled_letter_tells_who_cancelled_it(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")
    emails.cancel("a", by="7 bob", reason="customer left")

    page = desk.story(letter).content.decode()

    assert "Cancelled at" in page
    assert "7 bob" in page
    assert "customer left" in page


def test_a_letter_dead_by_the_clock_alone_has_its_page(desk: Desk, emails: Queue) -> None:
    emails.enqueue({}, id="a", max_attempts=1)
    poll(emails)

    story = desk.story(number(emails, "a")).context["story"]

    assert (story.is_dead, story.events[0].outcome) == (True, "worker vanished")


def test_what_never_died_or_never_was_has_no_page(desk: Desk, emails: Queue) -> None:
    emails.enqueue({}, id="a")
    wrong = [number(emails, "a"), 10**18, 10**30, "x", "1_2", "٣"]

    for answer in map(desk.story, wrong):  # type: ignore[arg-type]
        assert answer.status_code == 302
        assert desk.told(answer)[-1] == "There is no such dead letter."


def test_a_long_story_costs_no_more_queries_than_a_short_one(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connections[emails.using]) as queries:
            desk.story(letter)
        counts.append(len(queries))
        for _ in range(5):
            emails.redrive(["a"])
            emails.fail(poll(emails), "again", retryable=False)

    assert counts[0] == counts[1]


def test_a_row_that_vanished_without_a_record_is_told_as_gone(desk: Desk, emails: Queue) -> None:
    letter = a_dead_letter(emails, "a")
    with connections[emails.using].cursor() as cursor:
        cursor.execute(f"DELETE FROM {Task._meta.db_table}")  # noqa: S608

    answer = desk.story(letter)

    assert str(answer.context["story"].standing) == "Gone without a record since"
    assert "Redrive…" not in answer.content.decode()


def test_what_the_task_did_elsewhere_is_told_and_its_results_to_whoever_may_see_them(
    desk: Desk, make_desk: MakeDesk, emails: Queue
) -> None:
    """G52"""
    letter = a_dead_letter(emails, "a")
    [task] = Task.objects.using(emails.using)
    common = {"life": task.life, "token": task.token, "started_at": emails.now()}
    rows = Effect.objects.using(emails.using)
    rows.create(**common, name="charge <b>", done_at=emails.now(), result='"receipt 7"')
    rows.create(**common, name="mail")

    page = desk.story(letter).content.decode()
    hidden = make_desk(name="bob").story(letter).content.decode()

    for told in ("charge &lt;b&gt;", "receipt 7", "mail", "unknown"):
        assert told in page
    assert "charge &lt;b&gt;" in hidden
    assert "receipt 7" not in hidden


def test_an_erased_task_says_so(desk: Desk, emails: Queue) -> None:
    """G60: And who erased it, and why; of what was erased nothing is left."""
    letter = a_letter_with_a_past(emails)
    life = Task.objects.using(emails.using).get(pk=letter).life

    assert emails.erase(life, by="9 eve", reason="she asked for it")

    page = desk.story(letter).content.decode()
    for told in ("Erased", "9 eve", "she asked for it", "(erased)", "mailbox is back"):
        assert told in page
    for gone in ("first round", "second round", "&quot;page&quot;"):
        assert gone not in page
