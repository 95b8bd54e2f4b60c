"""Starting the worker anew when its code changes, as ``runserver`` does under DEBUG.

The process takes up the new code itself, by exec: there is no parent that would have to pass on
signals and statuses, and no child that could be left behind. Code that doesn't start is tried in a
process of its own before that, so that a mistake in an edit leaves the old code at work.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Final, NoReturn

from django.utils import autoreload

from . import Worker
from .shutdown import flush

GRACE_SECONDS: Final = 5.0  # for what runs; whoever edits doesn't want to wait for longer
RETRY_SECONDS: Final = 5.0  # between two trials of code that doesn't start

logger = logging.getLogger("django_leasequeue")


class Reloader:
    """Stops *worker* when a file changes that its process has imported."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.changed = False

    def start(self) -> None:
        threading.Thread(target=self.watch, name="reloader", daemon=True).start()

    def watch(self) -> None:
        logger.info("watching for changes of the code")
        try:
            autoreload.get_reloader().run(threading.main_thread())
        except SystemExit:  # how Django's reloader says it
            self.meet_change()

    def meet_change(self) -> None:
        """Try the new code until it starts: what mends it may be in a file that isn't imported."""
        said, stopping = "", self.worker.stopping
        while (problem := trial()) and not stopping.is_set():
            if problem != said:
                logger.error("not restarted, since the new code doesn't start: %s", problem)
            said = problem
            stopping.wait(RETRY_SECONDS)
        if stopping.is_set():
            return
        self.changed = True
        self.worker.grace = min(self.worker.grace, GRACE_SECONDS)
        self.worker.give_way()

    def wanted(self) -> bool:
        """Whether the worker has ended for the new code, and nobody asked for its end besides."""
        return self.changed and not self.worker.notes.stops


def trial() -> str:
    """What keeps the code from starting, in a line; nothing where it starts."""
    tried = subprocess.run([*arguments(), "--help"], capture_output=True, text=True, check=False)
    said = tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"]
    return said[-1] if tried.returncode else ""


def arguments() -> list[str]:
    """The command line that this process was started by."""
    return [str(argument) for argument in autoreload.get_child_arguments()]


def start_anew() -> NoReturn:
    """Become a new worker: same process, same command line."""
    flush()
    os.execv(sys.executable, arguments())
