"""The demo: a database, the sample, a web server and a worker, until Ctrl-C ends them all."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

import environ

from example_project import devdb, smoke
from example_project.bootstrap import ROOT
from example_project.site import DemoError, Site

OPERATOR: Final = "operator"  # name and password: the site is reached from this machine only
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WELCOME: Final = """
  Admin          {url}/admin/    log in as {operator}, password {operator}
  Dead letters   {url}/admin/leasequeue/deadletter/
  Orders         {url}/admin/orders/order/
  Files, logs    {files}
  Database       DATABASE_URL={database}

Seven orders are wrong, in ways that happen: find them among the dead letters, correct the order,
redrive. What was meant: example_project/orders/sample/README.md. Ctrl-C stops everything; the data
stays for the next time (--reset starts over).
"""


def main() -> int:
    options = parser().parse_args()
    for signum in SIGNALS:
        signal.signal(signum, interrupt)
    environ.Env.read_env(ROOT / ".env")
    try:
        with ExitStack() as at_end:
            run(options, at_end)
    except KeyboardInterrupt:
        print("Stopped.")
    except (DemoError, devdb.DevDBError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m example_project demo", description=__doc__)
    parser.add_argument("--port", type=int, help="of the web server; default: 8000")
    parser.add_argument("--reset", action="store_true", help="first throw away all earlier data")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="start from nothing, wait for the work, look at the admin, exit 0 if all is well",
    )
    return parser


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def run(options: argparse.Namespace, at_end: ExitStack) -> None:
    if options.reset:
        reset()
    port = free_port(options.port if options.port is not None else 0 if options.smoke else 8000)
    site = prepared_site(port, at_end, keep=not options.smoke)
    at_end.callback(site.stop)
    at_end.callback(ignore_signals)  # called first: what ends is not to be interrupted
    site.start("web", "runserver", "--noreload", f"127.0.0.1:{port}")
    site.start("worker", "leasequeue_worker", "--no-reload", "--grace", "5")
    if options.smoke:
        print("smoke:", smoke.check(site, name=OPERATOR, password=OPERATOR))
    else:
        smoke.first_page(smoke.a_browser(), site)
        welcome(site)
        while True:
            site.watch(60)


def prepared_site(port: int, at_end: ExitStack, *, keep: bool) -> Site:
    """The site with its tables, its operator and its orders, before anything serves them."""
    database_url = os.environ.get("DATABASE_URL")
    files = Path(os.environ.get("FILES_ROOT") or ROOT / "var")
    if not database_url:
        cluster = devdb.start(ROOT, keep=keep)
        at_end.callback(cluster.close)
        print(f"devdb: {cluster.programs}")
        database_url = cluster.url
        if not keep:
            files = Path(at_end.enter_context(tempfile.TemporaryDirectory()))
    site = Site(port=port, files=files, database_url=database_url)
    migrate(site)
    create_operator(site)
    print(site.manage("load_sample"), end="", flush=True)
    return site


def migrate(site: Site) -> None:
    try:
        site.manage("migrate")
    except DemoError as error:
        if "ProgrammingError" not in str(error):
            raise
        told = f"{error}\nThe data is of another version of this project: start over with --reset."
        raise DemoError(told) from error


def create_operator(site: Site) -> None:
    try:
        site.manage(
            "createsuperuser", "--noinput", f"--username={OPERATOR}", "--email=operator@localhost",
            DJANGO_SUPERUSER_PASSWORD=OPERATOR,
        )  # fmt: skip
    except DemoError as error:
        if "already taken" not in str(error):
            raise


def reset() -> None:
    if os.environ.get("DATABASE_URL"):
        raise DemoError(
            "--reset is for the demo's own database, and DATABASE_URL names yours: empty that "
            "yourself (with SQLite: delete the file)."
        )
    devdb.reset(ROOT)
    shutil.rmtree(ROOT / "var", ignore_errors=True)


def free_port(wanted: int) -> int:
    """The port *wanted* if it is free, or any if that is 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", "not from 0 to 65535")
            raise DemoError(f"Port {wanted}: {why}. Choose one with --port.") from error
        return int(probe.getsockname()[1])


def welcome(site: Site) -> None:
    database = site.environment["DATABASE_URL"]
    print(
        WELCOME.format(url=site.url, operator=OPERATOR, files=site.files, database=database),
        flush=True,
    )


def ignore_signals() -> None:
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
