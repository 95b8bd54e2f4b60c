"""Runs of pytest that begin half-way: forked where all but our own code is imported already."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from .copies import PACKAGE, copy_to

OURS: Final = (PACKAGE, "example_project", "tests")
SLOW_TO_IMPORT: Final = (
    "hypothesis.stateful", "pytest_django.plugin", "pytest_timeout", "xdist.plugin",
    "django.contrib.admin", "django.db.backends.postgresql.base", "django.db.backends.sqlite3.base",
    "django.test", "prometheus_client", "opentelemetry.sdk.trace", "reportlab.platypus",
    "reportlab.graphics.barcode.code128", "environ", "xml.sax", "csv", "tomllib",
)  # fmt: skip
OPTIONS: Final = (
    "-q", "--reuse-db", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:benchmark",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
DATABASE: Final = f"sweep_{os.getpid()}"  # how the names of all databases begin
ALL_PASSED, SOME_FAILED, BROKEN = 0, 1, 3  # pytest's exit statuses


@dataclass
class Home:
    """Where this process works: in a copy of the project, with databases of its own."""

    folder: Path
    url: str
    written: int = 0

    def run(
        self, plugin: str, given: Any, tests: Sequence[str], seconds: float = 300
    ) -> int | None:
        """Pytest's exit status, with a plugin of ``.plugins``; None: it took longer."""
        if not (child := os.fork()):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            status = BROKEN
            try:
                status = self.pytest(plugin, given, tests)
            finally:
                os._exit(status)
        until = time.monotonic() + seconds
        try:
            while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
                time.sleep(0.02)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # whom a failed test left behind, too
        if done[0]:
            return os.waitstatus_to_exitcode(done[1])
        os.waitpid(child, 0)
        self.move()
        return None

    def move(self) -> None:
        """To new databases: who knows what is left in the old ones."""
        self.url += "_"

    def pytest(self, plugin: str, given: Any, tests: Sequence[str]) -> int:
        os.chdir(self.folder)
        sys.path[0] = str(self.folder)
        sys.dont_write_bytecode = False  # the next run is glad of it
        for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
            del sys.modules[name]
        os.environ |= {"DATABASE_URL": self.url, "MARIADB_URL": ""}
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder / "tmp")
        with self.said.open("wb") as said:
            os.dup2(said.fileno(), sys.stdout.fileno())
            os.dup2(said.fileno(), sys.stderr.fileno())
        made = getattr(importlib.import_module("tests.mutants.plugins"), plugin)(given)
        return int(pytest.main([*OPTIONS, *tests], plugins=[made]))

    @property
    def said(self) -> Path:
        return self.folder / "said.txt"

    def write(self, file: str, source: bytes) -> None:
        """Into the copy's package; Python tells by time and size whether it knows a file."""
        self.written += 1
        path = self.folder / PACKAGE / file
        path.write_bytes(source)
        os.utime(path, (self.written, self.written))


def prepare() -> None:
    """Before any process is forked."""
    for module in SLOW_TO_IMPORT:
        importlib.import_module(module)


homes: Final[list[Home]] = []


def move_in(folder: str, url: str) -> None:
    """What a process of the pool begins with."""
    server, number = url.rpartition("/")[0], os.getpid()
    home = Home(Path(folder) / str(number), f"{server}/{DATABASE}_{number}")
    copy_to(home.folder)
    (home.folder / "tmp").mkdir()
    homes.append(home)
