"""Run the tasks of a backend's queues."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, transaction

from django_leasequeue import conf, validation
from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.compat import task_backends
from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.policy import SECONDS_MAX
from django_leasequeue.worker import GRACE_SECONDS, Worker
from django_leasequeue.worker.readiness import CannotStartError
from django_leasequeue.worker.reloading import Reloader, start_anew
from django_leasequeue.worker.shutdown import leave, stop_on_signals


class Command(BaseCommand):
    """The worker's options, its signals and its exit status."""

    owns_process = False
    help = "Runs the tasks of a backend's queues until SIGTERM or Ctrl-C; a second one is final."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See BaseCommand."""
        add = parser.add_argument
        add(
            "--queue",
            dest="queues",
            action="append",
            metavar="NAME",
            help="Repeatable; served in that order. Default: all QUEUES of the backend.",
        )
        add("--backend", default="default", metavar="ALIAS", help="Key of TASKS; default: default.")
        add(
            "--name",
            type=worker_name,
            help="Of one live worker at a time: what it has leased comes back when it starts anew, "
            "without waiting for the deadline. Default: a new name at each start.",
        )
        add(
            "--threads",
            type=at_least(1, int),
            default=1,
            metavar="N",
            help="Tasks that run at a time. Default: 1, since not every site's tasks are safe "
            "beside each other; more pay where tasks wait for disks or networks.",
        )
        add("--max-tasks", type=at_least(1, int), metavar="N", help="Stop after that many tasks.")
        add("--drain", action="store_true", help="Stop when no task is visible any more.")
        add(
            "--grace",
            type=at_least(0, float),
            default=GRACE_SECONDS,
            metavar="SECONDS",
            help="For running tasks, after the first signal. Default: %(default)g.",
        )
        add(
            "--poll-interval",
            type=at_least(0.01, float),
            metavar="SECONDS",
            help="Between two looks where no notification comes. Default: as OPTIONS say.",
        )
        add(
            "--no-reload",
            action="store_false",
            dest="reload",
            help="Don't start anew when the code changes, which a worker does under DEBUG.",
        )

    def check(self, *args: Any, **options: Any) -> None:
        """See BaseCommand. Some of Django's checks ask MySQL: one that is away is waited for."""
        with suppress(OperationalError):
            super().check(*args, **options)

    def handle(self, *, backend: str, queues: list[str] | None, **options: Any) -> None:
        """See BaseCommand."""
        wanted = ("name", "threads", "max_tasks", "drain", "grace", "poll_interval")
        names = queues_of(backend, queues)
        log_somewhere(options["verbosity"])
        ours = cast("LeaseQueueBackend", task_backends[backend])
        worker = Worker(ours, names, **{option: options[option] for option in wanted})
        reloader = Reloader(worker)
        finite = options["drain"] or options["max_tasks"]
        if settings.DEBUG and options["reload"] and self.owns_process and not finite:
            reloader.start()
        try:
            with stop_on_signals(worker.stop):
                status = worker.run()
        except (CannotStartError, transaction.TransactionManagementError) as error:
            raise CommandError(str(error)) from error
        if reloader.wanted():
            start_anew()
        if status:
            raise CommandError("the worker left work behind, see its log", returncode=status)

    def run_from_argv(self, argv: list[str]) -> None:
        """See BaseCommand. Threads that are stuck in a task would keep the process alive."""
        self.owns_process = True
        try:
            super().run_from_argv(argv)
        except SystemExit as end:
            leave(end.code)


def at_least(minimum: float, number: type[int] | type[float]) -> Callable[[str], float]:
    """A parser of numbers from *minimum* on, for argparse."""

    def parsed(text: str) -> float:
        value = number(text)
        if not minimum <= value <= SECONDS_MAX:  # what isn't seconds is no larger either
            raise ArgumentTypeError(f"must be at least {minimum:g} and at most {SECONDS_MAX}")
        return value

    parsed.__name__ = number.__name__  # argparse quotes it: "invalid int value"
    return parsed


def worker_name(text: str) -> str:
    """A parser of names, for argparse."""
    try:
        return validation.name("worker", text)
    except InvalidTaskError as error:
        raise ArgumentTypeError(str(error)) from error


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
    if not asked:
        return list(dict.fromkeys(served))
    try:
        return [validation.name("queue", name) for name in dict.fromkeys(asked)]
    except InvalidTaskError as error:
        raise CommandError(str(error)) from error


def log_somewhere(verbosity: int) -> None:
    """Log to stderr where the site hasn't said where to; only what went wrong at verbosity 0."""
    logger = logging.getLogger("django_leasequeue")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logger.level or (logging.INFO if verbosity else logging.WARNING))
