"""B14: no heartbeat is enough, the handler outlives its lease, and the next delivery begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.contrib.auth.models import Group

from django_leasequeue.models import TaskTransition
from tests.databases import on_all
from tests.waiting import wait_for
from tests.worker import tasks
from tests.worker.conftest import Site
from tests.worker.test_outcomes import lines

pytestmark = on_all


@pytest.fixture
def three_workers(site: Site) -> Iterator[Site]:
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(site.worker(threads=2))
        yield site


def groups(site: Site) -> list[str]:
    return list(Group.objects.using(site.using).values_list("name", flat=True))


def check_leases(site: Site) -> None:
    """Never two live ones, and tokens that grow."""
    token, over_at = 0, None
    for row in TaskTransition.objects.using(site.using).order_by("pk"):
        if row.kind == "leased":
            assert over_at is None or over_at <= row.at
            assert token < row.token
            token, over_at = row.token, row.visible_at
        elif row.kind in ("released", "acked"):
            over_at = row.at


def test_a_handler_that_outlives_every_lease_dies_and_leaves_nothing(
    three_workers: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """G7, G17, G54"""
    site = three_workers
    site.enqueue(tasks.outlive_the_lease, 3)

    wait_for(lambda: len(lines(caplog)) == 3)

    assert [line.split()[0] for line in lines(caplog)] == ["lost"] * 3
    assert site.queue.depth().dead == 1
    assert site.kinds().count("leased") - site.kinds().count("released") == 3
    assert groups(site) == []
    check_leases(site)


def test_a_handler_that_keeps_to_its_lease_in_the_end_leaves_one_row(
    three_workers: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """G7, G54"""
    site = three_workers
    site.enqueue(tasks.outlive_the_lease, 2)

    wait_for(lambda: len(lines(caplog)) == 3)

    assert sorted(line.split()[0] for line in lines(caplog)) == ["acked", "lost", "lost"]
    assert groups(site) == ["attempt 3"]
    check_leases(site)


def test_a_handler_that_asks_learns_that_its_lease_is_gone_and_why(three_workers: Site) -> None:
    """G11"""
    three_workers.enqueue(tasks.ask_until_refused)

    wait_for(lambda: bool(tasks.runs))

    assert tasks.runs == ["capped"]
