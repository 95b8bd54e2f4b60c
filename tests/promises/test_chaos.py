"""Deaths and late answers by a seeded schedule: each task is acked, each effect applied, once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from django_leasequeue import Lease, LeaseLostError, Queue, QueuePolicy
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind, fold_all

MakeQueue = Callable[..., Queue]
TASKS = 60


class Effects:
    """Where the work's own effect goes: a table of the queue's database, a list without one."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.applied: list[str] = []
        if using != "memory":
            self.run("CREATE TABLE chaos_effect (task varchar(200))")

    def run(self, sql: str, *parameters: str) -> list[Any]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    def apply_and_complete(self, queue: Queue, lease: Lease) -> None:
        """Work and acknowledgement in one commit, where there are commits."""
        if self.using == "memory":
            queue.complete(lease)
            self.applied.append(lease.id)
            return
        with transaction.atomic(using=self.using):
            self.run("INSERT INTO chaos_effect VALUES (%s)", lease.id)
            queue.complete(lease)

    def counts(self) -> Counter[str]:
        if self.using == "memory":
            return Counter(self.applied)
        return Counter(task for (task,) in self.run("SELECT task FROM chaos_effect"))

    def close(self) -> None:
        if self.using != "memory":
            self.run("DROP TABLE chaos_effect")


@pytest.fixture
def queue(make_queue: MakeQueue) -> Queue:
    return make_queue(policy=QueuePolicy(visibility=30, max_attempts=1000, backoff_base=1))


@pytest.fixture
def effects(queue: Queue) -> Iterator[Effects]:
    effects = Effects(queue.using)
    yield effects
    effects.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_deaths_and_late_answers_neither_lose_nor_repeat_anything(
    queue: Queue, effects: Effects, clock: FakeClock, seed: int
) -> None:
    """G11, G15, G33"""
    dice = random.Random(seed)
    tasks = queue.enqueue_many(
        {"payload": {}, "id": f"t{n}", "tenant": dice.choice("xyz")} for n in range(TASKS)
    )
    late: list[Lease] = []
    refused = 0

    while queue.depth() != type(queue.depth())(visible=0, scheduled=0, leased=0, dead=0):
        for lease in queue.claim(worker=f"w{dice.randrange(4)}", limit=dice.randint(1, 8)):
            match dice.choice(["finish", "die", "answer late", "fail", "release", "renew"]):
                case "finish":
                    effects.apply_and_complete(queue, lease)
                case "answer late":
                    late.append(lease)
                case "fail":
                    queue.fail(lease, "refused", retry_after=dice.random())
                case "release":
                    queue.release(lease)
                case "renew":
                    late.append(queue.heartbeat(lease, details={"seed": seed}))
        clock.advance(dice.choice([0.5, 5, 31]))
        for lease in dice.sample(late, len(late) // 2):
            late.remove(lease)
            try:
                effects.apply_and_complete(queue, lease)
            except LeaseLostError:
                refused += 1

    assert refused, "the schedule had no stale worker in it"
    assert effects.counts() == Counter({task.id: 1 for task in tasks})
    for task in tasks:
        history = queue.store.history([task.life])
        assert [row.kind for row in history].count(Kind.ACKED) == 1
        assert history[-1].kind is Kind.ACKED
        assert fold_all(history) is None, "a legal path"
        tokens = [row.position for row in history if row.kind is Kind.LEASED]
        assert tokens == sorted(set(tokens))
        assert history[-1].token == tokens[-1], "acked by the newest lease"
