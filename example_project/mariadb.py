"""A private MariaDB for the tests, on whatever `mariadbd` or `mysqld` the machine has.

As with PostgreSQL, everything of the server lies in a folder of its account's own in ``/var/tmp``,
it listens on a socket there and on no network address, and it goes with the tests. Standard
library only: ``__main__`` installs it before anything else is there.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from example_project.devdb import at_parents_death, locked_home
from example_project.programs import account

PATH: Final = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/usr/libexec"]
)
# The server without its service: nothing starts by itself, now or with the machine.
PACKAGES: Final = ("mariadb-server-core", "mariadb-client-core")
PROGRAMS: Final = ("mariadbd", "mysqld")
PATIENCE: Final = 60.0  # seconds that a server may take to start
OPTIONS: Final = (
    "--skip-networking",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--loose-innodb-flush-method=nosync",
    "--innodb-buffer-pool-size=64M",
    "--loose-innodb-log-file-size=32M",
    "--innodb-lock-wait-timeout=20",
    "--performance-schema=OFF",
)


class NoMariaDBError(Exception):
    """None is there, or none could be started; the message says why."""


def program(*names: str) -> str:
    """Where the first of *names* that the machine has lies.

    Raises:
        NoMariaDBError: it has none of them.
    """
    for name in names:
        if found := shutil.which(name, path=PATH):
            return found
    raise NoMariaDBError(f"no {names[0]} on this machine")


def install() -> None:
    """Install MariaDB where it is missing, and this is root on a machine with apt.

    Raises:
        NoMariaDBError: that didn't work; the message is what apt said.
    """
    there = [name for name in PROGRAMS if shutil.which(name, path=PATH)]
    if there or "MARIADB_URL" in os.environ or not can_be_installed():
        return
    print(f"Installing {' and '.join(PACKAGES)} for the tests (MARIADB=no: don't) ...", flush=True)
    apt = ["apt-get", "-qq", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20"]
    wanted = [*apt, "install", "-y", "--no-install-recommends", *PACKAGES]
    for command in (wanted, [*apt, "update"], wanted):
        done = subprocess.run(
            command, capture_output=True, text=True,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )  # fmt: skip
        if command is wanted and done.returncode == 0:
            return
    raise NoMariaDBError(f"apt-get can't install it: {done.stderr.strip()[-500:]}")


def can_be_installed() -> bool:
    """Whether it is wanted, and this is root on a machine with apt."""
    wanted = os.environ.get("MARIADB") != "no"
    return wanted and os.geteuid() == 0 and shutil.which("apt-get") is not None


def start(project: Path) -> Server:
    """Start a server for *project*, on data that goes when it is closed.

    Raises:
        NoMariaDBError: it couldn't be started.
    """
    if os.environ.get("MARIADB") == "no":
        raise NoMariaDBError("MARIADB=no")
    binary = program(*PROGRAMS)
    with locked_home(project) as home:
        server = Server(binary, Path(tempfile.mkdtemp(prefix="throwaway-", dir=home)))
        try:
            server.start()
        except (OSError, subprocess.CalledProcessError, NoMariaDBError) as error:
            server.close()
            raise NoMariaDBError(f"{binary}: {getattr(error, 'stderr', None) or error}") from error
        except BaseException:
            server.close()
            raise
    return server


class Server:
    """One server, and the *folder* of its account with its data, its log and its socket."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.binary = binary
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.socket = folder / "mariadb.sock"
        self.process: subprocess.Popen[Any] | None = None
        self.url = f"mysql://root@localhost/leasequeue?unix_socket={self.socket}"
        said = subprocess.run([binary, "--version"], capture_output=True, text=True).stdout
        self.version = said.partition(" Ver ")[2].split()[0]

    def __str__(self) -> str:
        return self.version if "MariaDB" in self.version else f"MySQL {self.version}"

    def start(self) -> None:
        """Make the data, start, and wait until the server answers.

        Raises:
            NoMariaDBError: it doesn't; the message is the end of its log.
        """
        if user := account():
            os.chown(self.folder, user["user"], user["group"])
        subprocess.run(
            self.initialisation(), check=True, capture_output=True, text=True,
            **self.surroundings(),
        )  # fmt: skip
        command = [self.binary, "--no-defaults", f"--datadir={self.data}"]
        command += [f"--socket={self.socket}", f"--pid-file={self.folder}/pid", *OPTIONS]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, preexec_fn=at_parents_death(signal.SIGKILL),
                **self.surroundings(),
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise NoMariaDBError(self.log.read_text(errors="replace")[-1000:])
            time.sleep(0.02)

    def initialisation(self) -> list[str]:
        """The command that makes the data, with a root who needs no password."""
        if "MariaDB" not in self.version:
            return [self.binary, "--no-defaults", "--initialize-insecure", f"--datadir={self.data}"]
        script = program("mariadb-install-db", "mysql_install_db")
        plain = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        return [script, "--no-defaults", f"--datadir={self.data}", *plain, *OPTIONS[1:]]

    def surroundings(self) -> dict[str, Any]:
        return account() | {
            "cwd": self.folder,
            "env": os.environ | {"LC_ALL": "C", "PATH": PATH, "TMPDIR": str(self.folder)},
            "stdin": subprocess.DEVNULL,
            "start_new_session": True,  # Ctrl-C is for whoever started this
        }

    def answers(self) -> bool:
        """Whether somebody greets a client: with four bytes of length, then the protocol's 10."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            try:
                client.connect(str(self.socket))
                return client.recv(5)[4:] == b"\n"
            except OSError:
                return False

    def close(self) -> None:
        """End the server, and remove its data: there is nothing to be saved."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)
