"""OpenTelemetry: a span for each enqueue, and one for each attempt, in the same trace.

Needs ``opentelemetry-api`` (``pip install django-leasequeue[otel]``) and ``install()`` in each
process, as in an ``AppConfig.ready()``; without it nothing of this is imported, and nothing is
stored or run for it. Names are those of OpenTelemetry's conventions for messaging.

The context travels in the payload, beside the arguments of the task: to the worker, to every
further attempt, and through a redrive. No span holds a payload.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from .around import Around
from .compat import TaskResult, task_started
from .failure import error_facts, type_path
from .lease import Lease
from .queue import Queue
from .records import Admitted, EnqueuedTask, Part, RedriveBatch
from .signals import attempt_ended, task_dead, task_retried
from .stores import store_for
from .stores.base import Store, Wake
from .transitions import Kind, TaskRecord, fold_all, json_text
from .worker.context import current_lease

CALL: Final = '{"args":'  # how the payload of a task of django.tasks begins
FAILED: Final = {"retried", "dead", "dropped"}
LAPSED: Final = {Kind.LAPSED, Kind.DEAD}


class Tracing(Around):
    """What makes the spans; the attempts under way, by token."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.started: dict[int, tuple[Span, int]] = {}

    def enqueue(
        self, store: Store, queue: str, tasks: Sequence[Admitted], wake: Wake
    ) -> list[EnqueuedTask]:
        """Enqueue under a span, whose context the tasks carry with them."""
        with self.span("send", queue, SpanKind.PRODUCER, type="send") as span:
            rest = context_text()
            carrying = [
                replace(task, payload=with_context(task.payload, rest)) if task.path else task
                for task in tasks
            ]
            stored = super().enqueue(store, queue, carrying, wake)
            if span.is_recording():
                span.set_attributes(facts_of(tasks, stored))
        return stored

    def enqueue_alike(
        self, store: Store, queue: str, like: Admitted, payloads: Iterable[str], wake: Wake
    ) -> Iterator[Part]:
        """As ``enqueue``; the span is over when all are stored."""
        with self.span("send", queue, SpanKind.PRODUCER, type="send") as span:
            rest = context_text() if like.path else ""
            carrying = (with_context(payload, rest) for payload in payloads)
            parts = list(super().enqueue_alike(store, queue, like, carrying, wake))
            if span.is_recording():
                stored = [task for part in parts for task in part.tasks]
                span.set_attributes(facts_of([like], stored))
        yield from parts

    def redrive(self, store: Store, queue: str, ids: Sequence[str], **how: Any) -> RedriveBatch:
        """Redrive under a span; the attempts that follow stay in their tasks' own traces."""
        with self.span("redrive", queue, SpanKind.CLIENT) as span:
            batch = super().redrive(store, queue, ids, **how)
            span.set_attribute("messaging.batch.message_count", batch.redriven)
        return batch

    @contextmanager
    def span(
        self, operation: str, queue: str, kind: SpanKind, type: str | None = None
    ) -> Iterator[Span]:
        named = names(operation, queue, type)
        with self.tracer.start_as_current_span(
            f"{operation} {queue}", kind=kind, attributes=named
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type_path(error))
                raise

    def task_started(self, task_result: TaskResult[..., Any], **_: Any) -> None:
        try:
            lease = current_lease().lease
        except LookupError:
            return  # another backend's task
        if str(lease.life) != task_result.id:
            return  # likewise, which one of ours has run at once
        around = carried(lease.payload_text)
        span = self.begin(lease, around)
        # After a redrive there are errors of earlier rounds.
        redriven = len(task_result.errors) >= lease.attempt
        span.set_attribute("messaging.leasequeue.redriven", redriven)
        self.started[lease.token] = span, time.time_ns()
        context.attach(trace.set_span_in_context(span, around))  # in the attempt's own context

    def begin(self, of: Lease | TaskRecord, around: context.Context, at: int | None = None) -> Span:
        """The span of an attempt: a child of the enqueue's span, and linked to it."""
        link = trace.Link(trace.get_current_span(around).get_span_context())
        return self.tracer.start_span(
            f"process {of.queue}",
            context=around,
            kind=SpanKind.CONSUMER,
            attributes=names("process", of.queue, "process") | facts_of_attempt(of),
            links=[link] if link.context.is_valid else [],
            start_time=at,
        )

    def attempt_ended(
        self, lease: Lease, outcome: str, seconds: float, error: BaseException | None, **_: Any
    ) -> None:
        length = int(seconds * 1e9)
        begun = self.started.pop(lease.token, None)
        if begun is None:
            if outcome not in FAILED:
                return  # it never began
            began_at = time.time_ns() - length  # its code couldn't be found
            begun = self.begin(lease, carried(lease.payload_text), began_at), began_at
        span, began_at = begun
        end(span, outcome, began_at + length, error)

    def worker_vanished(self, using: str, life: UUID, token: int, error: object, **_: Any) -> None:
        """Make the span of an attempt that nobody ended, from the log: as long as its lease was."""
        if error is not None:
            return  # its worker has told
        history = store_for(using).history([life])
        leased = fold_all(row for row in history if row.position <= token)
        lapsed = next(row for row in history if row.token == token and row.kind in LAPSED)
        if leased and leased.leased_at:
            around = carried(leased.payload)
            span = self.begin(leased, around, nanoseconds(leased.leased_at))
            end(span, "lapsed", nanoseconds(lapsed.at))


def end(span: Span, outcome: str, at: int, error: BaseException | None = None) -> None:
    span.set_attribute("messaging.leasequeue.outcome", outcome)
    if outcome != "acked":
        span.set_status(Status(StatusCode.ERROR, outcome))
        span.set_attribute("error.type", type_path(error) if error else outcome)
    if error:
        record(span, error, at)
    span.end(at)


def nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1e9)


def record(span: Span, error: BaseException, at: int) -> None:
    """As ``Span.record_exception``, of an error that may refuse to be printed."""
    facts = error_facts(error)
    told = {
        "exception.type": facts["type"],
        "exception.message": facts["message"],
        "exception.stacktrace": facts["traceback"],
    }
    span.add_event("exception", told, timestamp=at)


def names(operation: str, queue: str, type: str | None) -> dict[str, str]:
    named = {
        "messaging.system": "leasequeue",
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
    }
    return named | ({"messaging.operation.type": type} if type else {})


def facts_of(admitted: Sequence[Admitted], stored: Sequence[EnqueuedTask]) -> dict[str, Any]:
    """What a span tells of the tasks that were enqueued under it."""
    duplicates = sum(task.duplicate for task in stored)
    facts: dict[str, Any] = {"messaging.leasequeue.duplicates": duplicates}
    if len(stored) == 1:
        facts["messaging.message.id"] = str(stored[0].life)
        facts["messaging.leasequeue.id"] = stored[0].id
    else:
        facts["messaging.batch.message_count"] = len(stored)
    paths = {task.path for task in admitted}
    return facts | ({"code.function.name": paths.pop()} if len(paths) == 1 else {})


def facts_of_attempt(lease: Lease | TaskRecord) -> dict[str, Any]:
    return {
        "messaging.message.id": str(lease.life),
        "messaging.client.id": lease.worker,
        "messaging.leasequeue.id": lease.id,
        "messaging.leasequeue.tenant": lease.tenant,
        "messaging.leasequeue.attempt": lease.attempt,
        "messaging.leasequeue.token": lease.token,
        "code.function.name": lease.path,
    }


def context_text() -> str:
    """The current context, as the end of a payload; empty where there is none."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return f',"trace":{json_text(carrier)}}}' if carrier else ""


def with_context(payload: str, rest: str) -> str:
    """*payload*, where it is that of a task of django.tasks, with what ``context_text`` says."""
    return payload[:-1] + rest if rest and payload.startswith(CALL) else payload


def carried(payload_text: str) -> context.Context:
    """The context that a task carries; an empty one where it carries none."""
    payload = json.loads(payload_text)
    carrier = payload.get("trace") if isinstance(payload, dict) else None
    return propagate.extract(carrier if isinstance(carrier, dict) else {}, context.Context())


def install(tracer_provider: TracerProvider | None = None) -> None:
    """Trace from here on, in this process; once is enough.

    Args:
        tracer_provider: where spans go; None: OpenTelemetry's own, whenever it is set.
    """
    if not isinstance(Queue.around, Tracing):
        tracing = Tracing(trace.get_tracer("django_leasequeue", tracer_provider=tracer_provider))
        task_started.connect(tracing.task_started)
        attempt_ended.connect(tracing.attempt_ended)
        task_retried.connect(tracing.worker_vanished)
        task_dead.connect(tracing.worker_vanished)
        Queue.around = tracing
