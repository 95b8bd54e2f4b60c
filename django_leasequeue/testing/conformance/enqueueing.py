"""What comes into the queue, once, and not before its time."""

from __future__ import annotations

from datetime import timedelta

from django_leasequeue.queue import Queue
from django_leasequeue.transitions import State

from ..clock import FakeClock
from .base import Chapter, MakeQueue, bury, claim_ids, claim_one, counts, leased


class Enqueueing(Chapter):
    """Chapter 1 of the guarantees."""

    def test_a_task_is_delivered_with_what_it_was_given(self, queue: Queue) -> None:
        """G1: nothing of it is lost on the way."""
        task = queue.enqueue({"to": ["ada"]}, id="a", tenant="x", priority=3)

        lease = claim_one(queue)

        assert not task.duplicate
        assert (lease.life, lease.id, lease.tenant, lease.priority) == (task.life, "a", "x", 3)
        assert lease.payload == {"to": ["ada"]}

    def test_many_are_stored_in_order_and_answered_one_each(self, queue: Queue) -> None:
        """G3: duplicates among them are answered by the task they repeat."""
        ids = ["a", "b", "a", "c"]

        answers = queue.enqueue_many({"payload": {}, "id": id} for id in ids)

        assert [task.id for task in answers] == ids
        assert [task.duplicate for task in answers] == [False, False, True, False]
        assert claim_ids(queue, limit=9) == ["a", "b", "c"]

    def test_a_held_id_comes_back_as_a_duplicate_and_replaces_nothing(self, queue: Queue) -> None:
        """G4: what is delivered is the first payload."""
        first = queue.enqueue({"n": 1}, id="a")

        again = queue.enqueue({"n": 2}, id="a")

        assert again.duplicate, "the id is held, yet the task counts as a new one"
        assert again.life == first.life
        assert [lease.payload for lease in queue.claim(worker="w", limit=9)] == [{"n": 1}]

    def test_a_live_key_comes_back_as_a_duplicate_and_tells_waiting_from_running(
        self, queue: Queue
    ) -> None:
        """G4: scheduled, ready and leased tasks hold their key."""
        queue.enqueue({}, id="a", dedupe_key="k")
        waiting = queue.enqueue({}, id="b", dedupe_key="k")
        claim_one(queue)
        running = queue.enqueue({}, id="c", dedupe_key="k")

        assert [(t.id, t.duplicate) for t in (waiting, running)] == [("a", True)] * 2
        assert (waiting.state, running.state) == (State.READY, State.LEASED)
        assert counts(queue) == (0, 0, 1, 0)

    def test_where_id_and_key_meet_two_tasks_the_holder_of_the_id_answers(
        self, queue: Queue
    ) -> None:
        """G4"""
        queue.enqueue({}, id="of the key", dedupe_key="k")
        queue.enqueue({}, id="of the id")

        assert queue.enqueue({}, id="of the id", dedupe_key="k").id == "of the id"

    def test_ids_and_keys_are_taken_within_one_tenant_of_one_queue(self, make: MakeQueue) -> None:
        """G4, G35: no trim and no case folding makes two names one."""
        for name, tenant in (("q", ""), ("q", "x"), ("Q", ""), ("q", "X"), ("q", "x ")):
            task = make(name).enqueue({}, id="a", tenant=tenant, dedupe_key="k")
            assert not task.duplicate, (name, tenant)

    def test_id_and_key_are_free_once_the_task_has_left(self, queue: Queue) -> None:
        """G5"""
        queue.complete(leased(queue, id="a", dedupe_key="k"))

        assert not queue.enqueue({}, id="a", dedupe_key="k").duplicate

    def test_a_dead_letter_holds_its_id_and_lets_go_of_its_key(self, queue: Queue) -> None:
        """G5"""
        bury(queue, "a", key="k")

        assert queue.enqueue({}, id="a").state is State.DEAD
        assert not queue.enqueue({}, id="b", dedupe_key="k").duplicate

    def test_so_does_one_that_is_dead_by_the_clock_alone(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G5, G9: nobody has to write the death down first."""
        leased(queue, id="a", dedupe_key="k", max_attempts=1)
        clock.set(30)

        assert not queue.enqueue({}, id="b", dedupe_key="k").duplicate
        assert queue.enqueue({}, id="a").state is State.DEAD

    def test_a_lapsed_task_still_holds_its_key(self, queue: Queue, clock: FakeClock) -> None:
        """G5, G9"""
        leased(queue, id="a", dedupe_key="k")
        clock.set(30)

        again = queue.enqueue({}, id="b", dedupe_key="k")

        assert (again.id, again.state, again.duplicate) == ("a", State.READY, True)

    def test_a_delayed_task_is_delivered_at_its_time_and_not_before(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G6: to the microsecond, for an instant and for a wait."""
        wait = timedelta(seconds=9, microseconds=1)
        queue.enqueue({}, id="wait", run_after=wait)
        queue.enqueue({}, id="instant", run_after=clock.now() + wait)
        assert counts(queue) == (0, 2, 0, 0)

        clock.set(9)
        assert claim_ids(queue, limit=9) == []
        clock.set(9.000001)
        assert claim_ids(queue, limit=9) == ["wait", "instant"]

    def test_an_earlier_date_gets_nobody_ahead_of_others(
        self, queue: Queue, clock: FakeClock
    ) -> None:
        """G6"""
        queue.enqueue({}, id="first")
        queue.enqueue({}, id="pushy", run_after=clock.now() - timedelta(days=1))

        assert claim_ids(queue, limit=9) == ["first", "pushy"]
