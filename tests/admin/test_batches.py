"""Batches: one record for what an operator did to many, gone on with by whoever comes by."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils.translation import override

from django_leasequeue import Queue, batches
from django_leasequeue.admin.access import ReadOnlyTaskAdmin
from django_leasequeue.admin.wording import to_the_second
from django_leasequeue.models import Batch, DeadLetter, Task
from django_leasequeue.retention import prune_batches
from django_leasequeue.transitions import Kind
from django_leasequeue.worker.upkeep import Upkeep
from tests.admin.desk import Desk, MakeDesk, a_dead_letter, number, poll, states


@pytest.fixture
def slices_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request deals with one slice of two."""
    monkeypatch.setattr(batches, "SLICE", 2)
    monkeypatch.setattr("django_leasequeue.admin.verbs.SECONDS_AT_ONCE", 0)
    monkeypatch.setattr("django_leasequeue.admin.task_pages.SECONDS_AT_ONCE", 0)
    monkeypatch.setattr("django_leasequeue.admin.batches.SECONDS_AT_ONCE", 0)


def begin(desk: Desk, queue: Queue) -> Batch:
    """Redrive all that is dead, as far as one request goes."""
    until = desk.ask(0, across=True).context["form"]["until"].value()
    answer = desk.ask(0, across=True, confirmed="yes", until=until, reason="mended")
    batch = Batch.objects.using(queue.using).get()
    assert answer.headers["Location"] == desk.at("batch").url("change", batch.pk)
    return batch


def test_what_is_too_much_for_a_request_goes_on_on_a_page(
    desk: Desk, emails: Queue, slices_of_two: None
) -> None:
    """G69"""
    for id in "abc":
        a_dead_letter(emails, id)

    batch = begin(desk, emails)

    page = desk.at("batch").story(batch.pk).content.decode()
    assert '<progress id="progress" max="3" value="2">' in page
    assert states(emails, "a", "b", "c") == ["ready", "ready", "dead"]
    url = desk.at("batch").url("go_on", batch.pk)
    after_a_login = desk.client.get(url)
    assert after_a_login.headers["Location"] == desk.at("batch").url("change", batch.pk)
    assert states(emails, "c") == ["dead"]
    answer = desk.client.post(url, headers={"Accept": "application/json"})
    assert answer.json() == {"passed": 3, "done": True}
    record = desk.at("batch").story(batch.pk).content.decode()
    assert "3 redriven." in record
    assert "Ready now" not in record, "whenever that is read"


def test_a_worker_goes_on_when_the_page_is_closed(
    desk: Desk, emails: Queue, slices_of_two: None
) -> None:
    """G69"""
    for id in "abcde":
        a_dead_letter(emails, id)
    begin(desk, emails)

    upkeep = Upkeep("w1", [emails], {})
    pauses = [upkeep.turn() for _ in range(3)]

    assert states(emails, *"abcde") == ["ready"] * 5
    assert pauses[0] < pauses[-1], "no rest before it is done"


def test_what_died_after_the_question_is_not_meant_though_it_goes_on_later(
    desk: Desk, emails: Queue, slices_of_two: None
) -> None:
    """G69"""
    for id in "abc":
        a_dead_letter(emails, id)
    batch = begin(desk, emails)
    a_dead_letter(emails, "late")

    batches.go_on(batch, seconds=10)

    assert states(emails, "c", "late") == ["ready", "dead"]


def test_a_letter_that_was_redriven_meanwhile_is_not_cancelled_any_more(
    desk: Desk, emails: Queue
) -> None:
    for id in "ab":
        a_dead_letter(emails, id)
    letters = DeadLetter.objects.using(emails.using).filter(state="dead")
    batch = batches.begin(letters, verb="cancel", by="ada", letters=True)
    emails.redrive(["a"])

    done = batches.go_on(batch, seconds=10)

    assert (done.moved, done.skipped) == (1, 1)
    assert states(emails, "a", "b") == ["ready", "left"]
    assert batches.reasons(done) == {"it is no dead letter any more": 1}


def test_a_slice_that_fails_is_dealt_with_again(
    desk: Desk, emails: Queue, slices_of_two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G69: whatever the process died of, nothing moved that isn't on record."""
    for id in "abc":
        a_dead_letter(emails, id)
    batch = begin(desk, emails)
    with monkeypatch.context() as patched:
        patched.setattr(Batch, "save", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            batches.go_on(batch, seconds=10)
    assert states(emails, "c") == ["dead"]

    done = batches.go_on(batch, seconds=10)

    assert (done.moved, done.skipped) == (3, 0)


def test_one_conflict_keeps_nobody_and_is_told(desk: Desk, emails: Queue) -> None:
    """G69"""
    for id in "abc":
        a_dead_letter(emails, id, dedupe_key=id)
    emails.enqueue({}, id="twin", dedupe_key="b")

    desk.redrive(0, across=True)

    batch = Batch.objects.using(emails.using).get()
    page = desk.at("batch").story(batch.pk).content.decode()
    assert (batch.moved, batch.skipped) == (2, 1)
    assert "2 redriven, 1 skipped" in page
    assert "is held by twin" in page
    assert desk.url("change", number(emails, "b")) in page


def test_the_record_tells_what_became_of_them_since(desk: Desk, emails: Queue) -> None:
    letters = [a_dead_letter(emails, id) for id in "abcd"]
    desk.redrive(*letters, reason="mended")
    emails.complete(poll(emails))
    emails.fail(poll(emails), "still broken", retryable=False)
    emails.cancel("c")

    batch = Batch.objects.using(emails.using).get()
    fates = desk.at("batch").story(batch.pk).context["fates"]

    assert [(str(fate), count) for fate, count in fates] == [
        ("done", 1), ("dead again", 1), ("ready", 1), ("cancelled", 1),
    ]  # fmt: skip


def test_the_list_tells_who_when_why_and_which(desk: Desk, emails: Queue) -> None:
    a_dead_letter(emails, "a", tenant="acme")
    path = f"{desk.url('changelist')}?of_tenant=acme&q=a"
    desk.redrive(0, across=True, path=path, reason="mended")

    page = desk.at("batch").page().content.decode()

    for told in (f"ada (user {desk.user.pk})", "mended", "tenant: acme; “a”", "1 of 1"):
        assert told in page


def test_a_rate_spreads_them(desk: Desk, emails: Queue) -> None:
    """G61"""
    letters = [a_dead_letter(emails, id) for id in "abc"]

    said = desk.redrive(*letters, rate="0.1")

    due = (
        Task.objects.using(emails.using).order_by("visible_at").values_list("visible_at", flat=True)
    )
    # What is told is an upper bound: a second may have begun since they were given their instants.
    lasts = [to_the_second(due[2] + timedelta(seconds=late)) for late in (0, 1)]
    assert said in [f"3 redriven. One after the other, until {last}." for last in lasts]
    gaps = [later - due[0] for later in due]
    assert gaps == [timedelta(0), timedelta(seconds=10), timedelta(seconds=20)]


def test_a_rate_holds_over_slices(desk: Desk, emails: Queue, slices_of_two: None) -> None:
    """G61"""
    for id in "abcd":
        a_dead_letter(emails, id)
    letters = Task.objects.using(emails.using).all()
    batch = batches.begin(letters, verb="redrive", by="ada", rate=0.1)

    batches.go_on(batch, seconds=10)

    due = list(letters.order_by("visible_at").values_list("visible_at", flat=True))
    gaps = [round((later - due[0]).total_seconds()) for later in due]
    assert gaps == [0, 10, 20, 30]


def test_a_dry_run_moves_nothing_and_tells_what_would_stay(desk: Desk, emails: Queue) -> None:
    for id, key in (("a", "a"), ("b", "b"), ("c", "c"), ("d", "a")):
        a_dead_letter(emails, id, dedupe_key=key)
    emails.enqueue({}, id="twin", dedupe_key="b")
    until = desk.ask(0, across=True).context["form"]["until"].value()

    answer = desk.ask(
        0, across=True, confirmed="yes", until=until, rehearse="Dry run", rate="0.5", reason="why"
    )

    rehearsal = answer.context["rehearsal"]
    assert (rehearsal["moves"], rehearsal["stay"]) == (2, 2)
    assert states(emails, *"abcd") == ["dead"] * 4
    assert not Batch.objects.using(emails.using).exists()
    assert 'value="0.5"' in answer.content.decode()


def test_a_batch_is_forgotten_when_the_last_of_its_tasks_stories_may_be(
    desk: Desk, emails: Queue
) -> None:
    for id in "abc":
        a_dead_letter(emails, id)
    desk.redrive(0, across=True)
    store, rows = emails.store, batches.items_of(Batch.objects.using(emails.using).get())
    store.clock.advance(30)  # type: ignore[union-attr]

    kept = prune_batches(emails.using, {Kind.ACKED: 5, Kind.CANCELLED: 86400, Kind.DUPLICATE: 1})
    assert (kept, rows.count()) == (0, 3)
    Batch.objects.using(emails.using).update(done_at=store.now() - timedelta(days=2))
    gone = [prune_batches(emails.using, {Kind.CANCELLED: 86400}, size=2) for _ in range(4)]
    assert (gone, rows.count()) == ([2, 1, 1, 0], 0)
    assert not Batch.objects.using(emails.using).exists()


def test_without_the_right_there_are_no_batches_and_none_goes_on(
    make_desk: MakeDesk, desk: Desk, emails: Queue, slices_of_two: None
) -> None:
    """G50"""
    for id in "abc":
        a_dead_letter(emails, id)
    batch = begin(desk, emails)
    bob = make_desk(name="bob").at("batch")

    assert bob.page().status_code == 403
    assert bob.story(batch.pk).status_code == 403
    assert bob.client.post(bob.url("go_on", batch.pk)).status_code == 403
    assert states(emails, "c") == ["dead"]


def test_who_may_not_see_all_batches_sees_their_own(
    make_desk: MakeDesk, desk: Desk, emails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G51: of others' batches neither tenants nor reasons are anybody's business."""
    desk.redrive(a_dead_letter(emails, "a"))
    bob = make_desk("redrive_task", name="bob").at("batch")
    eve = make_desk("view_batch", name="eve").at("batch")

    assert (len(desk.at("batch").rows()), len(bob.rows()), len(eve.rows())) == (1, 0, 1)
    monkeypatch.setattr(ReadOnlyTaskAdmin, "tenants_for", lambda self, request: {"acme"})
    assert len(eve.rows()) == 0


def test_what_is_put_on_record_is_in_the_sites_language_and_told_in_the_readers(
    desk: Desk, emails: Queue
) -> None:
    for id in "ab":
        a_dead_letter(emails, id, dedupe_key=id)
    emails.enqueue({}, id="twin", dedupe_key="a")
    desk.client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"

    with override(None):  # a request leaves its language behind
        said = desk.redrive(0, across=True, path=f"{desk.url('changelist')}?how=failed")

    key = "der Schlüssel 'a' gehört twin"
    assert said == f"1 wieder eingereiht, 1 übersprungen: emails/a: {key}"
    assert Batch.objects.using(emails.using).get().chosen == "cause: failed"
