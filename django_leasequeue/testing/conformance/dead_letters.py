"""What stopped stays where an operator finds it, until an operator moves it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_leasequeue.errors import InvalidTaskError
from django_leasequeue.lease import Lease
from django_leasequeue.queue import Queue

from ..clock import FakeClock
from .base import Chapter, bury, claim_ids, claim_one, counts, leased, second


class DeadLetters(Chapter):
    """Chapter 4 of the guarantees."""

    def test_a_dead_letter_shows_every_attempt_and_how_it_ended(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G21: those whose worker vanished too."""
        queue.enqueue({"to": "ada"}, id="a")
        first = claim_one(queue, "w1")
        queue.fail(first, ValueError("no such mailbox"), retry_after=0)
        second_one = claim_one(queue, "w2")
        clock.set(30)
        third = claim_one(queue, "w3")
        queue.fail(third, "given up")

        [letter] = queue.dead_letters()

        assert (letter.id, letter.payload, letter.attempts) == ("a", {"to": "ada"}, 3)
        assert (letter.error, second(clock, letter.at)) == ("given up", 30)
        assert [(each.attempt, each.worker, each.token) for each in letter.failures] == [
            (1, "w1", first.token),
            (2, "w2", second_one.token),
            (3, "w3", third.token),
        ]
        errors = [each.error["summary"] if each.error else None for each in letter.failures]
        assert errors == ["ValueError: no such mailbox", None, "given up"]

    def test_dead_letters_come_in_enqueue_order_and_by_tenant(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G21, G24: the last to be enqueued may be the first to die."""
        leased(queue, id="a", tenant="x", max_attempts=1)
        bury(queue, "b", tenant="y")
        clock.set(30)

        assert [letter.id for letter in queue.dead_letters()] == ["a", "b"]
        assert [letter.id for letter in queue.dead_letters(tenant="y")] == ["b"]

    def test_nothing_falls_out_of_the_dead_letters_by_itself(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G21"""
        bury(queue)
        clock.advance(365 * 86_400)

        assert claim_ids(queue) == []
        assert counts(queue) == (0, 0, 0, 1)

    def test_a_redriven_task_starts_again_with_what_it_had(self, queue: Queue) -> None:
        """G22: payload and details kept, all its attempts ahead of it, all its past on record."""
        queue.enqueue({"n": 1}, id="a")
        queue.fail(queue.heartbeat(claim_one(queue), details="half"), "no", retryable=False)

        assert queue.redrive(["a"], by="ada", reason="mended").redriven == 1

        lease = claim_one(queue)
        assert (lease.attempt, lease.payload, lease.details) == (1, {"n": 1}, "half")
        for _ in range(2):
            queue.fail(lease, "no", retry_after=0)
            lease = claim_one(queue)
        queue.fail(lease, "no")
        [letter] = queue.dead_letters()
        tries = [(each.round, each.attempt) for each in letter.failures]
        assert tries == [(0, 1), (1, 1), (1, 2), (1, 3)]

    def test_only_the_dead_move_and_the_others_say_why_not(self, queue: Queue) -> None:
        """G22: no exception, and a live lease stays live."""
        bury(queue, "dead")
        lease = leased(queue, id="leased")
        queue.enqueue({}, id="ready")

        batch = queue.redrive(["dead", "leased", "ready", "unknown"])

        assert batch.redriven == 1
        assert set(batch.skipped) == {"leased", "ready", "unknown"}
        assert all(batch.skipped.values()), "each with its reason"
        queue.check(lease)

    def test_no_ids_move_nothing_and_all_is_said_explicitly(self, queue: Queue) -> None:
        """G22"""
        for number in range(3):
            bury(queue, str(number), tenant="xyz"[number])

        assert queue.redrive([]).redriven == 0
        assert queue.redrive_all(tenant="x").redriven == 1
        assert queue.redrive_all().redriven == 2

    def test_a_rate_spreads_what_moves_over_time(self, queue: Queue, clock: FakeClock) -> None:
        """G61: one after the other, in enqueue order; what stays leaves no gap."""
        for id in "abcd":
            bury(queue, id, key=id)
        queue.enqueue({}, id="b2", dedupe_key="b", run_after=clock.start + timedelta(days=1))

        assert queue.redrive(["d", "b", "unknown", "a", "c"], rate=2).redriven == 3

        assert claim_ids(queue, limit=9) == ["a"]
        clock.set(0.4)
        assert claim_ids(queue, limit=9) == []
        clock.set(0.5)
        assert claim_ids(queue, limit=9) == ["c"]
        clock.set(1)
        assert claim_ids(queue, limit=9) == ["d"]

    def test_a_rate_goes_on_over_tenants_and_over_what_the_clock_buried(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G61"""
        tasks = [(id, tenant) for tenant in "xy" for id in "ab"]
        for id, tenant in tasks:
            queue.enqueue({}, id=id, tenant=tenant, max_attempts=1)
        claim_ids(queue, limit=4)
        clock.set(30)

        assert queue.redrive_all(rate=0.1).redriven == 4

        due = [
            {lease.tenant + lease.id: second(clock, lease.visible_since) for lease in found}
            for found in self.claims(queue, clock, at=(30, 40, 50, 60))
        ]
        assert due == [{"xa": 30}, {"xb": 40}, {"ya": 50}, {"yb": 60}]

    @staticmethod
    def claims(queue: Queue, clock: FakeClock, at: tuple[int, ...]) -> Iterator[list[Lease]]:
        for moment in at:
            clock.set(moment)
            yield queue.claim(worker="w", limit=9)

    @pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "2", True])
    def test_a_rate_that_cant_be_meant_moves_nothing(self, queue: Queue, rate: object) -> None:
        """G61"""
        bury(queue)

        with pytest.raises(InvalidTaskError, match="rate must be from"):
            queue.redrive_all(rate=rate)  # type: ignore[arg-type]

        assert counts(queue) == (0, 0, 0, 1)

    def test_a_letter_whose_key_is_taken_is_skipped_and_the_rest_goes_on(
        self, queue: Queue
    ) -> None:
        """G22"""
        bury(queue, "y1", key="n")
        bury(queue, "y2")
        queue.enqueue({}, id="y3", dedupe_key="n")

        batch = queue.redrive(["y1", "y2"])

        assert batch.redriven == 1
        assert "y3" in batch.skipped["y1"], "the reason names the holder"

    def test_an_id_of_another_tenant_is_nobodys(self, queue: Queue) -> None:
        """G24: two tenants may use the same id and never meet."""
        bury(queue, "a", tenant="x")

        assert queue.redrive(["a"], tenant="y").redriven == 0
        assert not queue.cancel("a", tenant="y")
        assert counts(queue) == (0, 0, 0, 1)
