"""pytest plugin: a PostgreSQL of the session's own, unless DATABASE_URL names a database."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import environ
import pytest

from example_project import devdb

ROOT: Final = Path(__file__).resolve().parent.parent
SERVER: Final = pytest.StashKey[str]()
MARK: Final = "postgresql: needs PostgreSQL as the default database"


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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)


def pytest_report_header(config: pytest.Config) -> str:
    return f"devdb: {config.stash.get(SERVER, 'none, DATABASE_URL is set')}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is meant for PostgreSQL where DATABASE_URL names something else."""
    if on_postgresql():
        return
    skip = pytest.mark.skip(reason="DATABASE_URL is no PostgreSQL")
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "id", "").split("-")
        fixtures = getattr(item, "fixturenames", ())
        if item.get_closest_marker("postgresql") or "postgres" in (*parameters, *fixtures):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not on_postgresql():
        terminalreporter.section("WITHOUT POSTGRESQL", yellow=True)
        terminalreporter.line("DATABASE_URL is no PostgreSQL: what needs one did not run.")


def on_postgresql() -> bool:
    return os.environ["DATABASE_URL"].startswith(("postgres", "pgsql"))
