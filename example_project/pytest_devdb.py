"""pytest plugin: a PostgreSQL of the session's own, unless DATABASE_URL names a database."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import environ
import pytest

from example_project import devdb

ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Set DATABASE_URL before pytest-django loads the settings that read it."""
    environ.Env.read_env(ROOT / ".env")
    if not os.environ.get("DATABASE_URL"):
        try:
            cluster = devdb.start(ROOT, keep=False)
        except devdb.DevDBError as error:
            raise pytest.UsageError(str(error)) from error
        early_config.add_cleanup(cluster.close)
        early_config.stash[SERVER] = str(cluster.programs)
        os.environ["DATABASE_URL"] = cluster.url  # xdist's workers inherit it
    return (yield)


SERVER = pytest.StashKey[str]()


def pytest_report_header(config: pytest.Config) -> str:
    return f"devdb: {config.stash.get(SERVER, 'none, DATABASE_URL is set')}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ["DATABASE_URL"].startswith("sqlite"):
        terminalreporter.section("WITHOUT POSTGRESQL", yellow=True)
        terminalreporter.line("DATABASE_URL is SQLite: what was to run on PostgreSQL did not.")
