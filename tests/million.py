"""Verify a million held tasks, and say what time and memory that takes: ``make million``.

On the database of DATABASE_URL, whose tables of ours have to be empty, else on a private server.
A tenth of them is verified first: memory that grows with them would show.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import django

from example_project import devdb

ROOT: Final = Path(__file__).resolve().parents[1]
TASKS: Final = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
RETRIED, LEASED, DEAD, DONE = 200, 100, 100, 300  # beside each 600 that wait
DAY_SECONDS: Final = 86_400.0


def main() -> None:
    cluster = None if os.environ.get("DATABASE_URL") else devdb.start(ROOT, keep=False)
    if cluster:
        os.environ["DATABASE_URL"] = cluster.url
    os.environ |= {"DJANGO_SETTINGS_MODULE": "tests.settings", "MARIADB_URL": ""}
    try:
        manage("migrate", "--verbosity", "0")
        django.setup()
        for thousands in (TASKS // 10_000, TASKS // 1000 - TASKS // 10_000):
            began = time.monotonic()
            seed(thousands)
            print(f"{thousands * 1000} more tasks in {time.monotonic() - began:.0f} s", flush=True)
            measure()
    finally:
        if cluster:
            cluster.close()


def seed(thousands: int) -> None:
    """So many thousand held tasks, in every state, and some that have left."""
    # Once Django is set up.
    from django_leasequeue import Queue, QueuePolicy  # noqa: PLC0415
    from django_leasequeue.transitions import Kind  # noqa: PLC0415
    from tests.builders import a_failure  # noqa: PLC0415

    policy = QueuePolicy(visibility=DAY_SECONDS, max_attempts=3)
    queue = Queue("million", using="default", policy=policy)
    payload = {"to": "ada@example.org", "words": "lorem ipsum " * 20}
    for _ in range(thousands):
        queue.enqueue_many([{"payload": payload}] * (1000 + DONE))
        leases = queue.claim(worker="w", limit=RETRIED + LEASED + DEAD + DONE)
        queue.complete_many([(lease, None) for lease in leases[:DONE]])
        dead = [a_failure(lease, Kind.DEAD) for lease in leases[DONE : DONE + DEAD]]
        later = leases[DONE + DEAD : DONE + DEAD + RETRIED]
        queue.store.fail(dead + [a_failure(lease, seconds=DAY_SECONDS) for lease in later])


def measure() -> None:
    """Verify in a process of its own, and tell what it took."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "leasequeue", "verify", "--database", "default"], cwd=ROOT
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    print(
        f"peak memory {used.ru_maxrss / 1024:.0f} MiB, processor {used.ru_utime:.0f} s", flush=True
    )
    if process.returncode:
        sys.exit(process.returncode)


def manage(*arguments: str) -> None:
    subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
