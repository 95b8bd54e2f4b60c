"""A large queue on PostgreSQL, and how long the admin's pages keep the database at it.

``manage.py scale seed`` fills an empty database, yours to drop, with 1,000,000 held tasks and
10,000,000 transitions; ``manage.py scale measure`` prints each page's database time.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import BaseCommand, CommandError, call_command
from django.db import connection
from django.http import HttpResponse
from django.test import Client

from django_leasequeue import batches
from django_leasequeue.models import Batch, DeadLetter, Task, TaskTransition, dead_at
from django_leasequeue.overview import overview
from django_leasequeue.stores import store_for
from example_project.orders.scale import DEATHS, FACTS, HELD, PAST, SEQUENCE, TASKS

LATE: Final = 40
CLOCKED: Final = (
    "Dead letters",
    "Dead letters of a task",
    "Dead letters by error (groups)",
    "Tasks",
)
LAPSES: Final = """
UPDATE leasequeue_task SET attempt = max_attempts, visible_at = now() - interval '1 minute'
 WHERE seq IN (SELECT seq FROM leasequeue_task WHERE lane = 'later' AND state = 'leased' LIMIT %s)
"""


class Command(BaseCommand):
    """``manage.py scale seed|measure``."""

    help = "Fill an empty PostgreSQL database with a large queue; measure the admin's pages on it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        seeds = acts.add_parser("seed")
        seeds.add_argument("--held", type=int, default=1_000_000)
        seeds.add_argument("--transitions", type=int, default=10_000_000)
        measures = acts.add_parser("measure")
        measures.add_argument("--repeats", type=int, default=3, help="The best one counts.")
        measures.add_argument("--explain", action="store_true", help="Slow statements, too.")

    def handle(self, *args: Any, act: str, **options: Any) -> None:
        if act == "seed":
            self.seed(options["held"], options["transitions"])
        else:
            self.measure(options["repeats"], explain=options["explain"])

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.stdout.write(f"{name}: {time.monotonic() - began:.1f} s")

    def seed(self, held: int, transitions: int) -> None:
        call_command("migrate", verbosity=0)
        if Task.objects.exists() or TaskTransition.objects.exists():
            raise CommandError("the database has tasks already: give an empty one")
        lives = (transitions - held - held // 5) // 3
        numbers = {"held": held, "lives": lives, "from": 3 * lives}
        steps = {"past lives": PAST, "held tasks": HELD, "projection": TASKS, "deaths": DEATHS}
        with connection.cursor() as cursor:
            cursor.execute(FACTS)
            for name, statement in steps.items():
                with self.timed(name):
                    cursor.execute(statement, numbers)
            with self.timed("statistics"):
                cursor.execute(f"{SEQUENCE} FROM leasequeue_transition")
                cursor.execute("VACUUM ANALYZE leasequeue_transition")
                cursor.execute("VACUUM ANALYZE leasequeue_task")

    def measure(self, repeats: int, *, explain: bool) -> None:
        settings.ALLOWED_HOSTS = ["testserver"]
        client = Client()
        client.force_login(operator())
        self.stdout.write("| page | ms of database time | statements |\n|---|---:|---:|")
        with self.timed("10,000 letters redriven as one batch, the first time"):
            batch = a_batch()
        asked = pages(client, batch)
        late = {f"{name}; {LATE} dead by the clock alone": asked[name] for name in CLOCKED}
        for name, ask in [*asked.items(), *late.items()]:
            if name in late:
                lapse()
            watches = []
            for _ in range(repeats):
                watch = Stopwatch()
                with connection.execute_wrapper(watch):
                    answer = ask()
                if answer.status_code != 200:
                    raise CommandError(f"{name}: status {answer.status_code}")
                watches.append(watch)
            best = min(watches, key=lambda watch: watch.seconds)
            self.stdout.write(f"| {name} | {best.seconds * 1000:.0f} | {len(best.slowest)} |")
            if explain and best.seconds > 0.1:
                for took, sql in sorted(best.slowest, reverse=True)[:3]:
                    self.stdout.write(f"    {took * 1000:.0f} ms: {sql[:3000]}")


def lapse() -> None:
    """Let some last leases run out, so that nobody has written down yet who died."""
    with connection.cursor() as cursor:
        cursor.execute(LAPSES, [LATE])


class Stopwatch:
    """How long the database took for the statements that went through it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slowest: list[tuple[float, str]] = []

    def __call__(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, *rest)
        finally:
            took = time.perf_counter() - began
            self.seconds += took
            self.slowest.append((took, sql))


def operator() -> User:
    user, _ = User.objects.get_or_create(username="scale", is_staff=True, is_superuser=True)
    return user


def pages(client: Client, batch: Batch) -> dict[str, Callable[[], Any]]:
    """Each page of the admin that shows tasks, transitions or batches."""

    def get(url: str) -> Callable[[], Any]:
        return lambda: client.get(f"/admin/leasequeue/{url}")

    def ask(url: str, verb: str, *numbers: int, **more: Any) -> Callable[[], Any]:
        form = {"action": f"{verb}_selected", "_selected_action": numbers, **more}
        return lambda: client.post(f"/admin/leasequeue/{url}", form)

    letter = DeadLetter.objects.filter(state="dead", fingerprint__isnull=False).order_by("-seq")[0]
    task = Task.objects.filter(state="ready", lane="now").order_by("-seq")[0]
    hundred = list(DeadLetter.objects.filter(state="dead").values_list("seq", flat=True)[:100])
    across = {"select_across": "1"}
    day = store_for("default").now() - timedelta(days=1)
    yesterday = f"?at__year={day.year}&at__month={day.month}&at__day={day.day}"
    return {
        "Dead letters": get("deadletter/"),
        "Dead letters, page 50": get("deadletter/?p=50"),
        "Dead letters, page 100": get("deadletter/?p=100"),
        "Dead letters of a queue and a tenant": get("deadletter/?in_queue=mail&of_tenant=tenant+7"),
        "Dead letters of a task": get("deadletter/?of_task=shop.tasks.step_7"),
        "Dead letters, only ever lost": get("deadletter/?how=lost"),
        "Dead letters of the last day": get("deadletter/?dead=day"),
        "Dead letters with an error": get(f"deadletter/?error={quote(letter.fingerprint or '')}"),
        "Dead letters, search in errors": get("deadletter/?q=article+7777"),
        "Dead letters, sorted by error": get("deadletter/?o=3"),
        "Dead letters by error (groups)": get("deadletter/groups/"),
        "Groups of a queue": get("deadletter/groups/?in_queue=orders"),
        "A dead letter": get(f"deadletter/{letter.pk}/change/"),
        "Redrive 100 selected: the question": ask("deadletter/", "redrive", *hundred),
        "Redrive a group: the question": ask(
            "deadletter/?of_task=shop.tasks.step_7", "redrive", letter.pk, **across
        ),
        "Redrive all 100,000: the question": ask("deadletter/", "redrive", letter.pk, **across),
        "Cancel all tasks: the question": ask("task/", "cancel", task.pk, **across),
        "Redrive all 100,000: the dry run": ask(
            "deadletter/", "redrive", letter.pk, **across, confirmed="yes", rehearse="yes",
            until="2100-01-01T00:00:00+00:00",
        ),
        "Tasks": get("task/"),
        "Tasks, page 50": get("task/?p=50"),
        "Tasks that are ready": get("task/?state=ready"),
        "Tasks that are scheduled": get("task/?state=scheduled"),
        "Tasks that are leased": get("task/?state=leased"),
        "Tasks of a queue and a tenant": get("task/?in_queue=mail&of_tenant=tenant+8"),
        "Tasks of a function": get("task/?of_task=shop.tasks.step_8"),
        "Tasks, search for an own id": get(f"task/?q={task.task_id}"),
        "Tasks, search for a life": get(f"task/?q={task.life}"),
        "Tasks, search for what isn't there": get("task/?q=nobody"),
        "Tasks, sorted by state": get("task/?o=3"),
        "A task": get(f"task/{task.pk}/change/"),
        "Cancel 100 selected: the question": ask("task/", "cancel", *hundred),
        "Transitions": get("tasktransition/"),
        "Transitions, page 50": get("tasktransition/?p=50"),
        "Transitions of a kind": get("tasktransition/?kind=dead"),
        "Transitions of a kind there is none of": get("tasktransition/?kind=dropped"),
        "Transitions of a queue": get("tasktransition/?in_queue=reports"),
        "Transitions of a life": get(f"tasktransition/?q={letter.life}"),
        "Transitions of a day": get("tasktransition/" + yesterday),
        "Transitions of an own id": get(f"tasktransition/?q={task.task_id}"),
        "Transitions, search for what isn't there": get("tasktransition/?q=nobody"),
        "A transition": get(f"tasktransition/{letter.token}/change/"),
        "Overview": get("overview/"),
        "A scrape of the metrics": scrape,
        "Batches": get("batch/"),
        "A batch of 10,000": get(f"batch/{batch.pk}/change/"),
    }  # fmt: skip


def scrape() -> HttpResponse:
    """What Prometheus has asked of the database, without being installed."""
    overview("default")
    return HttpResponse()


def a_batch() -> Batch:
    """A batch that has redriven 10,000; made once."""
    if batch := Batch.objects.filter(total=10_000).first():
        return batch
    letters = DeadLetter.objects.filter(dead_at(store_for("default").now())).order_by("seq")
    numbers = letters.values_list("pk", flat=True)[:10_000]
    batch = batches.begin(
        DeadLetter.objects.filter(pk__in=list(numbers)), verb="redrive", by="scale"
    )
    return batches.go_on(batch, seconds=600)
