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
from .base import Chapter, MakeQueue, refusal, second

NOTHING: Final = None
LIMITS: Final = QueuePolicy(
    visibility=30, max_attempts=2, max_lease=70, backoff_base=4, backoff_cap=60
)


class Timeline:
    """Plays rows of (second, call, expected) and remembers the leases by task and attempt."""

    def __init__(self, queue: Queue, clock: FakeClock) -> None:
        self.queue, self.clock = queue, clock
        self.leases: dict[tuple[str, int], Lease] = {}
        self.tokens: list[int] = []

    def play(self, *rows: tuple[int, Callable[[], Any], Any]) -> None:
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

    def enqueue(self, id: str, **options: Any) -> tuple[str, bool]:
        """The task that is held now, and whether it was before."""
        task = self.queue.enqueue({}, id=id, **options)
        return task.id, task.duplicate

    def heartbeat(self, id: str, attempt: int = 1) -> float | LostReason:
        try:
            return second(self.clock, self.queue.heartbeat(self.leases[id, attempt]).deadline)
        except LeaseLostError as lost:
            return lost.reason

    def complete(self, id: str, attempt: int = 1) -> str | LostReason:
        return refusal(lambda: self.queue.complete(self.leases[id, attempt])) or "done"

    def fail(self, id: str, attempt: int, **options: Any) -> Disposition:
        return self.queue.fail(self.leases[id, attempt], "refused", **options)

    def dead(self) -> list[tuple[str, list[int], float]]:
        """Of each dead letter its task, its attempts, and since when."""
        letters = self.queue.dead_letters()
        return [(d.id, [a.attempt for a in d.failures], second(self.clock, d.at)) for d in letters]

    def redrive(self, id: str, **options: Any) -> tuple[int, dict[str, str]]:
        batch = self.queue.redrive([id], **options)
        return batch.redriven, dict(batch.skipped)


class Timelines(Chapter):
    """The chapters on leases, endings and dead letters, told as two stories."""

    def test_timeline_one(self, make: MakeQueue, clock: FakeClock) -> None:
        """A failure, a lapse, a stale worker, a death by the clock, a redrive.

        G8, G10, G11, G16, G17, G21, G22
        """
        line = Timeline(make(policy=QueuePolicy(visibility=30, max_attempts=3)), clock)
        for id in "ab":
            line.enqueue(id)

        line.play(
            (0, line.poll, ("a", 1, 1, 30)),
            (0, line.poll, ("b", 1, 2, 30)),
            (0, lambda: line.complete("b"), "done"),
            (10, lambda: line.fail("a", 1, retry_after=5), Disposition.RETRYING),
            (10, line.poll, NOTHING),
            (15, line.poll, ("a", 2, 3, 45)),
            (45, line.poll, ("a", 3, 4, 75)),
            (45, lambda: line.complete("a", 2), LostReason.SUPERSEDED),
            (75, line.poll, NOTHING),
            (75, line.dead, [("a", [1, 2, 3], 75)]),
            (75, lambda: line.redrive("a"), (1, {})),
            (75, line.poll, ("a", 1, 5, 105)),
        )

    def test_timeline_two(self, make: MakeQueue, clock: FakeClock) -> None:
        """Tenants in turn, a duplicate, backoff, a death, an adoption, a cap.

        G4, G5, G9, G12, G16, G20, G22, G26
        """
        queue = make(policy=LIMITS)
        line = Timeline(queue, clock)
        for id, priority in (("x1", 0), ("x2", 0), ("x3", 7)):
            line.enqueue(id, tenant="x", priority=priority)
        of_y = {"tenant": "y", "dedupe_key": "n"}
        line.enqueue("y1", **of_y)

        line.play(
            (0, lambda: line.enqueue("y2", **of_y), ("y1", True)),
            (0, queue.depth, Depth(visible=4, scheduled=0, leased=0, dead=0)),
            (0, lambda: line.claims("w1", "w2", "w3", "w4"), ["x3", "y1", "x1", "x2"]),
            (20, lambda: line.heartbeat("x3"), 50),
            (20, lambda: line.fail("y1", 1), Disposition.RETRYING),
            (23, line.poll, NOTHING),
            (24, lambda: line.poll("w5"), ("y1", 2, 5, 54)),
            (25, lambda: line.fail("y1", 2), Disposition.DEAD_LETTERED),
            (25, line.dead, [("y1", [1, 2], 25)]),
            (25, lambda: line.enqueue("y3", **of_y), ("y3", False)),
            (25, lambda: [(t.id, t.attempt) for t in queue.adopt(worker="w3")], [("x1", 1)]),
            (26, lambda: line.redrive("y1", tenant="y"), (0, {"y1": "key 'n' is held by y3"})),
            (30, queue.depth, Depth(visible=3, scheduled=0, leased=1, dead=1)),
            (45, lambda: line.heartbeat("x3"), 70),
            (65, lambda: line.heartbeat("x3"), 70),
            (70, lambda: line.heartbeat("x3"), LostReason.CAPPED),
        )
        served = {lease.id: lease.attempt for lease in queue.claim(worker="w6", limit=10)}
        assert served == {"x1": 2, "x2": 2, "x3": 2, "y3": 1}
