"""Several workers, each a process of its own: who starts them, and their end of his line.

Each child is a fresh interpreter with the supervisor's command line. A fork would start sooner and
share memory, and with it sessions, locks and the threads that the site's modules have started.

A pipe leads to each child: a byte tells it to stop, a second one to leave at once. Its end, which
comes about however the supervisor ends, kill -9 included, tells it to stop, too. Signals would not
do: a terminal and systemd send theirs to the children besides, and two are one too many.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Final

from . import Worker
from .outage import pause
from .shutdown import take

AGAIN: Final = 75  # the exit status of a child that makes way for another
# A signal kills who has not begun yet.
CLEAN: Final = {0, AGAIN, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
SETTLED_SECONDS: Final = 10.0  # a child that ends before that counts as dead at once
DEATHS_MAX: Final = 6  # at once and in a row, of every child: then there is no point in going on
PAUSE_SECONDS_MAX: Final = 30.0
PATIENCE_SECONDS: Final = 3.0  # for a child that should have left by itself

logger = logging.getLogger("django_leasequeue")


@dataclass(eq=False, kw_only=True)
class Child:
    """One place among the workers, whoever holds it now."""

    number: int
    name: str
    process: subprocess.Popen[bytes] | None = None
    line: int = -1
    started_at: float = 0.0
    start_at: float = 0.0  # inf: it runs, or needs no successor
    deaths: int = 0  # at once, in a row

    @property
    def finished(self) -> bool:
        return self.process is None and self.start_at == inf

    @property
    def settled(self) -> bool:
        return time.monotonic() - self.started_at >= SETTLED_SECONDS

    @property
    def dies(self) -> bool:
        return self.deaths >= DEATHS_MAX and not (self.process and self.settled)


class Supervisor:
    """Keeps children at work until it is told to stop, or their queues are drained.

    Args:
        command: how to start a worker; its number and the descriptor of its line are added.
        processes: how many.
        name: what the children are called in the log, with a number behind it.
        drain: a child that ends well isn't needed any more.
        grace: seconds that the children have once they are told to stop.
        patience: seconds more until they are killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        *,
        name: str = "child",
        drain: bool = False,
        grace: float,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.command = command
        self.children = [
            Child(number=number, name=child_name(name, number))
            for number in range(1, 1 + processes)
        ]
        self.drain = drain
        self.grace = grace
        self.patience = patience
        # Notes for the main thread: who has ended, None to stop. See Notes.
        self.notes: queue.SimpleQueue[Child | None] = queue.SimpleQueue()
        self.stops = 0
        self.kill_at = inf
        self.clean = True

    def run(self) -> int:
        """Supervise until all children have ended for good.

        Returns:
            The process's exit status: 0 where each of them ended well; when draining, each time.
        """
        while not all(child.finished for child in self.children):
            self.start_due()
            self.kill_overdue()
            next_at = min(self.kill_at, *(child.start_at for child in self.children))
            with suppress(queue.Empty):
                if ended := take(self.notes, next_at - time.monotonic()):
                    self.meet_end(ended)
                else:
                    self.pass_on_stop()
        logger.info("all children have ended%s", "" if self.clean else ", not all of them well")
        return 0 if self.clean else 1

    def stop(self) -> None:
        """Ask all to stop; a second time: at once. From any thread or signal handler."""
        self.notes.put(None)

    def pass_on_stop(self) -> None:
        self.stops += 1
        grace = self.grace if self.stops == 1 else 0.0
        self.kill_at = min(self.kill_at, time.monotonic() + grace + self.patience)
        for child in self.children:
            child.start_at = inf
            with suppress(OSError):  # it has just ended, or never was
                os.write(child.line, b".")

    def kill_overdue(self) -> None:
        if time.monotonic() < self.kill_at:
            return
        self.kill_at = inf
        for child in self.children:
            if child.process:
                pid = child.process.pid
                logger.error("killed child=%s pid=%d: it didn't stop", child.name, pid)
                child.process.kill()

    def start_due(self) -> None:
        for child in self.children:
            if child.start_at <= time.monotonic():
                self.start(child)

    def start(self, child: Child) -> None:
        child.start_at, child.started_at = inf, time.monotonic()
        theirs, child.line = os.pipe()
        try:
            command = [*self.command, "--child", str(child.number), str(theirs)]
            child.process = subprocess.Popen(command, pass_fds=[theirs])
        except OSError as error:
            logger.error("child=%s can't be started: %s", child.name, error)
            os.close(child.line)
            child.line = -1
            self.replace(child, "not started")
            return
        finally:
            os.close(theirs)
        logger.info("started child=%s pid=%d", child.name, child.process.pid)
        threading.Thread(target=self.await_end, args=[child, child.process], daemon=True).start()

    def await_end(self, child: Child, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self.notes.put(child)

    def meet_end(self, child: Child) -> None:
        assert child.process  # noqa: S101  it runs until its end is met
        status, who = child.process.returncode, (child.name, child.process.pid)
        os.close(child.line)
        child.process, child.line = None, -1
        finite = self.drain or self.stops
        if finite and status not in CLEAN:
            self.clean = False
        if self.stops or (self.drain and status == 0):
            logger.info("ended child=%s pid=%d %s", *who, what_ended(status))
        elif status == AGAIN:
            logger.info("ended child=%s pid=%d to make way for another", *who)
            child.deaths, child.start_at = 0, time.monotonic()
        else:
            self.replace(child, what_ended(status))

    def replace(self, child: Child, why: str) -> None:
        """Start another in its place, the later the more often it has died at once."""
        child.deaths = 0 if child.settled else child.deaths + 1
        seconds = pause(child.deaths, PAUSE_SECONDS_MAX)
        child.start_at = time.monotonic() + seconds
        if child.deaths < 2:
            logger.warning("child=%s died: %s; starting another", child.name, why)
        else:
            logger.error(
                "child=%s died at once %d times in a row: %s; starting another in %.1fs",
                *(child.name, child.deaths, why, seconds),
            )
        self.give_up_where_all_die()

    def give_up_where_all_die(self) -> None:
        if all(child.dies or child.finished for child in self.children):
            logger.critical("giving up: no child stays alive")
            self.clean = False
            self.stop()


class Line:
    """A child's end of its pipe, and the signals that come along another way: together one stop.

    Args:
        descriptor: of the pipe.
        stop: the worker's.
    """

    def __init__(self, descriptor: int, stop: Callable[[], None]) -> None:
        self.descriptor = descriptor
        self.stop = stop
        self.first = [True]  # taken out by who comes first: pop() needs no lock

    def listen(self) -> None:
        os.set_inheritable(self.descriptor, False)
        threading.Thread(target=self.obey, name="line", daemon=True).start()

    def obey(self) -> None:
        told = 0
        while os.read(self.descriptor, 1):
            told += 1
            (self.stop if told > 1 else self.stop_once)()
        self.stop_once()

    def stop_once(self) -> None:
        """Stop, unless it was said before: by the pipe, or by a signal to the whole group."""
        with suppress(IndexError):
            self.first.pop()
            self.stop()


class NamedLines(logging.Filter):
    """Has each line say which of the workers it comes from."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self.worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        if "worker=" not in record.msg:
            record.msg += " worker=%s"
            record.args = (*(record.args or ()), self.worker)
        return True


def follow(descriptor: int, worker: Worker) -> Callable[[], None]:
    """Make *worker* one of several: it listens to its supervisor, and its lines tell its name.

    Returns:
        What signals are to call.
    """
    logger.addFilter(NamedLines(worker.name))
    line = Line(descriptor, worker.stop)
    line.listen()
    return line.stop_once


def child_name(name: str, number: int) -> str:
    return f"{name}-{number}"


def what_ended(status: int) -> str:
    """An exit status as a person says it."""
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"
