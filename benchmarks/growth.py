"""What a large queue, old snapshots, many enqueuers and idleness cost; into docs/growth.md.

    python3 -m example_project bench growth

Some ten minutes and 6 GB of disk; ``--scale 0.01`` to try it. Ours alone, by its own store and its
own worker, on a PostgreSQL started for it whose commits are on disk before they are told.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import django
import psycopg

from benchmarks import marks, report
from benchmarks.server import Server, cpu_seconds, server
from example_project.bootstrap import ROOT

BATCH: Final = 100
CLAIMS: Final = 60  # timed, after some that aren't
SMALL, LARGE, HUGE, SCHEDULED = 10_000, 1_000_000, 5_000_000, 100_000
TENANTS: Final = 10_000
DRAINED: Final = 50_000
ENQUEUERS: Final = 8
SECONDS: Final = 5.0  # of each enqueuers' run
IDLE_SECONDS: Final = 30.0
NOOP: Final = "benchmarks.contestants.leasequeue_tasks.noop"
# What the queue itself would have stored, made by the server: lives of version 7, too, since random
# ones would have each row of the log change another page of its index.
FILL: Final = """
WITH asked AS MATERIALIZED (
    SELECT nextval('leasequeue_transition_id_seq') AS seq, number,
           (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
               || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid AS life,
           CASE WHEN number %% 20 = 0 THEN 't' || number / 20 %% %(tenants)s ELSE 't0' END
               AS tenant,
           (number %% %(priorities)s)::smallint AS priority, now() + %(wait)s AS visible_at,
           '{"args":[' || number || '],"kwargs":{}}' AS payload
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number
),
logged AS (
    INSERT INTO leasequeue_transition
           (id, life, kind, at, queue, tenant, attempt, visible_at, task_id, payload, data)
    SELECT seq, life, 'enqueued', now(), 'default', tenant, 0, visible_at, life::text, payload,
           %(data)s
      FROM asked
)
INSERT INTO leasequeue_task
       (seq, life, queue, tenant, task_id, path, payload, priority, max_attempts, visibility,
        max_lease, state, enqueued_at, visible_at, attempt, last_error, lane)
SELECT seq, life, 'default', tenant, life::text, %(path)s, payload, priority, 5, '1 hour', '1 day',
       'ready', now(), visible_at, 0, '', CASE WHEN visible_at > now() THEN 'later' ELSE 'now' END
  FROM asked
"""


PAGE: Final = f"""\
# Growth

Made by `make bench ARGS=growth`, which writes this page anew: the queue by itself, in one run on
one machine. Ratios travel, figures don't.

{{machine}}

{{table}}

- A claim leases {BATCH}; {CLAIMS} of them were timed. The backlogs have five priorities. They were
  made by the server, as the queue would have stored them, then analysed.
- The dead rows are those of tasks that were leased while another session held a snapshot.
- A drain is one worker process, from its first task to the last of {DRAINED:,}.
- Enqueuers are processes that call `.enqueue()` in a row, for {SECONDS:g} seconds. Where somebody
  always sleeps, as no worker with work does, each of their commits is followed by a notification.
- The idle worker was watched for {IDLE_SECONDS:g} seconds; its statements are all that its
  database saw.
"""


class Place:
    """A database of ours, this process's Django on it, and workers."""

    def __init__(self, postgres: Server, database: str, folder: Path, scale: float) -> None:
        self.postgres = postgres
        self.database = database
        self.folder = folder
        self.scale = scale
        self.filled = 0
        os.environ.update(
            postgres.environment(database),
            DJANGO_SETTINGS_MODULE="benchmarks.contestants.site",
            PYTHONPATH=str(ROOT),
            **{marks.FOLDER: str(folder)},
        )
        django.setup()
        self.sql = psycopg.connect(postgres.dsn(database), autocommit=True)
        from benchmarks.contestants import leasequeue  # noqa: PLC0415  after the set-up

        self.ours = leasequeue
        leasequeue.prepare()

    def scaled(self, count: int) -> int:
        return max(BATCH, int(count * self.scale))

    def empty(self) -> None:
        self.ours.empty()
        self.filled = 0

    def fill(self, count: int, *, tenants: int = 1, priorities: int = 5, wait: str = "0 s") -> None:
        """Let *count* more tasks wait; the first of *tenants* has nearly all of them."""
        first, self.filled = self.filled + 1, self.filled + count
        asked = {"first": first, "last": self.filled, "tenants": tenants, "path": NOOP}
        asked["priorities"] = priorities
        data = f'{{"path":"{NOOP}","priority":0}}'
        self.sql.execute(FILL, asked | {"wait": wait, "data": data})
        self.postgres.settle(self.database)

    def claims(self, limit: int = BATCH) -> list[float]:
        """Milliseconds that each of some claims takes."""
        from django_leasequeue import Queue  # noqa: PLC0415  after the set-up

        queue = Queue("default")
        taken = []
        for number in range(CLAIMS + 5):
            begun = time.perf_counter()
            assert len(queue.claim(worker="growth", limit=limit)) == limit
            if number >= 5:
                taken.append((time.perf_counter() - begun) * 1000)
        return taken

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        marks.clear(self.folder)
        command = [sys.executable, "-m", "django", "leasequeue_worker", "-v", "0", *arguments]
        process = subprocess.Popen(command)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def drain(self, count: int) -> float:
        """Tasks a second, of the first *count*."""
        with self.worker("--max-tasks", str(count)) as process:
            process.wait()
        times = sorted(at for each in marks.read(self.folder) for _, at in each)
        return (len(times) - 1) / (times[-1] - times[0])


Row = tuple[str, str, str]


def claims(place: Place) -> Iterator[Row]:
    """By the size of the backlog, with many tenants, and under an old snapshot."""
    times = {}
    for size in (SMALL, LARGE, HUGE):
        place.fill(place.scaled(size) - place.filled)
        times[size] = place.claims()
        yield (f"claim of {BATCH}, {place.filled:,} waiting", *two(times[size]))
    yield ratio("the largest against the smallest", times[HUGE], times[SMALL])
    place.empty()
    place.fill(place.scaled(LARGE), tenants=TENANTS)
    many = place.claims()
    yield (
        f"claim of {BATCH}, {place.filled:,} waiting, {TENANTS:,} tenants, one has 95 %",
        *two(many),
    )
    yield ratio("against one tenant", many, times[LARGE])
    yield from dead_rows(place, "one tenant", 1)
    yield from dead_rows(place, f"{TENANTS:,} tenants, one has 95 %", TENANTS)


def dead_rows(place: Place, which: str, tenants: int) -> Iterator[Row]:
    place.empty()
    place.fill(place.scaled(2 * LARGE), tenants=tenants)
    clean = place.claims()
    with psycopg.connect(place.postgres.dsn(place.database)) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM leasequeue_turn")
        for _ in range(place.scaled(LARGE) // (1000 * (CLAIMS + 5)) + 1):
            place.claims(min(1000, place.scaled(1000)))
        held = place.claims()
    dead = f"{place.scaled(LARGE):,} dead rows under an old snapshot"
    yield (f"claim of {BATCH}, {dead}, {which}", *two(held))
    yield ratio("against none", held, clean)


def two(times: list[float]) -> tuple[str, str]:
    return f"{median(times):.2f} ms", f"{p95(times):.2f} ms"


def p95(times: list[float]) -> float:
    return quantiles(times, n=20, method="inclusive")[18]


def ratio(what: str, these: list[float], those: list[float]) -> Row:
    middle, high = median(these) / median(those), p95(these) / p95(those)
    return f"> {what}", f"{middle:.2f} times", f"{high:.2f} times"


def drains(place: Place) -> Iterator[Row]:
    rates = []
    count = place.scaled(DRAINED)
    for size, scheduled in ((DRAINED, 0), (LARGE, SCHEDULED)):
        place.empty()
        later = place.scaled(scheduled) if scheduled else 0
        if later:
            place.fill(later, wait="1 day")
        place.fill(place.scaled(size))
        rates.append(place.drain(count))
        what = f"drain, {place.scaled(size):,} waiting, {later:,} scheduled"
        yield what, f"{rates[-1]:,.0f} a second", ""
    yield "> the large one against the small one", f"{rates[1] / rates[0]:.2f} times", ""


def enqueue_for(seconds: float, tell: bool, count: Any) -> None:
    """Enqueue one by one; a process's work."""
    django.setup()
    from benchmarks.contestants import leasequeue  # noqa: PLC0415  after the set-up
    from django_leasequeue.stores import postgres  # noqa: PLC0415
    from django_leasequeue.stores.postgres.statements import run_plain  # noqa: PLC0415

    if not tell:
        setattr(postgres, "run_along", lambda *asked: (run_plain(*asked[:3]), True))  # noqa: B010
    end = time.monotonic() + seconds
    done = 0
    while time.monotonic() < end:
        leasequeue.enqueue(done)
        done += 1
    with count.get_lock():
        count.value += done


def enqueuers(place: Place) -> Iterator[Row]:
    from django_leasequeue import Queue  # noqa: PLC0415  after the set-up

    def rate(*, tell: bool) -> float:
        place.empty()
        fresh = multiprocessing.get_context("spawn")
        count = fresh.Value("q", 0)
        asked = (SECONDS, tell, count)
        busy = [fresh.Process(target=enqueue_for, args=asked) for _ in range(ENQUEUERS)]
        for each in busy:
            each.start()
        for each in busy:
            each.join()
        return float(count.value) / SECONDS

    with Queue("default").borrowed_sleeper() as sleeper:
        silent = rate(tell=False)
        nobody = rate(tell=True)
        with sleeper:
            somebody = rate(tell=True)
    yield f"{ENQUEUERS} enqueuers, wake-ups switched off", f"{silent:,.0f} a second", ""
    yield "> nobody sleeps", f"{nobody:,.0f} a second", f"{nobody / silent:.2f} times"
    yield "> somebody always does", f"{somebody:,.0f} a second", f"{somebody / silent:.2f} times"


def idleness(place: Place) -> Iterator[Row]:
    place.empty()
    place.ours.enqueue(1)
    begun = time.monotonic()
    with place.worker() as process:
        while not marks.count(place.folder):
            time.sleep(0.005)
        [[(_, at)]] = marks.read(place.folder)
        yield "a worker's start, to its first task", f"{at - begun:.2f} s", ""
        time.sleep(3)
        before = place.postgres.counters(place.database), cpu_seconds(process.pid)
        time.sleep(IDLE_SECONDS)
        after = place.postgres.counters(place.database), cpu_seconds(process.pid)
    asked = after[0].statements - before[0].statements
    share = (after[1] - before[1]) / IDLE_SECONDS
    yield (
        "an idle worker",
        f"{share:.2%} of a core",
        f"{60 * asked / IDLE_SECONDS:.0f} statements a minute",
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench growth", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="Below 1 to try it.")
    parser.add_argument("--docs", default=str(ROOT / "docs"), help="Where the page goes.")
    asked = parser.parse_args(arguments)
    parts: list[Callable[[Place], Iterator[Row]]] = [idleness, enqueuers, drains, claims]
    rows = []
    with (
        server() as postgres,
        postgres.database("growth") as database,
        tempfile.TemporaryDirectory() as folder,
    ):
        place = Place(postgres, database, Path(folder), asked.scale)
        for part in parts:
            for row in part(place):
                print(*row, sep="  ", flush=True)
                rows.append(row)
        place.sql.close()
        django.db.connections.close_all()
        today = datetime.now(UTC).date().isoformat()  # noqa: TID251  a date for readers
        run = report.Run(date=today, server=postgres.version, rounds=1)
        versions = {"Django": django.__version__, "psycopg": psycopg.__version__}
        table = report.markdown([("", "in the middle", "at p95, or else"), *rows])
        page = Path(asked.docs, "growth.md")
        page.write_text(PAGE.format(machine=report.machine(versions, run), table=table))
    print(f"Written: {page}")
