"""B09: trouble with the result comes after the work: it is no failure."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group

from tests.databases import on_all
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


@pytest.mark.parametrize("kind", ["object", "set", "large", "deep", "nan"])
def test_the_work_is_done_once_and_the_result_is_a_marked_note(site: Site, kind: str) -> None:
    """G37"""
    result = site.enqueue(tasks.return_unstorable, kind)

    site.drain()

    result.refresh()
    assert "unstorable_result" in result.return_value
    assert site.kinds() == ["enqueued", "leased", "acked"]
    assert Group.objects.using(site.using).filter(name=kind).count() == 1
