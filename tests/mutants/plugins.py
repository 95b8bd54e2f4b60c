"""What a sweep's runs of pytest do beside running tests."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

import pytest

from .follow import NOTES, PACKAGE, follow, start_again

HANGS: Final = 30
"""Seconds after which a test of a trial counts as failed. Slower ones aren't chosen."""


class Follower:
    """Note of each test what it reached, and how long that took, in the file *record*."""

    def __init__(self, record: str) -> None:
        self.record = Path(record)
        self.notes = self.record.with_suffix(".notes")
        site = self.record.with_suffix(".site")
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            "from tests.mutants.follow import follow\nfollow()\n"
        )
        os.environ |= {NOTES: str(self.notes), "PYTHONPATH": f"{site}:{PACKAGE.parent}"}
        follow()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        # What it imports wants Django's settings.
        from django_leasequeue.stores.postgres.statements import statement  # noqa: PLC0415

        statement.cache_clear()
        self.notes.write_text("")
        self.passed = True
        start_again()
        started = time.monotonic()
        answer = yield
        seconds = round(time.monotonic() - started, 2)
        places = sorted(set(self.notes.read_text().splitlines()))
        with self.record.open("a") as record:
            record.write(json.dumps([item.nodeid, self.passed, seconds, places]) + "\n")
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed = self.passed and not report.failed


class Chosen:
    """Run the tests that are *chosen*, in that order."""

    def __init__(self, chosen: Sequence[str]) -> None:
        self.chosen = chosen

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        known = {item.nodeid: item for item in items}
        items[:] = [known[name] for name in self.chosen]
        config.option.maxfail = 1
        for item in items:
            item.add_marker(pytest.mark.timeout(HANGS))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            Path("failed.txt").write_text(report.nodeid)
