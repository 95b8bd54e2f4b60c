"""A private PostgreSQL for the demo and the tests: started, shared, stopped.

PostgreSQL refuses to run as root, so root runs it under another account. Everything of the server
therefore lies in ``/var/tmp``, where any account may go, and never in the project, whose folders
may be closed; ``.devdb`` in the project leads there. The server listens on a socket in a folder
that only its account (and root) can enter, and on no network address.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from example_project.programs import OLDEST, Programs, account, all_programs, runnable

USER: Final = "leasequeue"
PATIENCE: Final = 60.0  # seconds a server may take to start
# Nothing is kept, and several processes with many threads share it.
THROWAWAY: Final = (
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off"),
    "max_connections=300",
)
VAR_TMP: Final = "/var/tmp"  # noqa: S108  outlives a reboot; mkdtemp makes what lies in it
DAY: Final = 24 * 60 * 60


class DevDBError(Exception):
    """No private server could be started; the message says what was tried."""


def start(project: Path, *, keep: bool) -> Cluster:
    """Start a server for *project* with the first programs that can.

    Args:
        keep: the data stays for the next time, safe from a power cut, and a server that already
            runs on it is shared. Otherwise the cluster is new, and goes when it is closed.

    Raises:
        DevDBError: nothing could be started.
    """
    failures = []
    with locked_home(project) as home:
        tidy(home)
        for programs in all_programs():
            try:
                return started(home, programs, keep=keep)
            except (OSError, subprocess.CalledProcessError, DevDBError) as error:
                failures.append(f"{programs}: {getattr(error, 'stderr', None) or error}")
    tried = "\n".join(failures) or f"No PostgreSQL from {OLDEST} on was found."
    raise DevDBError(f"{tried}\nSet DATABASE_URL to use a server of your own, or DEVDB=wheel.")


def started(home: Path, programs: Programs, *, keep: bool) -> Cluster:
    cluster = Cluster(folder_in(home, programs, keep=keep), runnable(programs, home), keep=keep)
    try:
        cluster.start()
    except BaseException:
        cluster.close()
        raise
    return cluster


def reset(project: Path) -> None:
    """Remove the data that was kept for *project*.

    Raises:
        DevDBError: a server runs on it.
    """
    with locked_home(project) as home:
        for folder in home.glob("kept-*"):
            if reply(folder):
                raise DevDBError("The demo is running: stop it first.")
            shutil.rmtree(folder)


class Cluster:
    """One server. *folder* belongs to its account and holds its data, its log and its socket."""

    def __init__(self, folder: Path, programs: Programs, *, keep: bool) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.programs = programs
        self.keep = keep
        self.process: subprocess.Popen[Any] | None = None
        # The port, too: without it the client would take the user's PGPORT.
        self.url = f"postgres://{USER}@:5432/{folder}/postgres"

    def start(self) -> None:
        """Wait until a server answers; start one unless it is there already.

        Raises:
            DevDBError: it doesn't; the message is the end of its log.
        """
        if not self.data.exists():
            self.initialise()
        if self.wait_until_ready():
            return
        self.drop_foreign_pid_file()
        command = [f"{self.programs.folder}/postgres", "-D", f"{self.data}", "-k", f"{self.folder}"]
        for setting in ("listen_addresses=", *(() if self.keep else THROWAWAY)):
            command += ["-c", setting]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "-p", "5432"], stdout=log, stderr=log, **self.surroundings()
            )
        if not self.wait_until_ready():
            raise DevDBError(self.log.read_text(errors="replace")[-1000:])

    def stop(self) -> None:
        """Stop the server if it was started here: fast, then at once, then by force."""
        for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if self.process is None:
                return
            self.process.send_signal(signum)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                continue
            self.process = None

    def close(self) -> None:
        """Stop the server, and remove its data unless it was to be kept."""
        self.stop()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def initialise(self) -> None:
        """Make the data, under another name until it is whole: it may be stopped halfway."""
        half = self.folder / "half"
        shutil.rmtree(half, ignore_errors=True)
        command = [f"{self.programs.folder}/initdb", "-D", f"{half}", "-U", USER, "--auth=trust"]
        command += ["--encoding=UTF8", "--locale=C", "--no-instructions", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, text=True, **self.surroundings())
        half.rename(self.data)

    def surroundings(self) -> dict[str, Any]:
        """For subprocess: the account, a folder it can enter, none of the user's PG* variables."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        return account() | {
            "cwd": self.folder,
            "env": environment | {"LC_ALL": "C"},
            "stdin": subprocess.DEVNULL,
            "start_new_session": True,  # Ctrl-C is for whoever started this
            "preexec_fn": at_parents_death(signal.SIGINT),
        }

    def wait_until_ready(self) -> bool:
        """Whether a server answers; waits as long as one is there, or ours is on its way."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            letter = reply(self.folder)
            if letter == "R":
                return True
            if not letter and (self.process is None or self.process.poll() is not None):
                return False
            time.sleep(0.02)
        return False

    def drop_foreign_pid_file(self) -> None:
        """Remove a pid file whose number belongs to another program by now (after a reboot, say).

        PostgreSQL would take that program for a server on this data, and not start. In all other
        cases the file is PostgreSQL's to judge: it guards the data against a second server.
        """
        pid_file = self.data / "postmaster.pid"
        try:
            pid = pid_file.read_text().partition("\n")[0]
            working_folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        except OSError:
            return  # no such file, no such process, another user's process, or no /proc here
        if working_folder != self.data:  # a server works in its data folder
            pid_file.unlink()


def reply(folder: Path) -> str:
    """The first letter that a server on the socket in *folder* answers to a start-up packet.

    ``R``: ready. ``E``: starting up, or on its way out. Empty: nobody there.
    """
    body = struct.pack("!i", 3 << 16) + f"user\0{USER}\0database\0postgres\0\0".encode()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(str(folder / ".s.PGSQL.5432"))
            client.sendall(struct.pack("!i", len(body) + 4) + body)
            return client.recv(1).decode()
        except OSError:
            return ""


def at_parents_death(signum: signal.Signals) -> Callable[[], object] | None:
    """For Popen's ``preexec_fn``: the child gets *signum* when we die, be it by kill -9."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    pr_set_pdeathsig = 1
    return lambda: libc.prctl(pr_set_pdeathsig, signum)


@contextmanager
def locked_home(project: Path) -> Iterator[Path]:
    """The folder of all servers of *project*, for one process at a time."""
    with (project / ".devdb.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield home_of(project)


def home_of(project: Path) -> Path:
    """Where ``.devdb`` leads, made if need be; a link that came along with a copy isn't ours."""
    link = project / ".devdb"
    place = hashlib.sha256(os.fsencode(project.resolve())).hexdigest()[:8]
    home = link.resolve()
    ours = home.is_dir() and home.name.startswith(f"leasequeue-{place}-")
    if not ours or home.stat().st_uid != os.geteuid():
        temp = VAR_TMP if os.access(VAR_TMP, os.W_OK) else tempfile.gettempdir()
        forget_homes(Path(temp), f"leasequeue-{place}-*")
        home = Path(tempfile.mkdtemp(prefix=f"leasequeue-{place}-", dir=temp)).resolve()
        home.chmod(0o711 if os.geteuid() == 0 else 0o700)
        link.unlink(missing_ok=True)
        link.symlink_to(home)
    return home


def forget_homes(temp: Path, pattern: str) -> None:
    """Remove what an earlier clone in the same place left, unless a server still runs there."""
    for home in temp.glob(pattern):
        ours = home.lstat().st_uid == os.geteuid()
        if ours and not any(reply(folder) for folder in home.iterdir()):
            shutil.rmtree(home, ignore_errors=True)


def folder_in(home: Path, programs: Programs, *, keep: bool) -> Path:
    """A folder for a cluster, its account's own. Each major version has data of its own."""
    if keep:
        folder = home / f"kept-{programs.major}"
        folder.mkdir(0o700, exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="throwaway-", dir=home))
    if user := account():
        os.chown(folder, user["user"], user["group"])
    return folder


def tidy(home: Path) -> None:
    """Remove what killed test runs left behind, a day later."""
    for folder in home.glob("throwaway-*"):
        age = time.time() - folder.stat().st_mtime  # noqa: TID251  the clock of the files
        if age > DAY and not reply(folder):
            shutil.rmtree(folder, ignore_errors=True)
