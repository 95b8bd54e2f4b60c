"""What OpenTelemetry is told: of an enqueue, and of each attempt in whatever process it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from django_leasequeue import tracing
from django_leasequeue.compat import ImmediateBackend, task_started
from django_leasequeue.models import TaskTransition
from django_leasequeue.queue import Queue
from django_leasequeue.signals import attempt_ended, task_dead, task_retried
from django_leasequeue.testing import run_tasks
from tests.databases import on_all
from tests.waiting import PATIENCE

from . import tasks
from .conftest import ROOT, Site

pytestmark = on_all


class Spans:
    """What was traced in this process."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("the site's")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> Any:
        [span] = self.named(name)
        return span

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        every = self.exporter.get_finished_spans()
        return [
            each for each in every if each.parent and each.parent.span_id == parent.context.span_id
        ]

    def told(self, name: str, attribute: str) -> list[Any]:
        found = [span.attributes or {} for span in self.named(name)]
        return [each.get(f"messaging.{attribute}") for each in found]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    monkeypatch.setattr(Queue, "around", Queue.around)  # so that it comes back
    spans = Spans()
    tracing.install(spans.provider)
    tracing.install(spans.provider)  # once is enough
    yield spans
    traced = Queue.around
    assert isinstance(traced, tracing.Tracing)
    task_started.disconnect(traced.task_started)
    attempt_ended.disconnect(traced.attempt_ended)
    task_retried.disconnect(traced.worker_vanished)
    task_dead.disconnect(traced.worker_vanished)


def test_an_attempt_is_a_child_of_the_enqueue_and_that_of_what_the_site_did(
    site: Site, spans: Spans
) -> None:
    """G70"""
    with spans.tracer.start_as_current_span("a request") as request:
        result = site.enqueue(tasks.add, 1, 1)
    site.drain()

    send, process = spans.one("send work"), spans.one("process work")
    assert send.parent.span_id == request.get_span_context().span_id
    assert (process.parent.span_id, process.parent.is_remote) == (send.context.span_id, True)
    assert [link.context.span_id for link in process.links] == [send.context.span_id]
    assert process.context.trace_id == request.get_span_context().trace_id
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.end_time <= process.start_time <= process.end_time
    for span in (send, process):
        assert span.attributes["messaging.system"] == "leasequeue"
        assert span.attributes["messaging.destination.name"] == "work"
        assert span.attributes["messaging.message.id"] == result.id
        assert span.attributes["code.function.name"] == "tests.worker.tasks.add"
    assert process.attributes["messaging.leasequeue.outcome"] == "acked"
    assert process.status.status_code is StatusCode.UNSET


def test_each_attempt_tells_how_it_ended_and_a_redrive_shows(site: Site, spans: Spans) -> None:
    """G70"""
    site.enqueue(tasks.fail, "no order 17")
    site.drain()
    site.queue.redrive_all()
    site.drain()

    told = [
        spans.told("process work", f"leasequeue.{each}")
        for each in ("attempt", "outcome", "redriven")
    ]
    assert list(zip(*told, strict=True)) == [
        *((1, "retried", False), (2, "retried", False), (3, "dead", False)),
        *((1, "retried", True), (2, "retried", True), (3, "dead", True)),
    ]
    for span in spans.named("process work"):
        [event] = span.events
        assert event.attributes is not None
        assert event.attributes["exception.type"] == "builtins.ValueError"
        assert event.attributes["exception.message"] == "no order 17"
        assert "in fail" in str(event.attributes["exception.stacktrace"])
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes
        assert span.attributes["error.type"] == "builtins.ValueError"
        assert span.context.trace_id == spans.one("send work").context.trace_id
    assert spans.told("redrive work", "batch.message_count") == [1]


@pytest.mark.parametrize("options", [{}, {"async_tasks": 2}], ids=["in a thread", "on the loop"])
def test_what_a_task_enqueues_is_in_its_trace_but_not_in_that_of_the_one_before(
    postgres: Site, spans: Spans, options: dict[str, Any]
) -> None:
    before = postgres.enqueue(tasks.add_later, 1, 1)
    postgres.enqueue(tasks.enqueue_one_later)
    postgres.drain(threads=1, **options)

    first, second, from_the_task = spans.named("send work")
    [process] = spans.below(second)
    assert spans.below(process) == [from_the_task]
    assert from_the_task.context.trace_id == second.context.trace_id != first.context.trace_id
    assert (first.attributes or {})["messaging.message.id"] == before.id


def test_a_span_is_current_for_its_task_alone(postgres: Site, spans: Spans) -> None:
    postgres.enqueue(tasks.tell_the_trace)
    with spans.tracer.start_as_current_span("a test") as around:
        [result] = run_tasks(backend=postgres.alias)

        assert result.return_value == trace.format_trace_id(spans.one("send work").context.trace_id)
        assert trace.get_current_span() is around


def test_a_task_that_another_backend_runs_at_once_is_not_taken_for_it(
    postgres: Site, spans: Spans, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{ImmediateBackend.__module__}.{ImmediateBackend.__name__}"
    settings.TASKS = settings.TASKS | {"at once": {"BACKEND": path}}
    result = postgres.enqueue(tasks.run_another_at_once)
    postgres.drain()
    result.refresh()

    assert result.return_value is True
    assert tasks.run_another_at_once.func()
    assert tasks.runs == [(1, 2), (1, 2)]
    assert "Error calling" not in caplog.text
    assert len(spans.named("process work")) == 1


def test_tasks_enqueued_together_share_one_span(postgres: Site, spans: Spans) -> None:
    task = tasks.add.using(backend=postgres.alias, dedupe_key=None)
    task.enqueue_many([(1, 1), (2, 2)])
    postgres.drain()

    send = spans.one("send work")
    assert spans.told("send work", "batch.message_count") == [2]
    parents = {span.parent and span.parent.span_id for span in spans.named("process work")}
    assert parents == {send.context.span_id}


def test_a_duplicate_is_told_and_carries_nothing(postgres: Site, spans: Spans) -> None:
    first = postgres.enqueue(tasks.add, 1, 1, dedupe_key="k")
    postgres.enqueue(tasks.add, 1, 1, dedupe_key="k")

    assert spans.told("send work", "leasequeue.duplicates") == [0, 1]
    assert spans.told("send work", "message.id") == [first.id, first.id]


def test_what_is_redriven_after_its_only_attempt_shows_it(postgres: Site, spans: Spans) -> None:
    postgres.enqueue(tasks.open_undecodable)
    postgres.drain()
    postgres.queue.redrive_all()
    postgres.drain()

    assert spans.told("process work", "leasequeue.redriven") == [False, True]


def test_what_never_began_has_no_span_but_where_it_failed(postgres: Site, spans: Spans) -> None:
    postgres.queue.enqueue({})
    [lease] = postgres.queue.claim(worker="w")
    for outcome in ("released", "lost", "dead"):
        attempt_ended.send(None, lease=lease, outcome=outcome, seconds=2.5, error=None)

    process = spans.one("process work")
    assert process.attributes["error.type"] == "dead"
    assert process.end_time - process.start_time == 2_500_000_000


def test_where_no_span_is_made_nothing_is_carried() -> None:
    payload = '{"args":[],"kwargs":{}}'
    assert tracing.with_context(payload, tracing.context_text()) == payload


def test_a_payload_that_a_site_reads_itself_stays_as_it_is(postgres: Site, spans: Spans) -> None:
    postgres.queue.enqueue({"args": [1]})

    [lease] = postgres.queue.claim(worker="w")
    assert lease.payload == {"args": [1]}


def test_an_attempt_whose_code_is_gone_is_told(postgres: Site, spans: Spans) -> None:
    postgres.queue.enqueue(
        {"args": [], "kwargs": {}}, path="tests.worker.tasks.gone", max_attempts=1
    )
    postgres.drain()

    process = spans.one("process work")
    assert process.attributes["messaging.leasequeue.outcome"] == "dead"
    assert process.attributes["error.type"].endswith("TaskNotFoundError")


def test_an_attempt_whose_worker_vanished_is_told_by_who_finds_it(site: Site, spans: Spans) -> None:
    """G70"""
    result = site.enqueue(tasks.add, 1, 1)
    leases = []
    for _ in range(3):
        leases += site.queue.claim(worker="gone")
        site.queue.adopt(worker="gone")

    assert site.queue.depth().dead == 1
    send, told = spans.one("send work"), spans.named("process work")
    for lease, span, attempt in zip(leases, told, (1, 2, 3), strict=True):
        assert span.attributes and span.parent and span.start_time and span.end_time  # noqa: PT018
        assert span.parent.span_id == send.context.span_id
        assert span.attributes["messaging.message.id"] == result.id
        assert span.attributes["messaging.client.id"] == "gone"
        assert span.attributes["messaging.leasequeue.attempt"] == attempt
        assert span.attributes["messaging.leasequeue.outcome"] == "lapsed"
        assert span.attributes["error.type"] == "lapsed"
        assert abs(span.start_time / 1e9 - lease.leased_at.timestamp()) < 1e-5
        assert span.end_time > span.start_time


def test_an_enqueue_that_fails_tells_why(postgres: Site, spans: Spans) -> None:
    postgres.queue.enqueue({}, id="a")
    task = tasks.add.using(backend=postgres.alias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(postgres.queue.store), "enqueue", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            task.enqueue(1, 1)

    failed = spans.named("send work")[-1]
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "builtins.ZeroDivisionError"


def test_without_it_nothing_is_carried(postgres: Site) -> None:
    """G70; that nothing is imported, lint-imports holds."""
    postgres.enqueue(tasks.add, 1, 1)

    [lease] = postgres.queue.claim(worker="w")
    assert lease.payload == {"args": [1, 1], "kwargs": {}}


def test_the_trace_goes_on_in_another_process(postgres: Site, spans: Spans) -> None:
    """G70"""
    postgres.enqueue(tasks.tell_the_trace)
    process: Any = postgres.start("--drain", FURTHER_APPS="tests.worker.traced.Traced")
    assert process.wait(PATIENCE) == 0, "".join(process.lines)

    send = spans.one("send work")
    [acked] = TaskTransition.objects.filter(kind="acked")
    assert acked.transition.facts["result"] == trace.format_trace_id(send.context.trace_id)


def test_the_docs_name_every_attribute(postgres: Site, spans: Spans) -> None:
    postgres.enqueue(tasks.fail, "no")
    postgres.drain()
    postgres.queue.redrive_all()

    page = (ROOT / "docs/recipes/opentelemetry.md").read_text()
    listed = set(re.findall(r"`((?:messaging|code|error)\.[a-z_.]+)`", page))
    every = spans.exporter.get_finished_spans()
    assert listed == {name for span in every for name in span.attributes or {}}
