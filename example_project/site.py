"""One running example: its database, its files, its web server and its worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from example_project.bootstrap import ROOT
from example_project.devdb import at_parents_death

PATIENCE: Final = 15.0  # seconds a child may take to end


class DemoError(Exception):
    """The example can't go on; the message says why."""


def reason(said: str) -> str:
    """What a command that failed *said*, without the traceback: its end is what went wrong."""
    if "Traceback (most recent call last):" not in said:
        return said.strip()
    errors = re.findall(r"^[\w.]+: .*$", said, re.MULTILINE)
    return str(errors[-1]) if errors else said.strip()


class Site:
    """What the demo starts, and with which settings."""

    def __init__(self, *, port: int, files: Path, database_url: str) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.files = files
        self.environment = os.environ | {
            "DATABASE_URL": database_url,
            "DEBUG": "True",
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "FILES_ROOT": str(files),
            "PYTHONUNBUFFERED": "1",
        }
        self.children: dict[str, subprocess.Popen[Any]] = {}

    def manage(self, *command: str, **variables: str) -> str:
        """Run a management command to its end. Returns what it printed.

        Raises:
            DemoError: it failed; the message says why, in a line.
        """
        done = subprocess.run(
            [sys.executable, "manage.py", *command], capture_output=True, text=True,
            **self.surroundings(variables),
        )  # fmt: skip
        if done.returncode != 0:
            raise DemoError(f"manage.py {' '.join(command)}: {reason(done.stderr)}")
        return str(done.stdout)

    def start(self, name: str, *command: str) -> None:
        """Start a management command that runs on, its output in a file of *name*."""
        self.files.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("wb") as log:
            self.children[name] = subprocess.Popen(
                [sys.executable, "manage.py", *command], stdout=log, stderr=log,
                **self.surroundings({}),
            )  # fmt: skip

    def log(self, name: str) -> Path:
        return self.files / f"{name}-{self.port}.log"

    def surroundings(self, variables: dict[str, str]) -> dict[str, Any]:
        return {
            "cwd": ROOT,
            "env": self.environment | variables,
            "stdin": subprocess.DEVNULL,
            "start_new_session": True,  # Ctrl-C is for the demo; it ends the others in order
            "preexec_fn": at_parents_death(signal.SIGTERM),
        }

    def watch(self, seconds: float) -> None:
        """Let *seconds* pass.

        Raises:
            DemoError: a child has ended; the message is the end of its output.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for name, process in self.children.items():
                if process.poll() is not None:
                    end = self.log(name).read_text(errors="replace")[-3000:]
                    raise DemoError(f"The {name} ended with {process.returncode}:\n{end}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End all children, in the order they were started in."""
        for process in self.children.values():
            process.terminate()
        deadline = time.monotonic() + PATIENCE
        for process in self.children.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
