"""B13: what certifies that the work is alive must not depend on the work."""

from __future__ import annotations

from tests.databases import on_all
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


def test_tasks_that_never_let_go_of_the_interpreter_are_renewed_all_the_same(site: Site) -> None:
    """G39"""
    results = [site.enqueue(tasks.compute, 5.5) for _ in range(4)]

    site.drain(threads=4)

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [1, 1, 1, 1]
    assert site.kinds().count("leased") == site.kinds().count("acked") == 4


def test_an_async_task_that_blocks_its_loop_is_renewed_all_the_same(site: Site) -> None:
    """G39"""
    result = site.enqueue(tasks.block_the_loop, 4 / 3 * tasks.RENEWED)

    site.drain()

    result.refresh()
    assert result.return_value == 1
    assert site.kinds().count("heartbeat") >= 2
    assert site.kinds().count("leased") == site.kinds().count("acked") == 1
