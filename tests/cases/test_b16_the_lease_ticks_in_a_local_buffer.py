"""B16: a task must not wait in one worker while its lease runs and another worker is idle."""

from __future__ import annotations

from tests.databases import on_all
from tests.waiting import wait_for
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


def test_two_workers_share_four_tasks_and_no_lease_lapses(site: Site) -> None:
    """G39"""
    results = [site.enqueue(tasks.take_a_moment) for _ in range(4)]

    with site.worker() as first, site.worker() as second:
        wait_for(lambda: site.kinds().count("acked") == 4)

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [1, 1, 1, 1]
    assert {result.worker_ids[0] for result in results} == {first.name, second.name}
    assert "lapsed" not in site.kinds()
