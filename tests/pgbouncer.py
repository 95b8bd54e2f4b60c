"""A pgbouncer in front of the tests' PostgreSQL: many clients' transactions share few sessions."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from django.db import connections

from example_project.programs import account
from tests.waiting import wait_for

FOLDERS: Final = f"{os.defpath}:/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}"
PORT: Final = 6432
NEEDED: Final = "needs pgbouncer, which root can let the tests install by apt-get"
SETTINGS: Final = """
[databases]
* = {server}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
logfile = {folder}/log
"""


@contextmanager
def pgbouncer(*, sessions: int) -> Iterator[str]:
    """The DATABASE_URL of the test database through a proxy that keeps that many sessions."""
    program = found_program()
    # Where the account that a server runs as may go: not in pytest's own folder.
    folder = Path(tempfile.mkdtemp(prefix="leasequeue-", dir="/var/tmp"))
    place: dict[str, Any] = connections["default"].settings_dict
    words = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    server = " ".join(f"{word}={place[key]}" for word, key in words.items() if place[key])
    ini = folder / "pgbouncer.ini"
    ini.write_text(SETTINGS.format(server=server, folder=folder, port=PORT, sessions=sessions))
    if user := account():
        os.chown(folder, user["user"], user["group"])
        os.chown(ini, user["user"], user["group"])
    process = subprocess.Popen([program, "-q", ini], cwd=folder, stderr=subprocess.DEVNULL, **user)
    try:
        wait_for((folder / f".s.PGSQL.{PORT}").exists)
        yield f"postgres://{place['USER']}@:{PORT}/{folder}/{place['NAME']}"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def found_program() -> str:
    """Its path; installed where root can, else the test is skipped, loudly."""
    ours_to_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    program = shutil.which("pgbouncer", path=FOLDERS)
    if program is None and ours_to_install:
        install()
        program = shutil.which("pgbouncer", path=FOLDERS)
    if program is None:
        (pytest.fail if ours_to_install and os.environ.get("CI") else pytest.skip)(NEEDED)
    return program


def install() -> None:
    """Install the package, and start no service of it."""
    apt = ["apt-get", "-qq", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20"]
    wanted = [*apt, "install", "-y", "--no-install-recommends", "pgbouncer"]
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (wanted, [*apt, "update"], wanted):
        done = subprocess.run(command, capture_output=True, env=quiet, check=False)
        if command is wanted and done.returncode == 0:
            return
