"""Run the tasks of a backend's queues."""

from __future__ import annotations

import logging
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from contextlib import suppress
from typing import Any, Final, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connections, transaction

from django_leasequeue import conf, validation
from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import TASKS_LOGGER, task_backends
from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.worker import GRACE_SECONDS, Worker
from django_leasequeue.worker.readiness import CannotStartError
from django_leasequeue.worker.reloading import Reloader, arguments, start_anew
from django_leasequeue.worker.shutdown import leave, stop_on_signals
from django_leasequeue.worker.supervisor import AGAIN, Supervisor, child_name, follow

from ..terminal import Argument, add_all, argument, at_least

OF_WORKER: Final = (
    *("name", "threads", "async_tasks", "strict"),
    *("max_tasks", "drain", "grace", "poll_interval"),
)


def worker_name(text: str) -> str:
    """A parser of names, for argparse."""
    try:
        return validation.name("worker", text)
    except InvalidTaskError as error:
        raise ArgumentTypeError(str(error)) from error


def count(name: str, **facts: Any) -> Argument:
    """An option that takes a whole number from 1 on."""
    return argument(name, type=at_least(1, int), metavar="N", **facts)


ARGUMENTS: Final = (
    argument(
        "--queue",
        dest="queues",
        action="append",
        metavar="NAME",
        help="Repeatable; served in that order. Default: all QUEUES of the backend.",
    ),
    argument(
        "--backend", default="default", metavar="ALIAS", help="Key of TASKS; default: default."
    ),
    argument(
        "--name",
        type=worker_name,
        help="Of one live worker at a time: what it has leased comes back when it starts anew, "
        "without waiting for the deadline; with --processes, NAME-1, NAME-2 and so on. "
        "Default: a new name at each start.",
    ),
    count(
        "--threads",
        default=1,
        help="Tasks that run at a time. Default: 1, since not every site's tasks are safe "
        "beside each other; more pay where tasks wait for disks or networks.",
    ),
    count(
        "--async-tasks",
        default=0,
        help="Async tasks that run at a time, on one event loop beside the threads; they share "
        "one thread for the database. Default: each takes one of the threads.",
    ),
    count(
        "--processes",
        default=1,
        help="Workers, each a process with its own --threads, kept alive by this one: for "
        "tasks that compute. Default: 1, which is this process itself.",
    ),
    count(
        "--max-tasks-per-child",
        help="Put a new process in the place of one that has run that many tasks, whatever "
        "memory they have leaked.",
    ),
    argument("--child", nargs=2, type=int, help=SUPPRESS),  # its number, the descriptor of its line
    argument(
        "--strict",
        action="store_true",
        help="Start a thread's next task when the outcome of the one before is on disk: a "
        "crash then repeats one task a thread at most; short tasks take several times as long.",
    ),
    count("--max-tasks", help="Stop after that many tasks."),
    argument("--drain", action="store_true", help="Stop when no task is visible any more."),
    argument(
        "--grace",
        type=at_least(0, float),
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help="For running tasks, after the first signal. Default: %(default)g.",
    ),
    argument(
        "--poll-interval",
        type=at_least(0.01, float),
        metavar="SECONDS",
        help="Between two looks where no notification comes. Default: as OPTIONS say.",
    ),
    argument(
        "--metrics-port",
        type=at_least(1, int),
        metavar="PORT",
        help="Serve Prometheus there; the second of several processes at the next port.",
    ),
    argument(
        "--no-reload",
        action="store_false",
        dest="reload",
        help="Don't start anew when the code changes, which a worker does under DEBUG.",
    ),
)


class Command(BaseCommand):
    """The worker's options, its signals and its exit status."""

    owns_process = False
    is_held = False
    help = "Runs the tasks of a backend's queues until SIGTERM or Ctrl-C; a second one is final."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See BaseCommand."""
        add_all(parser, ARGUMENTS)

    def check(self, *args: Any, **options: Any) -> None:
        """See BaseCommand. Some of Django's checks ask MySQL: one that is away is waited for."""
        with suppress(OperationalError):
            super().check(*args, **options)

    def handle(self, *, backend: str, queues: list[str] | None, **options: Any) -> None:
        """See BaseCommand."""
        names = queues_of(backend, queues)
        log_somewhere(options["verbosity"])
        several = options["processes"] > 1 or options["max_tasks_per_child"]
        if several and not options["child"]:
            self.supervise(options)
            return
        if options["strict"] and options["async_tasks"]:
            raise CommandError("--strict is about threads: it doesn't go with --async-tasks")
        number, line = options["child"] or (1, None)
        if line is not None:
            options["max_tasks"] = options["max_tasks_per_child"]
            options["name"] = options["name"] and child_name(options["name"], number)
        if port := options["metrics_port"]:
            serve_metrics(port + number - 1)
        ours = cast("LeaseQueueBackend", task_backends[backend])
        worker = Worker(ours, names, **{option: options[option] for option in OF_WORKER})
        finite = options["drain"] or (options["max_tasks"] and line is None)
        watched = settings.DEBUG and options["reload"] and self.owns_process and not finite
        self.work(worker, line, watched=watched)

    def work(self, worker: Worker, line: int | None, *, watched: bool) -> None:
        """Run *worker* to its end, which the exit status tells; a child's is that of *line*.

        Raises:
            CommandError: it couldn't start, or left work behind.
        """
        reloader = Reloader(worker)
        if watched:
            reloader.start()
        try:
            with stop_on_signals(worker.stop if line is None else follow(line, worker)):
                status = worker.run()
        except (CannotStartError, transaction.TransactionManagementError) as error:
            raise CommandError(str(error)) from error
        self.is_held = worker.is_held()
        if line is not None and (reloader.wanted() or not (status or worker.claimer.left)):
            sys.exit(AGAIN)
        if reloader.wanted():
            start_anew()
        if status:
            raise CommandError("the worker left work behind, see its log", returncode=status)

    def supervise(self, options: dict[str, Any]) -> None:
        """Keep processes at work, this command line's own.

        Raises:
            CommandError: there is none, or what it asks for doesn't go together; or a process
                didn't end well.
        """
        if not self.owns_process:
            raise CommandError("--processes and --max-tasks-per-child need a process of their own")
        if options["max_tasks"]:
            raise CommandError("--max-tasks ends one process; there is --max-tasks-per-child")
        name = options["name"] or "worker"
        try:
            validation.name("worker", child_name(name, options["processes"]))
        except InvalidTaskError as error:
            raise CommandError(str(error)) from error
        connections.close_all()  # the checks' own: nothing is asked of the database from here on
        shared = {option: options[option] for option in ("drain", "grace")}
        supervisor = Supervisor(arguments(), options["processes"], name=name, **shared)
        with stop_on_signals(supervisor.stop):
            if supervisor.run():
                raise CommandError("not all processes ended well, see their log")

    def run_from_argv(self, argv: list[str]) -> None:
        """See BaseCommand. Threads that are stuck in a task would keep the process alive."""
        self.owns_process = True
        try:
            super().run_from_argv(argv)
        except SystemExit as end:
            if end.code == AGAIN and not (settings.DEBUG or self.is_held):
                raise  # it has ended well: what else runs at an exit may, as who sends spans
            leave(end.code)
        except Exception:  # noqa: BLE001  nobody may be there to read why it ends, say
            sys.excepthook(*sys.exc_info())
            leave(1)
        if self.is_held:
            leave(0)


def serve_metrics(port: int) -> None:
    """Answer Prometheus on *port*.

    Raises:
        CommandError: it can't be served there, or the extra isn't installed.
    """
    try:
        from django_leasequeue import metrics  # noqa: PLC0415  an extra
    except ImportError as error:
        raise CommandError(
            f"--metrics-port: pip install django-leasequeue[metrics] ({error})"
        ) from error
    try:
        metrics.serve(port)
    except (OSError, OverflowError) as error:  # taken, or beyond the last one
        raise CommandError(f"--metrics-port {port}: {error}") from error


def queues_of(alias: str, asked: list[str] | None) -> list[str]:
    """The queues to serve: those that were asked for, else all of the backend *alias*.

    Raises:
        CommandError: no backend of ours, or a queue that isn't the backend's.
        ImproperlyConfigured: its QUEUES are no list of names.
    """
    ours = dict(conf.backends())
    if alias not in ours:
        known = ", ".join(ours) or "none"
        raise CommandError(f"TASKS[{alias!r}] is no lease queue; of those there are: {known}")
    served = conf.queues_of(alias, ours[alias])
    if unknown := [name for name in asked or [] if served and name not in served]:
        raise CommandError(
            f"--queue {', '.join(unknown)}: TASKS[{alias!r}]['QUEUES'] has {', '.join(served)}"
        )
    if not (asked or served):
        raise CommandError(f"TASKS[{alias!r}]['QUEUES'] takes any name: say which with --queue")
    try:
        return [validation.name("queue", name) for name in dict.fromkeys(asked or served)]
    except InvalidTaskError as error:
        raise CommandError(str(error)) from error


def log_somewhere(verbosity: int) -> None:
    """Log to stderr where the site hasn't said where to; only what went wrong at verbosity 0.

    Our line tells how a task ended. Django's own two say it again and cost a quarter of a short
    task's time: a site that wants them gives its logger a level.
    """
    djangos = logging.getLogger(TASKS_LOGGER)
    djangos.setLevel(djangos.level or logging.WARNING)
    logger = logging.getLogger("django_leasequeue")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logger.level or (logging.INFO if verbosity else logging.WARNING))
