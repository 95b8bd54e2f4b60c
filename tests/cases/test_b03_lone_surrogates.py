"""B03: text that Python holds and UTF-8 can't stops neither the worker nor its log.

What is refused at the call stands in django_leasequeue/testing/conformance/bad_input.py.
"""

from __future__ import annotations

import io
import logging

import pytest

from django_leasequeue.compat import TaskResultStatus
from tests.databases import on_all
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


def test_an_error_that_quotes_one_is_recorded_and_logged_and_the_next_task_runs(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """G37"""
    failing = site.enqueue(tasks.open_undecodable)
    following = site.enqueue(tasks.add, 1, 2)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    handler = logging.StreamHandler(stream)
    logging.getLogger("django_leasequeue").addHandler(handler)
    try:
        site.drain()
    finally:
        logging.getLogger("django_leasequeue").removeHandler(handler)

    failing.refresh()
    following.refresh()
    stream.seek(0)
    assert failing.status == TaskResultStatus.FAILED
    assert "caf\N{REPLACEMENT CHARACTER}.txt" in failing.errors[0].traceback
    assert following.return_value == 3
    assert f"dead queue=work id={failing.id}" in stream.read()
    assert "Logging error" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["😀", "\N{REPLACEMENT CHARACTER}", "e\u0301", "\u2028"])
def test_text_that_only_looks_odd_goes_through(site: Site, text: str) -> None:
    """G35"""
    result = site.enqueue(tasks.pay, text, False)

    site.drain()

    result.refresh()
    assert (result.args, result.return_value) == ([text, False], text)
