"""What Prometheus is told: of the database's queues, and of this process's work."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections
from django.test import RequestFactory
from prometheus_client import CollectorRegistry

from django_leasequeue import metrics, signals
from django_leasequeue.overview.counting import COUNTED_MIN
from tests.databases import on_all
from tests.waiting import PATIENCE, in_thread

from . import tasks
from .conftest import Site

pytestmark = on_all


@pytest.fixture
def registry(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CollectorRegistry]:
    """A registry of the test's own, that nothing counts into afterwards."""
    place = "site" if "site" in request.fixturenames else "postgres"
    using = request.getfixturevalue(place).using
    monkeypatch.setattr(metrics, "served_databases", lambda: [using])
    counted = [getattr(signals, name) for name in metrics.COUNTED]
    before = [(signal, list(signal.receivers)) for signal in counted]
    fresh = CollectorRegistry()
    metrics.install(fresh)
    yield fresh
    metrics.installed.clear()
    for signal, receivers in before:
        signal.receivers = receivers
        signal.sender_receivers_cache.clear()


def test_attempts_are_counted_by_how_they_ended(site: Site, registry: CollectorRegistry) -> None:
    site.enqueue(tasks.add, 1, 1)
    site.enqueue(tasks.fail, "no")

    site.drain()

    def told(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"leasequeue_{name}", {"queue": "work", **labels})

    assert told("attempts_total", outcome="acked") == 1
    assert told("attempts_total", outcome="dead") == 1
    assert told("attempts_total", outcome="retried") == 2
    assert told("deaths_total") == 1
    assert told("lapses_total") is None
    assert told("task_duration_seconds_count", outcome="acked") == 1
    assert told("task_wait_seconds_count") == 4
    assert told("tasks", database=site.using, state="dead") == 1
    assert told("tasks", database=site.using, state="visible") == 0
    assert told("workers", database=site.using) == 0


def test_what_operators_and_enqueuers_meet_is_counted(
    site: Site, registry: CollectorRegistry
) -> None:
    site.queue.enqueue({}, id="a")
    site.queue.enqueue({}, id="a")
    [lease] = site.queue.claim(worker="w")
    site.queue.fail(lease, "no", retryable=False)
    site.queue.redrive(["a"])
    with pytest.raises(Exception, match="finished"):
        site.queue.complete(lease)

    def told(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"leasequeue_{name}", {"queue": "work", **labels})

    assert told("duplicates_total") == 1
    assert told("redrives_total") == 1
    assert told("refused_calls_total", reason="finished") == 1


def test_a_pause_is_told(site: Site, registry: CollectorRegistry) -> None:
    site.queue.pause()

    assert (
        registry.get_sample_value("leasequeue_paused", {"database": site.using, "queue": "work"})
        == 1
    )


def test_a_database_that_is_away_is_told_and_no_error(
    site: Site, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(using: str) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(metrics, "overview", away)

    told = {"database": site.using}
    assert registry.get_sample_value("leasequeue_database_up", told) == 0


def test_a_scrape_of_its_own_thread_leaves_no_connection(
    site: Site, registry: CollectorRegistry
) -> None:
    def scrape(*, alone: bool) -> bool:
        list(metrics.QueueCollector(alone=alone).collect())
        left = connections[site.using].connection is not None
        connections.close_all()
        return left

    assert in_thread(lambda: scrape(alone=True)).result(PATIENCE) is False
    assert in_thread(lambda: scrape(alone=False)).result(PATIENCE) is True


def test_who_asks_for_counters_alone_by_name_asks_no_database(
    site: Site, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the docs have it for many workers."""
    page = Path(__file__).resolve().parents[2] / "docs/recipes/prometheus.md"
    names = re.findall(r"^ +- (leasequeue_\w+)$", page.read_text(), re.MULTILINE)
    site.enqueue(tasks.add, 1, 1)
    site.drain()
    monkeypatch.setattr(metrics, "overview", None)

    told = {
        sample.name
        for metric in registry.restricted_registry(names).collect()
        for sample in metric.samples
    }

    assert {"leasequeue_attempts_total", "leasequeue_task_wait_seconds_bucket"} <= told <= {*names}


@pytest.fixture
def default_registry(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REGISTRY", registry)
    monkeypatch.setattr(metrics, "install", lambda: None)


def test_the_view_tells_it_as_text(postgres: Site, default_registry: None) -> None:
    answer = metrics.view(RequestFactory().get("/"))

    assert answer["Content-Type"].startswith("text/plain")
    assert (
        b'leasequeue_tasks{database="default",queue="work",state="visible"} 0.0' in answer.content
    )


def test_a_worker_serves_it_on_a_port_or_says_why_not(
    postgres: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "install", lambda alone: None)

    def drain(port: int) -> None:
        call_command("leasequeue_worker", backend=postgres.alias, drain=True, metrics_port=port)

    with socket.create_server(("", 0)) as taken:
        port: Any = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"--metrics-port {port}: "):
            drain(port)
    with pytest.raises(CommandError, match="--metrics-port 65536: "):
        drain(65536)

    drain(port)

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        assert b"python_info" in answer.read()


def test_the_docs_name_the_metrics_that_there_are(
    postgres: Site, registry: CollectorRegistry
) -> None:
    """And the alerts ask for no other."""
    docs = Path(__file__).resolve().parents[2] / "docs/recipes"
    there = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for metric in registry.collect()
    }

    def asked(page: str) -> set[str]:
        names = re.findall(r"\bleasequeue_[a-z_]+", (docs / page).read_text())
        return {re.sub("_(bucket|sum|count)$", "", name) for name in names}

    assert asked("prometheus.md") == there | {"leasequeue_worker"}  # that is the command
    assert asked("alerts.yml") <= there
    assert f'state="dead"}}) <= {COUNTED_MIN}\n' in (docs / "alerts.yml").read_text()


def test_what_never_ran_says_nothing_of_how_long_tasks_take(
    postgres: Site, registry: CollectorRegistry
) -> None:
    postgres.queue.enqueue({})
    [lease] = postgres.queue.claim(worker="w")

    signals.attempt_ended.send(None, lease=lease, outcome="released", seconds=0.0, error=None)

    def told(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"leasequeue_{name}", {"queue": "work", **labels})

    assert told("attempts_total", outcome="released") == 1
    assert told("task_wait_seconds_count") is None
