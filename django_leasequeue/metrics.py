"""Prometheus: what the queues hold, and what this process's workers did.

Needs ``prometheus-client`` (``pip install django-leasequeue[metrics]``). A worker serves them with
``--metrics-port``; a site by the view, as in ``path("metrics", django_leasequeue.metrics.view)``:
put it where your Prometheus reaches it and nobody else does.

What the queues hold is read from the database at each scrape, at a bounded cost: every process
that is scraped tells the same, so that alerts take the maximum. The rest counts from the start of
the process, as Prometheus wants it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.db import Error, connections
from django.http import HttpRequest, HttpResponse
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from . import signals
from .lease import Lease
from .overview import overview, served_databases
from .overview.counting import STANDINGS
from .overview.rates import WHAT

BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
COUNTED: Final = (  # the signals that a method of Metrics hears
    *("attempt_ended", "task_retried", "task_dead", "task_redriven"),
    *("task_duplicate", "lease_lost"),
)


class QueueCollector(Collector):
    """The queues of our backends' databases, as they are when asked.

    Args:
        alone: whether nobody else closes the connections of the thread that asks.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self.alone = alone

    def describe(self) -> list[Any]:
        """Nothing, so that registering asks no database."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See Collector."""
        try:
            yield from self.gauges()
        finally:
            if self.alone:
                connections.close_all()

    def gauges(self) -> Iterator[GaugeMetricFamily]:
        up = gauge("database_up", "Whether it could be asked just now.")
        held = gauge("tasks", "Held tasks; of many of a kind, about how many.", "queue", "state")
        oldest = gauge(
            "oldest_visible_age_seconds",
            "How long the oldest visible task has waited; 0 where none does.",
            "queue",
        )
        rate = gauge(
            "events_per_minute", "Over the last hour, estimated on a busy log.", "queue", "event"
        )
        workers = gauge("workers", "Workers alive that serve the queue.", "queue")
        paused = gauge("paused", "1 while nothing may be claimed.", "queue")
        for using in served_databases():
            try:
                seen = overview(using)
            except Error:
                up.add_metric([using], 0)
                continue
            up.add_metric([using], 1)
            for view in seen.queues:
                place = [using, view.name]
                for state in STANDINGS:
                    held.add_metric([*place, state], getattr(view.total, state))
                oldest.add_metric(place, view.oldest or 0.0)
                for what in WHAT:
                    rate.add_metric([*place, what], view.rates[0].per_minute(what))
                workers.add_metric(place, len(view.workers))
                paused.add_metric(place, int(view.paused is not None))
        yield from (up, held, oldest, rate, workers, paused)


def gauge(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"leasequeue_{name}", about, labels=["database", *labels])


class Metrics:
    """Counters and histograms of this process, fed by the queue's signals."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"leasequeue_{name}", about, ["queue", *labels], registry=registry)

        def histogram(name: str, about: str, *labels: str) -> Histogram:
            named = ["queue", *labels]
            return Histogram(f"leasequeue_{name}", about, named, buckets=BUCKETS, registry=registry)

        self.duration = histogram("task_duration_seconds", "How long an attempt ran.", "outcome")
        self.wait = histogram(
            "task_wait_seconds", "How long a task was visible before it was claimed."
        )
        self.attempts = counter("attempts", "How attempts ended.", "outcome")
        self.lapses = counter("lapses", "Leases that ran out, as written down here.")
        self.deaths = counter("deaths", "Tasks that became dead letters, likewise.")
        self.redrives = counter("redrives", "Dead letters made ready again.")
        self.duplicates = counter("duplicates", "Enqueues that met a held id or a live key.")
        self.refused = counter("refused_calls", "Calls on leases that weren't live.", "reason")
        for name in COUNTED:
            getattr(signals, name).connect(getattr(self, name))

    def attempt_ended(self, lease: Lease, outcome: str, seconds: float, **_: Any) -> None:
        self.attempts.labels(lease.queue, outcome).inc()
        if seconds:  # what was given back, or lost before it began, says nothing of how long
            waited = max(0.0, (lease.leased_at - lease.visible_since).total_seconds())
            self.duration.labels(lease.queue, outcome).observe(seconds)
            self.wait.labels(lease.queue).observe(waited)

    def task_retried(self, queue: str, error: Any, **_: Any) -> None:
        if error is None:
            self.lapses.labels(queue).inc()

    def task_dead(self, queue: str, error: Any, **_: Any) -> None:
        self.deaths.labels(queue).inc()
        if error is None:
            self.lapses.labels(queue).inc()

    def task_redriven(self, queue: str, **_: Any) -> None:
        self.redrives.labels(queue).inc()

    def task_duplicate(self, queue: str, **_: Any) -> None:
        self.duplicates.labels(queue).inc()

    def lease_lost(self, lease: Lease, reason: str, **_: Any) -> None:
        self.refused.labels(lease.queue, str(reason)).inc()


installed: Final[dict[CollectorRegistry, Metrics]] = {}


def install(registry: CollectorRegistry = REGISTRY, *, alone: bool = False) -> Metrics:
    """Count from here on, and answer the scrapes of *registry*; once is enough.

    Args:
        alone: see QueueCollector.
    """
    if registry not in installed:
        installed[registry] = Metrics(registry)
        registry.register(QueueCollector(alone=alone))
    return installed[registry]


def serve(port: int) -> None:
    """Answer scrapes on *port*, in a thread of their own."""
    install(alone=True)  # each scrape has a thread of its own
    start_http_server(port)


def view(request: HttpRequest) -> HttpResponse:
    """See the module."""
    install()
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)
