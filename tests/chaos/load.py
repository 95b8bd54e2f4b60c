"""A client of the queue: enqueues, and does what operators do, until it is killed.

It writes down what it was told, one line of JSON each, before it goes on: what the log has to
agree with. ``said`` is

- ``stored``: the call came back; the task of that life holds the mark
- ``duplicate``: it came back with a task that was there already
- ``undone``: its transaction was rolled back on purpose
- ``unknown``: the database went away in the middle: stored or not
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.db import Error, connection, transaction
from django.db.models import QuerySet

from django_leasequeue import Queue, QueueUnavailableError, batches
from django_leasequeue.models import Task
from django_leasequeue.records import EnqueuedTask
from tests.chaos import tasks
from tests.chaos.evidence import ORDER_TABLE, RECORDS

QUEUES: Final = ("work", "work", "work", "strict", "brief")
RATE: Final = 50.0  # tasks a second that a batch moves
GONE_FOR: Final = 0.3  # seconds to wait for a database that went away


class Undone(Exception):
    """Rolls a transaction back."""


def a_plan(dice: random.Random) -> dict[str, Any]:
    """What a task is to do: mostly its work, and at once."""
    plans: list[dict[str, Any]] = [
        {"fails": 1},
        {"fails": 2, "takes": 0.05},
        {"fails": 99},
        {"fatal": True},
        {"dies": 1},
        {"dies": 2},
        {"dies": 99},
        {"takes": 3},  # longer than its lease
        {"takes": 0.3, "details": True},
    ]
    weights = [30, 20, 6, 6, 3, 1, 0.5, 3, 20]
    troubled = dice.random() < 0.25
    return dice.choices(plans, weights)[0] if troubled else {"takes": dice.choice([0, 0, 0.02])}


class Client:
    def __init__(self, seed: int, number: int) -> None:
        # Not the same again whenever it starts anew, else it would rarely come further.
        self.dice = random.Random(f"{seed} {number} {os.environ['CHAOS_START']}")
        self.prefix = f"{number}-{os.getpid()}"
        self.count = 0
        self.path = Path(os.environ["CHAOS_FOLDER"]) / RECORDS
        self.queues = {name: Queue(name) for name in QUEUES}
        self.paths = [task.module_path for task in tasks.ALL]
        self.acts: list[Callable[[], None]] = [
            *[self.enqueue] * 30,
            *[self.with_an_order] * 30,
            *[self.many_until_it_works] * 6,
            *[self.under_a_key] * 15,
            *[self.cancel] * 4,
            *[self.redrive] * 2,
            *[self.erase] * 1,
            *[self.pause_for_a_while] * 2,
            *[self.redrive_as_a_batch] * 4,
            *[self.cancel_as_a_batch] * 4,
        ]
        self.stored: list[tuple[str, EnqueuedTask]] = []  # the last few, and their queues

    def run(self, per_second: float) -> None:
        print("started", flush=True)
        while True:
            self.dice.choice(self.acts)()
            time.sleep(self.dice.expovariate(per_second))

    def say(self, said: str, mark: str, queue: str, task: EnqueuedTask | None = None) -> None:
        line = {"said": said, "mark": mark, "queue": queue, "life": task and str(task.life)}
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{json.dumps(line)}\n".encode())
        os.close(file)
        if task:
            self.stored = [*self.stored[-50:], (queue, task)]

    def new_mark(self, kind: str) -> str:
        self.count += 1
        return f"{kind}-{self.prefix}-{self.count}"

    def new_task(self, mark: str) -> dict[str, Any]:
        call = {"args": [mark, a_plan(self.dice)], "kwargs": {}}
        delay = self.dice.choice([None, None, None, timedelta(seconds=self.dice.random())])
        return {
            "payload": call,
            "path": self.dice.choice(self.paths),
            "tenant": self.dice.choice(["", "", "", "ada", "bob"]),
            "priority": self.dice.choice([0, 0, 7]),
            "run_after": delay,
        }

    def asked(self, mark: str, queue: str, act: Callable[[], Any]) -> Any:
        """What *act* answers; whatever goes wrong in it is written down as unknown."""
        try:
            return act()
        except (QueueUnavailableError, Error):
            self.say("unknown", mark, queue)
            connection.close()
            time.sleep(GONE_FOR)
            return None

    # What it does

    def enqueue(self) -> None:
        mark, queue = self.new_mark("one"), self.dice.choice(QUEUES)
        task = self.new_task(mark)
        if stored := self.asked(mark, queue, partial(self.queues[queue].enqueue, **task)):
            self.say("stored", mark, queue, stored)

    def with_an_order(self) -> None:
        """Both or neither: a row of the site's own, and the task it asks for."""
        mark, queue = self.new_mark("order"), self.dice.choice(QUEUES)
        task, undone = self.new_task(mark), self.dice.random() < 0.2

        def order() -> Any:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"INSERT INTO {ORDER_TABLE} (mark) VALUES (%s)", [mark])  # noqa: S608
                stored = self.queues[queue].enqueue(**task)
                if undone:
                    raise Undone
            return stored

        try:
            if stored := self.asked(mark, queue, order):
                self.say("stored", mark, queue, stored)
        except Undone:
            self.say("undone", mark, queue)

    def many_until_it_works(self) -> None:
        """The same ids are safe to repeat."""
        marks, queue = [self.new_mark("many") for _ in range(10)], self.dice.choice(QUEUES)
        tasks = [self.new_task(mark) | {"id": mark} for mark in marks]
        stored = None
        while stored is None:
            stored = self.asked(marks[0], queue, partial(self.queues[queue].enqueue_many, tasks))
        for mark, task in zip(marks, stored, strict=True):
            self.say("stored", mark, queue, task)

    def under_a_key(self) -> None:
        mark, queue = self.new_mark("key"), self.dice.choice(QUEUES)
        task = self.new_task(mark) | {"dedupe_key": self.dice.choice("abcdef"), "tenant": ""}
        if stored := self.asked(mark, queue, partial(self.queues[queue].enqueue, **task)):
            self.say("duplicate" if stored.duplicate else "stored", mark, queue, stored)

    def cancel(self) -> None:
        if self.stored:
            queue, task = self.dice.choice(self.stored)
            cancel = partial(self.queues[queue].cancel, task.id, tenant=task.tenant, by="chaos")
            self.asked("cancel", queue, cancel)

    def redrive(self) -> None:
        queue = self.dice.choice(QUEUES)
        self.asked("redrive", queue, partial(self.queues[queue].redrive_all, by="chaos"))

    def erase(self) -> None:
        if self.stored:
            queue, task = self.dice.choice(self.stored)
            self.asked("erase", queue, partial(self.queues[queue].erase, task.life, by="chaos"))

    def pause_for_a_while(self) -> None:
        """Whoever dies meanwhile leaves it to the others to resume."""
        queue = self.dice.choice(QUEUES)
        if self.asked("pause", queue, partial(self.queues[queue].pause, by="chaos")):
            time.sleep(self.dice.random())
        self.asked("resume", queue, partial(self.queues[queue].resume, by="chaos"))

    def redrive_as_a_batch(self) -> None:
        queue = self.dice.choice(QUEUES)
        letters = Task.objects.filter(queue=queue, state="dead")
        self.do_as_a_batch(queue, letters, verb="redrive", rate=self.dice.choice([None, RATE]))

    def cancel_as_a_batch(self) -> None:
        """Some of the last tasks, wherever they are by now."""
        queue = self.dice.choice(QUEUES)
        lives = [task.life for where, task in self.stored if where == queue][-3:]
        self.do_as_a_batch(queue, Task.objects.filter(life__in=lives), verb="cancel")

    def do_as_a_batch(self, queue: str, rows: QuerySet[Task], **given: Any) -> None:
        """Begin it, and go on with it for a moment or not at all: the workers do the rest."""
        by = self.new_mark("batch")
        batch = self.asked(by, queue, partial(batches.begin, rows, by=by, **given))
        if batch and self.dice.random() < 0.5:
            self.asked(by, queue, partial(batches.go_on, batch, seconds=0.1))


def main() -> None:
    """Its arguments: the run's seed, the client's number, its calls per second."""
    seed, number, per_second = sys.argv[1:]
    Client(int(seed), int(number)).run(float(per_second))
