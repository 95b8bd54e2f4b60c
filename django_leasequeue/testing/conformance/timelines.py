"""Two timelines, row for row: what each call answers at each second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django_leasequeue.errors import LeaseLostError, LostReason
from django_leasequeue.lease import Lease
from django_leasequeue.policy import QueuePolicy
from django_leasequeue.queue import Queue
from django_leasequeue.records import Depth, Disposition

from ..clock import FakeClock
from .base import Chapter, MakeQueue, second

NOTHING: Final = None


class Timeline:
    """Plays rows of (second, call, expected) and remembers the leases by task and attempt."""

    def __init__(self, queue: Queue, clock: FakeClock) -> None:
        self.queue, self.clock = queue, clock
        self.leases: dict[tuple[str, int], Lease] = {}
        self.tokens: list[int] = []

    def play(self, rows: list[tuple[int, Callable[[], Any], Any]]) -> None:
        for number, (now, call, expected) in enumerate(rows, 1):
            self.clock.set(now)
            answer = call()
            assert answer == expected, f"row {number}, at {now}: {answer}, not {expected}"

    def poll(self, worker: str = "w") -> tuple[str, int, int, float] | None:
        """Task, attempt, which token that is (1st, 2nd, ...), deadline in seconds."""
        lease = self.queue.poll(worker=worker, wait=0)
        if lease is None:
            return NOTHING
        assert lease.token > max(self.tokens, default=0), "a token that doesn't grow"
        self.tokens.append(lease.token)
        self.leases[lease.id, lease.attempt] = lease
        return lease.id, lease.attempt, len(self.tokens), second(self.clock, lease.deadline)

    def claims(self, *workers: str) -> list[str]:
        return [answer[0] for worker in workers if (answer := self.poll(worker))]

    def heartbeat(self, id: str, attempt: int) -> float | LostReason:
        try:
            return second(self.clock, self.queue.heartbeat(self.leases[id, attempt]).deadline)
        except LeaseLostError as lost:
            return lost.reason

    def complete(self, lease: Lease) -> str | LostReason:
        try:
            self.queue.complete(lease)
        except LeaseLostError as lost:
            return lost.reason
        return "done"


class Timelines(Chapter):
    """The chapters on leases, endings and dead letters, told as two stories."""

    def test_timeline_one(self, make: MakeQueue, clock: FakeClock) -> None:
        """A failure, a lapse, a stale worker, a death by the clock, a redrive.

        G8, G10, G11, G16, G17, G21, G22
        """
        queue = make(policy=QueuePolicy(visibility=30, max_attempts=3))
        line = Timeline(queue, clock)
        queue.enqueue({}, id="a")
        queue.enqueue({}, id="b")
        third: list[Lease] = []

        def poll_third() -> Any:
            answer = line.poll()
            third.append(line.leases["a", 2])
            return answer

        def dead_letters() -> Any:
            return [(d.id, len(d.failures), second(clock, d.at)) for d in queue.dead_letters()]

        def fail() -> Any:
            return queue.fail(line.leases["a", 1], "refused", retry_after=5)

        def redrive_then_poll() -> Any:
            return queue.redrive(["a"]).redriven, line.poll()

        line.play(
            [
                (0, line.poll, ("a", 1, 1, 30)),
                (0, line.poll, ("b", 1, 2, 30)),
                (0, lambda: line.complete(line.leases["b", 1]), "done"),
                (10, fail, Disposition.RETRYING),
                (10, line.poll, NOTHING),
                (15, poll_third, ("a", 2, 3, 45)),
                (45, line.poll, ("a", 3, 4, 75)),
                (45, lambda: line.complete(third[0]), LostReason.SUPERSEDED),
                (75, line.poll, NOTHING),
                (75, dead_letters, [("a", 3, 75)]),
                (75, redrive_then_poll, (1, ("a", 1, 5, 105))),
            ]
        )

    def test_timeline_two(self, make: MakeQueue, clock: FakeClock) -> None:
        """Tenants in turn, a duplicate, backoff, a death, an adoption, a cap.

        G4, G5, G9, G12, G16, G20, G22, G26
        """
        queue = make(
            policy=QueuePolicy(
                visibility=30, max_attempts=2, max_lease=70, backoff_base=4, backoff_cap=60
            )
        )
        line = Timeline(queue, clock)
        for id, priority in (("x1", 0), ("x2", 0), ("x3", 7)):
            queue.enqueue({}, id=id, tenant="x", priority=priority)
        queue.enqueue({}, id="y1", tenant="y", dedupe_key="n")

        def enqueue(id: str) -> Any:
            task = queue.enqueue({}, id=id, tenant="y", dedupe_key="n")
            return task.id, task.duplicate

        def held() -> int:
            depth = queue.depth()
            return depth.visible + depth.scheduled + depth.leased + depth.dead

        def fail(attempt: int) -> Any:
            return queue.fail(line.leases["y1", attempt], "refused")

        def failures() -> Any:
            return [(d.id, [a.attempt for a in d.failures]) for d in queue.dead_letters()]

        def adopt() -> Any:
            return [(task.id, task.attempt) for task in queue.adopt(worker="w3")]

        def redrive() -> Any:
            batch = queue.redrive(["y1"], tenant="y")
            return batch.redriven, dict(batch.skipped)

        line.play(
            [
                (0, lambda: enqueue("y2"), ("y1", True)),
                (0, held, 4),
                (0, lambda: line.claims("w1", "w2", "w3", "w4"), ["x3", "y1", "x1", "x2"]),
                (20, lambda: line.heartbeat("x3", 1), 50),
                (20, lambda: fail(1), Disposition.RETRYING),
                (23, line.poll, NOTHING),
                (24, lambda: line.poll("w5"), ("y1", 2, 5, 54)),
                (25, lambda: fail(2), Disposition.DEAD_LETTERED),
                (25, failures, [("y1", [1, 2])]),
                (25, lambda: enqueue("y3"), ("y3", False)),
                (25, adopt, [("x1", 1)]),
                (26, redrive, (0, {"y1": "key 'n' is held by y3"})),
                (30, queue.depth, Depth(visible=3, scheduled=0, leased=1, dead=1)),
                (45, lambda: line.heartbeat("x3", 1), 70),
                (65, lambda: line.heartbeat("x3", 1), 70),
                (70, lambda: line.heartbeat("x3", 1), LostReason.CAPPED),
            ]
        )
        served = {lease.id: lease.attempt for lease in queue.claim(worker="w6", limit=10)}
        assert served == {"x1": 2, "x2": 2, "x3": 2, "y3": 1}
