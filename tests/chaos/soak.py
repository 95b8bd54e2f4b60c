"""A worker under a steady load, for as long as you like: does anything grow, or get slower?

    python3 -m example_project soak --minutes 20

Beside the load 10,000 scheduled tasks and 1,000 dead letters stay in the queue. The log forgets
after a minute, so that every table has a size that it should keep. Memory is the worker's resident
set; the claim time is that of a claim of one task from the busy queue, and its completion isn't in
it. What is compared is the second quarter of the time and the last one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import django

from tests.chaos.stage import SETTINGS, Member, Stage, staged

if TYPE_CHECKING:
    from django_leasequeue import Queue

A_DAY: Final = timedelta(days=1)
CLAIMS: Final = 20  # a sample
QUEUE: Final = "steady"
PATH: Final = "tests.chaos.tasks.once"
SIZES: Final = """
SELECT sum(pg_relation_size(oid)) FILTER (WHERE relname = 'leasequeue_task'),
       sum(pg_indexes_size(oid)) FILTER (WHERE relname = 'leasequeue_task'),
       sum(pg_relation_size(oid)) FILTER (WHERE relname = 'leasequeue_transition'),
       sum(pg_indexes_size(oid)) FILTER (WHERE relname = 'leasequeue_transition'),
       sum(pg_total_relation_size(oid)) FILTER (WHERE relname IN (
           'leasequeue_effect', 'leasequeue_turn', 'leasequeue_tally'))
  FROM pg_class WHERE relkind = 'r'
"""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """How things stand: sizes in kB, the claim time in milliseconds."""

    minute: float
    memory: float
    task_table: float
    task_indexes: float
    log_table: float
    log_indexes: float
    other_tables: float
    claim: float
    waiting: float


# What grows all the time is 2.3 times as large; what was once needed for a backlog stays allotted.
GROWTH_MAX: Final = {"memory": 1.1, "claim": 2.0} | dict.fromkeys(
    ("task_table", "task_indexes", "log_table", "log_indexes", "other_tables"), 1.7
)


def main() -> int:
    options = parser().parse_args()
    with staged(0) as stage:
        os.environ |= {"DJANGO_SETTINGS_MODULE": SETTINGS, "DATABASE_URL": stage.cluster.url}
        django.setup()
        from django_leasequeue import Queue  # noqa: PLC0415  they need the settings
        from tests.chaos.conduct import prepare  # noqa: PLC0415

        prepare(stage)
        print(
            f"on {stage.cluster.programs}: one worker of {options.threads} threads,"
            f" {options.per_second:g} tasks a second for {options.minutes:g} minutes"
        )
        queue = Queue(QUEUE)
        fill(queue)
        with loaded(stage, queue, options.per_second, options.threads) as worker:
            samples = list(sampled(stage, queue, worker, options.minutes))
    growths = dict(grown(samples))
    print("\n".join(f"{name}: {growth:.2f} times" for name, growth in growths.items()))
    return int(any(growth > GROWTH_MAX[name] for name, growth in growths.items()))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m example_project soak", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=20, help="default: %(default)s")
    add("--per-second", type=float, default=40, help="tasks enqueued; default: %(default)s")
    add("--threads", type=int, default=4, help="of the worker; default: %(default)s")
    return parser


@contextmanager
def loaded(stage: Stage, queue: Queue, per_second: float, threads: int) -> Iterator[Member]:
    """A worker at work, and a thread that keeps it busy."""
    command = ["-m", "django", "leasequeue_worker", "--backend", QUEUE, "--verbosity", "0"]
    worker = stage.member("worker", [*command, "--threads", str(threads)], stage.direct_url)
    stage.workers.append(worker)
    worker.start()
    over = threading.Event()
    load = threading.Thread(target=enqueue, args=[queue, per_second, over])
    load.start()
    try:
        yield worker
    finally:
        over.set()
        load.join()


def sampled(stage: Stage, queue: Queue, worker: Member, minutes: float) -> Iterator[Sample]:
    """One each thirtieth of the time; told as they come."""
    print(" ".join(f"{field.name:>12}" for field in fields(Sample)), flush=True)
    start = time.monotonic()
    for number in range(1, 31):
        time.sleep(max(start + number * minutes * 2 - time.monotonic(), 0))
        assert not worker.ended(), worker.log.read_text()
        found = sample(stage, queue, worker, time.monotonic() - start)
        print(
            " ".join(f"{getattr(found, field.name):>12.1f}" for field in fields(Sample)), flush=True
        )
        yield found


def fill(queue: Queue) -> None:
    """What stays: scheduled tasks, and dead letters."""
    call = {"args": ["", {}], "kwargs": {}}
    queue.enqueue_many({"payload": call, "run_after": A_DAY} for _ in range(10_000))
    queue.enqueue_many({"payload": call} for _ in range(1_000))
    while leases := queue.claim(worker="w", limit=20):
        for lease in leases:
            queue.fail(lease, "refused", retryable=False)


def enqueue(queue: Queue, per_second: float, over: threading.Event) -> None:
    """Ten times a second what is due; some of it fails once, some takes its time."""
    plans = [{}, {}, {}, {"takes": 0.02}, {"takes": 0.02}, {"fails": 1}]
    number, start = 0, time.monotonic()
    while not over.wait(0.1):
        due = int((time.monotonic() - start) * per_second)
        calls = [{"args": ["", plans[n % len(plans)]], "kwargs": {}} for n in range(number, due)]
        queue.enqueue_many({"payload": call, "path": PATH} for call in calls)
        number = due


def sample(stage: Stage, queue: Queue, worker: Member, seconds: float) -> Sample:
    [sizes] = stage.sql(SIZES)
    names = ("task_table", "task_indexes", "log_table", "log_indexes", "other_tables")
    assert worker.process
    asked = ["ps", "-o", "rss=", "-p", str(worker.process.pid)]
    memory = subprocess.run(asked, capture_output=True, check=True)
    return Sample(
        minute=seconds / 60,
        memory=float(memory.stdout),
        **{name: float(size) / 1024 for name, size in zip(names, sizes, strict=True)},
        claim=claim_milliseconds(queue),
        waiting=queue.depth().visible,
    )


def claim_milliseconds(queue: Queue) -> float:
    """The median of some claims of one task."""
    took = []
    for _ in range(CLAIMS):
        start = time.perf_counter()
        leases = queue.claim(worker="sampler", limit=1)
        took.append(time.perf_counter() - start)
        queue.complete_many((lease, None) for lease in leases)
    return statistics.median(took) * 1000


def grown(samples: Sequence[Sample]) -> Iterator[tuple[str, float]]:
    """How many times as large each is in the last quarter as in the second one: medians."""
    quarter = max(len(samples) // 4, 1)
    for name in GROWTH_MAX:
        early, late = (
            statistics.median(getattr(sample, name) for sample in part)
            for part in (samples[quarter : 2 * quarter], samples[-quarter:])
        )
        yield name, late / early


if __name__ == "__main__":
    sys.exit(main())
