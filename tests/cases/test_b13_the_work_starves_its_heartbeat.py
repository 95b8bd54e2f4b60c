"""B13: what certifies that the work is alive must not depend on the work."""

from __future__ import annotations

import pytest

from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = pytest.mark.django_db(databases=["default", "sqlite"], transaction=True)


def test_tasks_that_never_let_go_of_the_interpreter_are_renewed_all_the_same(site: Site) -> None:
    """G39"""
    results = [site.enqueue(tasks.compute, 3.5) for _ in range(3)]

    site.drain(threads=3)

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [1, 1, 1]
    assert "lapsed" not in site.kinds()
