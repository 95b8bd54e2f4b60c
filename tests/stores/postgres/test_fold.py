"""The projection is the fold of the log, bit for bit, after whatever the store was asked to do."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from django_leasequeue.lease import Lease
from django_leasequeue.models import Task
from django_leasequeue.stores.base import Finish
from django_leasequeue.stores.postgres import PostgresStore
from django_leasequeue.transitions import Kind, State, fold_all
from tests.builders import a_task

from .conftest import HandClock, a_failure, log


def assert_folded() -> None:
    histories: dict[object, list[object]] = {}
    for transition in log():
        histories.setdefault(transition.life, []).append(transition)
    folded = {life: fold_all(history) for life, history in histories.items()}  # type: ignore[arg-type]
    held = {task.life: task for task in Task.objects.all()}
    assert {life: task for life, task in folded.items() if task} == {
        life: task.record for life, task in held.items()
    }
    for task in held.values():
        assert task.live_key == task.record.live_key
        assert (task.lane is None) == (task.state == State.DEAD)


class Player:
    """Plays random moves of one queue; leases are kept, lost ones included."""

    def __init__(self, store: PostgresStore, clock: HandClock, seed: int) -> None:
        self.store, self.clock, self.random = store, clock, random.Random(seed)
        self.leases: list[Lease] = []
        self.second = 0.0

    def some_leases(self) -> list[Lease]:
        return self.random.sample(self.leases, min(len(self.leases), self.random.randint(0, 3)))

    def enqueue(self) -> None:
        choose = self.random.choice
        tasks = [
            a_task(
                choose("abcdefgh"),
                tenant=choose(["", "x"]),
                priority=choose([0, 5]),
                dedupe_key=choose([None, "k", "l"]),
                run_after=choose([None, timedelta(seconds=7)]),
                max_attempts=choose([1, 2, 3]),
            )
            for _ in range(self.random.randint(1, 4))
        ]
        answers = self.store.enqueue("q", tasks)
        for task, answer in zip(tasks, answers, strict=True):
            assert answer.duplicate == (answer.life != task.life)

    def claim(self) -> None:
        worker = self.random.choice(["w1", "w2"])
        self.leases += self.store.claim("q", worker=worker, limit=self.random.randint(1, 5))

    def heartbeat(self) -> None:
        for lease in self.some_leases():
            self.store.heartbeat(lease, self.random.choice([None, '{"done":3}']))

    def complete(self) -> None:
        self.store.complete([Finish(lease=lease, result="null") for lease in self.some_leases()])

    def fail(self) -> None:
        kind = self.random.choice([Kind.RETRIED, Kind.DEAD, Kind.DROPPED])
        delay = self.random.choice([0, 4])
        self.store.fail([a_failure(lease, kind, delay) for lease in self.some_leases()])

    def release(self) -> None:
        self.store.release(self.some_leases())

    def settle(self) -> None:
        self.store.settle("q", limit=self.random.randint(1, 5))

    def adopt(self) -> None:
        self.store.adopt("q", "w1")

    def redrive(self) -> None:
        tenant = self.random.choice(["", "x"])
        self.store.redrive("q", list("abcdefgh"), tenant=tenant, by="ada", reason=None)

    def cancel(self) -> None:
        id = self.random.choice("abcdefgh")
        self.store.cancel("q", [id], tenant="", by="ada", reason="test")

    def wait(self) -> None:
        self.second += self.random.choice([1, 5, 30])
        self.clock.set(self.second)


MOVES = (
    [Player.enqueue] * 3
    + [Player.claim] * 4
    + [Player.heartbeat, Player.complete, Player.fail, Player.fail, Player.release]
    + [Player.settle, Player.adopt, Player.redrive, Player.redrive, Player.cancel]
    + [Player.wait] * 3
)


@pytest.mark.parametrize("seed", range(6))
def test_the_projection_equals_the_fold_of_the_log_after_every_move(
    store: PostgresStore, clock: HandClock, seed: int
) -> None:
    """G33"""
    player = Player(store, clock, seed)
    for _ in range(80):
        move = player.random.choice(MOVES)
        move(player)
        assert_folded()


def test_instants_are_exact_where_the_session_has_summer_time(
    store: PostgresStore, clock: HandClock, settings: object
) -> None:
    """A lease of one day over the change of clocks lasts 24 hours, to the microsecond."""
    from django.db import connection  # noqa: PLC0415  kept beside its only use

    clock.moment = clock.moment.replace(month=3, day=30, hour=12, microsecond=7)
    day = timedelta(days=1)
    with connection.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'Europe/Berlin'")
    store.enqueue("q", [a_task("a", visibility=day, max_lease=2 * day)])
    [lease] = store.claim("q", worker="w", limit=1)

    assert lease.deadline - clock.now() == day
    renewed = store.heartbeat(lease, None)
    assert renewed is not None
    assert renewed.deadline - clock.now() == day
    assert_folded()
