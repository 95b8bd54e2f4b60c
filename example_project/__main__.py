"""Two commands that take a fresh clone all the way.

    python3 -m example_project demo      the admin, a worker and a day's orders; Ctrl-C ends it all
    python3 -m example_project test      the test suite; what follows goes to pytest

Both install what they need into ``.venv-example`` in the clone, and start a private PostgreSQL
unless DATABASE_URL names a database. The tests start a private MariaDB, too: where none is there
root gets it from apt, others do without (MARIADB=no: so does root). Nothing but Python has to be
there. For contributors, tox, and what takes minutes (docs/reliability.md,
docs/benchmarks.md):

    python3 -m example_project tox run -e lint
    python3 -m example_project chaos --seconds 180
    python3 -m example_project soak --minutes 20
    python3 -m example_project bench
    python3 -m example_project screenshots
"""

from __future__ import annotations

import os
import sys
from typing import Final

# What each command runs, and what that takes.
MODULES: Final = {
    "demo": "example_project.demo",
    "test": "pytest",
    "chaos": "tests.chaos",
    "soak": "tests.chaos.soak",
    "bench": "benchmarks",
    "screenshots": "tests.browser",
    "messages": "tests.messages",
    "tox": "tox",
}
EXTRAS: Final = {command: {"demo", "test"} for command in MODULES} | {
    "bench": {"demo", "test", "bench", "postgres"},
    "screenshots": {"demo", "test", "browser"},
    "tox": {"matrix"},
}
# The suite waits more than it computes: four processes share it, each with databases of its own.
# Whoever asks for some tests gets one process, with a debugger and an order that can be read.
ALL_TESTS: Final = ["-n", "4", "--dist", "worksteal"]


def main() -> None:
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command in {"-h", "--help"}:
        print(__doc__)
        return
    if command not in MODULES:
        sys.exit(f"{__doc__}\nThere is no command {command!r}." if command else __doc__)
    if sys.version_info < (3, 11):  # noqa: UP036  met by those who have an older one
        sys.exit("Python 3.11 or newer is needed: try python3.12 -m example_project ...")
    if os.name != "posix":
        sys.exit("Linux or macOS is needed; on Windows, WSL does.")
    from example_project.bootstrap import ROOT, python_with  # noqa: PLC0415  they need POSIX
    from example_project.programs import wheel_wanted  # noqa: PLC0415

    os.chdir(ROOT)
    if command == "test":
        get_mariadb()
    extras = EXTRAS[command] | ({"postgres"} if command != "tox" and wheel_wanted() else set())
    python = python_with(extras)
    arguments = sys.argv[2:] or (ALL_TESTS if command == "test" else [])
    os.execv(python, [python, "-m", MODULES[command], *arguments])


def get_mariadb() -> None:
    """Install MariaDB if need be; without it the tests run all the same, save in CI."""
    from example_project import mariadb  # noqa: PLC0415  it needs POSIX

    try:
        mariadb.install()
    except mariadb.NoMariaDBError as error:
        if os.environ.get("CI"):
            sys.exit(str(error))
        print(error)


if __name__ == "__main__":
    main()
