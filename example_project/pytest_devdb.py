"""pytest plugin: a PostgreSQL and a MariaDB of the session's own.

Unless DATABASE_URL and MARIADB_URL name others. Without a MariaDB on the machine the tests run
without it, and say so.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import environ
import pytest

from example_project import devdb, mariadb

ROOT: Final = Path(__file__).resolve().parent.parent
SERVER: Final = pytest.StashKey[str]()
MARIADB: Final = pytest.StashKey[str]()
NO_MARIADB: Final = pytest.StashKey[str]()
MARK: Final = "postgresql: needs PostgreSQL as the default database"


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Set the URLs before pytest-django loads the settings that read them."""
    environ.Env.read_env(ROOT / ".env")
    keep_bytecode()
    start_postgresql(early_config)
    start_mariadb(early_config)
    return (yield)


def keep_bytecode() -> None:
    """Where Python is to leave none in the project, keep it with pytest's own cache.

    The processes that tests start, a hundred or so, would each compile all of Django: 1.8 s of
    processor time in place of 0.6.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(ROOT / ".pytest_cache" / "bytecode")


def start_postgresql(config: pytest.Config) -> None:
    if not os.environ.get("DATABASE_URL"):
        try:
            cluster = devdb.start(ROOT, keep=False)
        except devdb.DevDBError as error:
            raise pytest.UsageError(str(error)) from error
        config.add_cleanup(cluster.close)
        config.stash[SERVER] = str(cluster.programs)
        os.environ["DATABASE_URL"] = cluster.url  # xdist's workers inherit it


def start_mariadb(config: pytest.Config) -> None:
    if "MARIADB_URL" in os.environ:
        return
    os.environ["MARIADB_URL"] = ""  # whoever inherits it starts none
    try:
        server = mariadb.start(ROOT)
    except mariadb.NoMariaDBError as error:
        if os.environ.get("CI") and mariadb.can_be_installed():
            raise pytest.UsageError(f"MariaDB can't be tested: {error}") from error
        config.stash[NO_MARIADB] = str(error)
        return
    config.add_cleanup(server.close)
    config.stash[MARIADB] = str(server)
    os.environ["MARIADB_URL"] = server.url


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)


def pytest_report_header(config: pytest.Config) -> str:
    postgresql = config.stash.get(SERVER, "none, DATABASE_URL is set")
    other = config.stash.get(MARIADB, "MariaDB: none" if missing(config) else "MARIADB_URL is set")
    return f"devdb: {postgresql}; {other}"


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
    if why := missing(terminalreporter.config):
        terminalreporter.section("WITHOUT MARIADB", yellow=True)
        terminalreporter.line(f"MariaDB NOT tested: {why}")


def missing(config: pytest.Config) -> str:
    """Why there is no MariaDB; empty where there is one."""
    return config.stash.get(NO_MARIADB, "" if os.environ["MARIADB_URL"] else "MARIADB_URL is empty")


def on_postgresql() -> bool:
    return os.environ["DATABASE_URL"].startswith(("postgres", "pgsql"))
