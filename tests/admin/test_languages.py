"""The admin in each language: no word of ours stays English."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest
from django.utils.translation import override, to_language

from django_leasequeue import Queue, QueuePolicy
from django_leasequeue.models import Batch, Effect, Task, TaskTransition, Worker
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind
from tests.admin.desk import Answer, Desk, MakeDesk, a_dead_letter, number, poll
from tests.messages import languages, translated

# What a page shows beside its own words: all that is stored here has a digit or is in capitals.
DATA: Final = re.compile(r"\(user \d+\)|\S*(?:\d|[A-Z]{2})\S*")
HIDDEN: Final = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
SHOWN: Final = re.compile(
    r'>([^<>]+)<|(?:title|aria-label|placeholder)="([^"]+)"'
    r'|<input type="submit"[^>]*value="([^"]+)"'
)
WORD: Final = re.compile(r"[A-Za-z_]{2,}")
# Units, the log's own words, what is typed, names of the settings, and words of Django's own that
# it has no translation for, or the same.
ANY_LANGUAGE: Final = (
    {"min", *map(str, Kind)}
    | {"manage", "py", "leasequeue_worker"}
    | {"mail", "orders", "urgent", "work", "Northwind", "Traders"}
    | {"Run", "Select", "an", "option", "Filter", "by", "Start", "Pagination", "Search"}
)


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    seen = ("view_batch", "view_overview", "view_pause", "view_payload")
    return make_desk(*seen, "redrive_task", "cancel_task", "pause_queue", name="USER1")


@pytest.fixture
def queue(desk: Desk) -> Queue:
    """Tasks in every state, and something of all that pages tell."""
    long_ago = Queue("Q1", policy=QueuePolicy(max_attempts=1), clock=FakeClock())
    for id in ("LOST1", "LOST2"):
        long_ago.enqueue({}, id=id)
        poll(long_ago, "W1")
    for id in ("DEAD1", "DEAD2"):
        a_dead_letter(long_ago, id, error="E1", payload={}, tenant="T1", dedupe_key=f"{id}KEY")
    queue = Queue("Q1")
    queue.enqueue({}, id="DONE1")
    queue.complete(poll(queue, "W1"), result={})
    queue.enqueue({}, id="RUN1")
    queue.heartbeat(poll(queue, "W1"), details={"N": 1})
    queue.enqueue({}, id="READY1", tenant="T1", dedupe_key="DEAD1KEY")
    queue.enqueue({}, id="LATER1", run_after=timedelta(hours=1))
    assert ", 1 skipped" in desk.redrive(0, across=True, reason="R1")
    desk.page()  # where that is said, in English
    Queue("Q2").pause(by="USER1", reason="R1")
    life = Task.objects.get(task_id="RUN1").life
    Effect.objects.create(life=life, name="E1", token=1, started_at=queue.now())
    for name, seconds in (("W1", 0), ("W2", 1000)):
        a_worker(name, queue, seconds)
    return queue


def a_worker(name: str, queue: Queue, seconds: float) -> None:
    runs = {"queue": "Q1", "tenant": "", "id": "RUN1", "life": "", "path": "", "attempt": 1}
    now = queue.now()
    Worker.objects.create(
        **{"name": name, "host": "H1", "pid": 1, "threads": 1, "queues": '["Q1"]'},
        **{"started_at": now, "seen_at": now - timedelta(seconds=seconds)},
        tasks=json.dumps([runs | {"token": 1, "since": str(now)}]),
    )


def pages(desk: Desk, *, every: bool) -> Iterator[Answer]:
    dead, run = (number(Queue("Q1"), id) for id in ("DEAD1", "RUN1"))
    yield desk.client.get(desk.url("groups"))
    yield desk.story(dead)
    if not every:
        return
    done = TaskTransition.objects.get(task_id="DONE1").pk
    leased = TaskTransition.objects.filter(kind=Kind.LEASED)[0].pk
    tasks, log, batches = desk.at("task"), desk.at("tasktransition"), desk.at("batch")
    queues = desk.at("overview")
    for address in (
        *("/admin/leasequeue/", queues.url("changelist"), f"{queues.url('changelist')}?refresh="),
        *(f"{queues.url('pause')}?queue=Q1", f"{queues.url('resume')}?queue=Q2"),
        *(desk.at("pause").url("changelist"), desk.url("changelist"), tasks.url("changelist")),
        *(tasks.url("change", done), tasks.url("change", run), log.url("changelist")),
        *(log.url("change", leased), batches.url("change", Batch.objects.get().pk)),
        *(each.url("change", 0) for each in (desk, tasks, log, batches)),  # and what is said then
    ):
        yield desk.client.get(address, follow=True)
    yield desk.ask(dead, confirmed="yes", rehearse="yes", rate="1")
    yield tasks.ask(path=tasks.url("cancel", run))


def texts(page: Answer) -> Iterator[str]:
    """What people see or hear of *page*, but for what is stored."""
    for found in SHOWN.findall(HIDDEN.sub("", page.content.decode())):
        yield " ".join(DATA.sub("", html.unescape("".join(found))).split())


def english(language: str) -> set[str]:
    """Our own texts, as far as they are others in *language*."""
    messages = list(translated(language))
    texts = {message.id for message in messages if isinstance(message.id, str)}
    return texts - {message.string for message in messages} - {""} - ANY_LANGUAGE


def test_no_page_keeps_a_word_of_english(desk: Desk, queue: Queue) -> None:
    """Every page in Japanese, where any word in Latin letters shows; some in the other languages,
    whose catalogues are complete: ``tests/house/test_messages.py``."""
    left = []
    for language in languages():
        desk.client.defaults["HTTP_ACCEPT_LANGUAGE"] = to_language(language)
        with override(None):  # a request leaves its language behind
            for page in pages(desk, every=language == "ja"):
                assert page.headers["Content-Language"] == to_language(language)
                seen = set(texts(page))
                words = {word for text in seen for word in WORD.findall(text)} - ANY_LANGUAGE
                own = words if language == "ja" else seen & english(language)
                left += [(language, page.request["PATH_INFO"], word) for word in sorted(own)]

    assert left == []
