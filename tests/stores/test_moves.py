"""Each move on each store: what it needs, what it changes, what it leaves in the log."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from django_leasequeue.errors import LostReason
from django_leasequeue.models import Pause
from django_leasequeue.records import ALL, Depth
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind, State, TaskRecord
from tests.builders import (
    QUEUE,
    a_claim,
    a_dead_letter,
    a_failure,
    a_finish,
    a_lease,
    a_task,
    cancelled,
    kinds,
    redriven,
)


def seconds(clock: FakeClock, instant: datetime | None) -> float | None:
    return None if instant is None else (instant - clock.start).total_seconds()


def test_every_pause_stays_on_record(store: Store, clock: FakeClock) -> None:
    """G67"""
    if isinstance(store, MemoryStore):
        return  # it knows only those that last
    for start in (0, 10):
        clock.set(start)
        assert store.pause(QUEUE, by="ada", reason="why")
        clock.set(start + 5)
        assert store.resume(QUEUE, by="bob", reason="over")

    record = Pause.objects.using(store.using).filter(queue=QUEUE).order_by("id")
    who = ["paused_queue", "paused_by", "reason", "resumed_by", "resume_reason"]
    assert list(record.values_list(*who)) == [(None, "ada", "why", "bob", "over")] * 2
    when = [(seconds(clock, row.paused_at), seconds(clock, row.resumed_at)) for row in record]
    assert when == [(0, 5), (10, 15)]


def test_what_no_row_of_the_log_tells_is_counted_beside_it(store: Store) -> None:
    a_lease(store)
    for _ in range(2):
        store.tally({(QUEUE, "refused"): 2, ("other", "refused"): 7})

    assert store.counts(QUEUE) == {"enqueued": 1, "leased": 1, "refused": 4}


class TestEnqueue:
    def test_a_stored_task_is_ready_and_has_what_it_was_given(
        self, store: Store, clock: FakeClock
    ) -> None:
        task = a_task("é' \U0001f4e6", tenant="X", priority=-7, payload='{"to":"ada"}', path="a.b")

        [stored] = store.enqueue(QUEUE, [task])

        assert (stored.life, stored.state, stored.duplicate) == (task.life, State.READY, False)
        held = store.held(QUEUE, task.id, "X")
        assert held == store.find(task.life)
        assert held
        assert (held.payload, held.priority, held.path) == ('{"to":"ada"}', -7, "a.b")
        assert (held.visibility, held.max_lease) == (task.visibility, task.max_lease)
        assert (held.attempt, held.token, seconds(clock, held.visible_at)) == (0, None, 0)

    @pytest.mark.parametrize("by", ["delay", "instant"])
    def test_a_delayed_task_is_visible_at_its_time_and_not_before(
        self, store: Store, clock: FakeClock, by: str
    ) -> None:
        wait = timedelta(seconds=9, microseconds=1)
        run_after = wait if by == "delay" else clock.now() + wait
        [stored] = store.enqueue(QUEUE, [a_task(run_after=run_after)])
        assert (stored.state, stored.enqueued_at) == (State.SCHEDULED, clock.now())
        assert stored.visible_at == clock.now() + wait

        clock.set(9)
        assert store.claim(QUEUE, worker="w", limit=1) == []
        clock.set(9.000001)
        assert a_claim(store).attempt == 1

    def test_of_many_each_answer_tells_whether_it_is_ready(
        self, store: Store, clock: FakeClock
    ) -> None:
        later = a_task("a", tenant="x", run_after=timedelta(seconds=9))

        answers = store.enqueue(QUEUE, [later, a_task("b", tenant="y"), later])

        assert [(each.state, each.duplicate) for each in answers] == [
            (State.SCHEDULED, False),
            (State.READY, False),
            (State.SCHEDULED, True),
        ]
        where = [(each.tenant, seconds(clock, each.visible_at)) for each in answers]
        assert where == [("x", 9), ("y", 0), ("x", 9)]

    def test_a_time_in_the_past_is_now(self, store: Store, clock: FakeClock) -> None:
        """A task may not get ahead of others by naming an earlier date."""
        past = clock.now() - timedelta(days=1)

        store.enqueue(QUEUE, [a_task("a", run_after=past), a_task("b", run_after=-timedelta(9))])

        for id in ("a", "b"):
            held = store.held(QUEUE, id, "")
            assert held
            assert seconds(clock, held.visible_at) == 0

    def test_a_task_without_an_id_of_its_own_is_known_by_its_lifes_text(self, store: Store) -> None:
        """An enqueue that is repeated by the id it answered with is a duplicate, as with any id."""
        first, other = a_task(), replace(a_task(), life=UUID(int=1))
        store.enqueue("other", [other])
        first = replace(first, id=str(first.life))
        store.enqueue(QUEUE, [first])
        again, elsewhere = a_task(first.id), a_task(first.id, tenant="X")

        answers = store.enqueue(QUEUE, [again, elsewhere])

        assert [(answer.duplicate, answer.life) for answer in answers] == [
            (True, first.life),
            (False, elsewhere.life),
        ]
        held = store.held(QUEUE, first.id, "")
        assert held
        assert held.life == first.life
        lease = store.claim(QUEUE, worker="w", limit=2)[0]
        store.fail([a_failure(lease, Kind.DEAD)])
        batch = store.redrive(QUEUE, [first.id], tenant=lease.tenant, by=None, reason=None)
        assert (batch.redriven, batch.skipped) == (1, {})
        assert store.cancel(QUEUE, [first.id], tenant="", by=None, reason=None)
        assert store.held(QUEUE, first.id, "") is None
        assert store.held(QUEUE, first.id, "X") is not None

    def test_a_lifes_text_is_no_id_of_a_task_that_was_given_one(self, store: Store) -> None:
        lease = a_lease(store, "a")
        store.fail([a_failure(lease, Kind.DEAD)])
        text = str(lease.life)

        assert store.held(QUEUE, text, "") is None
        assert store.redrive(QUEUE, [text], tenant="", by=None, reason=None).redriven == 0
        assert store.cancel(QUEUE, [text], tenant="", by=None, reason=None) == set()
        [stored] = store.enqueue(QUEUE, [a_task(text)])
        assert not stored.duplicate
        assert kinds(store, lease.life) == ["enqueued", "leased", "dead"]

    @pytest.mark.parametrize(("queue", "tenant"), [("elsewhere", ""), (QUEUE, "X")])
    def test_it_is_known_by_that_in_its_own_queue_and_tenant_only(
        self, store: Store, queue: str, tenant: str
    ) -> None:
        task = a_task()
        task = replace(task, id=str(task.life))
        store.enqueue(QUEUE, [task])
        store.fail([a_failure(store.claim(QUEUE, worker="w", limit=1)[0], Kind.DEAD)])

        assert store.held(queue, task.id, tenant) is None
        batch = store.redrive(queue, [task.id], tenant=tenant, by=None, reason=None)
        assert batch.skipped == {task.id: "not held"}
        assert store.cancel(queue, [task.id], tenant=tenant, by=None, reason=None) == set()
        [stored] = store.enqueue(queue, [a_task(task.id, tenant=tenant)])
        assert not stored.duplicate
        assert kinds(store, task.life) == ["enqueued", "leased", "dead"]

    def test_a_held_id_and_a_live_key_come_back_as_duplicates(self, store: Store) -> None:
        """B26: what is delivered is the first payload; the answer tells waiting from running."""
        first = a_task("a", dedupe_key="k", payload="1")
        store.enqueue(QUEUE, [first])
        a_claim(store)

        answers = store.enqueue(
            QUEUE, [a_task("a", payload="2"), a_task("b", dedupe_key="k", payload="2")]
        )

        assert [(task.life, task.id, task.state, task.duplicate) for task in answers] == [
            (first.life, "a", State.LEASED, True)
        ] * 2
        assert kinds(store, first.life) == ["enqueued", "leased", "duplicate", "duplicate"]
        held = store.find(first.life)
        assert held
        assert held.payload == "1"

    def test_where_id_and_key_meet_two_tasks_the_holder_of_the_id_answers(
        self, store: Store
    ) -> None:
        store.enqueue(QUEUE, [a_task("key", dedupe_key="k"), a_task("id")])

        [answer] = store.enqueue(QUEUE, [a_task("id", dedupe_key="k")])

        assert (answer.id, answer.duplicate) == ("id", True)

    def test_ids_and_keys_are_taken_within_one_tenant_of_one_queue(self, store: Store) -> None:
        for queue, tenant in (("q", ""), ("q", "x"), ("Q", ""), ("q", "X"), ("q", "x ")):
            [stored] = store.enqueue(queue, [a_task("a", tenant=tenant, dedupe_key="k")])
            assert not stored.duplicate
        for id, key in (("A", "K"), ("a ", "k ")):
            [stored] = store.enqueue("q", [a_task(id, dedupe_key=key)])
            assert not stored.duplicate

    def test_duplicates_within_one_call(self, store: Store) -> None:
        tasks = [a_task("a", dedupe_key="k"), a_task("a"), a_task("b", dedupe_key="k"), a_task("c")]

        answers = store.enqueue(QUEUE, tasks)

        assert [(task.id, task.duplicate) for task in answers] == [
            ("a", False),
            ("a", True),
            ("a", True),
            ("c", False),
        ]

    def test_an_id_is_free_when_its_task_has_left(self, store: Store) -> None:
        lease = a_lease(store, dedupe_key="k")
        store.complete([a_finish(lease)])

        [stored] = store.enqueue(QUEUE, [a_task("a", dedupe_key="k")])

        assert not stored.duplicate

    def test_a_dead_letter_holds_its_id_and_lets_go_of_its_key(self, store: Store) -> None:
        letter = a_dead_letter(store, dedupe_key="k")

        by_id, by_key = store.enqueue(QUEUE, [a_task("a"), a_task("b", dedupe_key="k")])

        assert (by_id.life, by_id.state, by_id.duplicate) == (letter.life, State.DEAD, True)
        assert (by_key.id, by_key.duplicate) == ("b", False)

    def test_so_does_one_that_is_dead_by_the_clock_alone(
        self, store: Store, clock: FakeClock
    ) -> None:
        lease = a_lease(store, dedupe_key="k", max_attempts=1)
        clock.set(30)

        by_key, by_id = store.enqueue(QUEUE, [a_task("b", dedupe_key="k"), a_task("a")])

        assert not by_key.duplicate
        assert (by_id.life, by_id.state, by_id.duplicate) == (lease.life, State.DEAD, True)
        assert kinds(store, lease.life) == ["enqueued", "leased", "dead", "duplicate"]

    def test_a_lapsed_task_still_holds_its_key(self, store: Store, clock: FakeClock) -> None:
        a_lease(store, dedupe_key="k")
        clock.set(30)

        [answer] = store.enqueue(QUEUE, [a_task("b", dedupe_key="k")])

        assert (answer.id, answer.state, answer.duplicate) == ("a", State.READY, True)


class TestClaim:
    def test_a_lease_says_all_a_worker_needs(self, store: Store, clock: FakeClock) -> None:
        task = a_task(payload='{"to":"ada"}', tenant="x", priority=3, path="orders.tasks.bill")
        store.enqueue(QUEUE, [task])
        clock.set(7)

        lease = a_claim(store, worker="w7")

        assert (lease.queue, lease.tenant, lease.id, lease.life) == (QUEUE, "x", "a", task.life)
        assert (lease.attempt, lease.max_attempts, lease.worker) == (1, 3, "w7")
        assert (seconds(clock, lease.leased_at), seconds(clock, lease.deadline)) == (7, 37)
        assert (lease.seconds_left, lease.max_lease) == (30, task.max_lease)
        assert (lease.payload, lease.details, lease.renewed) == ({"to": "ada"}, None, True)
        assert (lease.priority, lease.path) == (3, "orders.tasks.bill")

    def test_a_leased_task_is_not_leased_again(self, store: Store, other_store: Store) -> None:
        a_lease(store)

        assert other_store.claim(QUEUE, worker="w", limit=1) == []

    def test_tokens_grow_over_all_queues(self, store: Store, clock: FakeClock) -> None:
        tokens = []
        for number in range(6):
            queue = f"q{number % 2}"
            store.enqueue(queue, [a_task(str(number), max_attempts=1)])
            tokens += [lease.token for lease in store.claim(queue, worker="w", limit=2)]
            clock.advance(30)

        assert len(tokens) == 6
        assert tokens == sorted(set(tokens))

    def test_the_clock_is_believed_before_anybody_writes_it_down(
        self, store: Store, clock: FakeClock
    ) -> None:
        """At now == d the lease is over: listings say so, and the next claim finds the task."""
        first = a_lease(store)
        clock.set(30)
        assert store.depth(QUEUE) == Depth(visible=1, scheduled=0, leased=0, dead=0)

        second = a_claim(store)

        assert (second.attempt, second.token > first.token) == (2, True)
        lapsed = store.history([first.life])[2]
        assert (lapsed.kind, lapsed.token, lapsed.worker) == (Kind.LAPSED, first.token, "w")
        assert seconds(clock, lapsed.at) == seconds(clock, lapsed.visible_at) == 30

    def test_the_last_attempt_is_followed_by_death_not_by_another(
        self, store: Store, clock: FakeClock
    ) -> None:
        """B18: dead as of the deadline, with nobody there to sweep."""
        lease = a_lease(store, max_attempts=1)
        clock.set(31)
        assert store.depth(QUEUE) == Depth(visible=0, scheduled=0, leased=0, dead=1)

        assert store.claim(QUEUE, worker="w", limit=1) == []

        [died] = store.history([lease.life], since=lease.token + 1)
        assert (died.kind, seconds(clock, died.at)) == (Kind.DEAD, 30)


class TestHeartbeat:
    def test_the_deadline_moves_and_is_capped(self, store: Store, clock: FakeClock) -> None:
        lease = a_lease(store)
        seen = []
        for second in (0, 20, 45, 65):
            clock.set(second)
            beat = store.heartbeat(lease, None)
            assert beat
            seen.append((seconds(clock, beat.deadline), beat.seconds_left))
        clock.set(70)

        assert seen == [(30, 30), (50, 30), (70, 25), (70, 5)]
        assert store.heartbeat(lease, None) is None
        assert store.lost_reason(lease) is LostReason.CAPPED

    def test_details_stay_until_others_come_and_reach_the_next_attempt(
        self, store: Store, clock: FakeClock
    ) -> None:
        lease = a_lease(store)
        store.heartbeat(lease, '{"page":3}')

        beat = store.heartbeat(lease, None)

        assert beat
        assert beat.details == {"page": 3}
        clock.set(60)
        assert a_claim(store).details == {"page": 3}

    def test_a_lost_lease_moves_nothing(self, store: Store, clock: FakeClock) -> None:
        lease = a_lease(store)
        clock.set(30)

        assert store.heartbeat(lease, '"late"') is None
        assert kinds(store, lease.life) == ["enqueued", "leased"]

    @pytest.mark.parametrize("alias", ["memory", "sqlite"], indirect=True)
    def test_a_lease_that_is_lost_between_the_look_and_the_lock_is_refused(
        self, store: Store, other_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PostgreSQL looks and locks in one statement."""
        lease, look = a_lease(store), store.find

        def look_while_another_adopts(life: UUID) -> TaskRecord | None:
            seen = look(life)
            other_store.adopt(QUEUE, "w")
            return seen

        monkeypatch.setattr(store, "find", look_while_another_adopts)

        assert store.heartbeat(lease, None) is None


class TestEndings:
    def test_a_completed_task_leaves_and_its_result_stays(self, store: Store) -> None:
        lease = a_lease(store)

        assert store.complete([a_finish(lease, '{"sent":1}')]) == {lease.token}

        assert store.find(lease.life) is None
        acked = store.history([lease.life])[-1]
        assert (acked.kind, acked.facts) == (Kind.ACKED, {"result": {"sent": 1}})
        assert store.complete([a_finish(lease)]) == set()
        assert store.lost_reason(lease) is LostReason.FINISHED

    def test_only_the_live_ones_of_many_are_taken(self, store: Store, clock: FakeClock) -> None:
        """Two leases of the same task in one call included: the newer one counts."""
        store.enqueue(QUEUE, [a_task("a"), a_task("b", visibility=timedelta(seconds=60))])
        old, other = store.claim(QUEUE, worker="w", limit=2)
        clock.set(30)
        new = a_claim(store)

        accepted = store.complete([a_finish(lease) for lease in (new, old, other)])

        assert accepted == {new.token, other.token}
        assert store.lost_reason(old) is LostReason.SUPERSEDED

    def test_a_retry_waits_its_time(self, store: Store, clock: FakeClock) -> None:
        lease = a_lease(store)

        assert store.fail([a_failure(lease, Kind.RETRIED, 5)]) == {lease.token}

        held = store.find(lease.life)
        assert held
        assert (held.state, held.last_error) == (State.READY, "E: m")
        assert store.depth(QUEUE) == Depth(visible=0, scheduled=1, leased=0, dead=0)
        clock.set(5)
        assert a_claim(store).attempt == 2

    @pytest.mark.parametrize(("kind", "dead"), [(Kind.DEAD, 1), (Kind.DROPPED, 0)])
    def test_a_failure_for_good(
        self, store: Store, clock: FakeClock, kind: Kind, dead: int
    ) -> None:
        lease = a_lease(store)
        clock.set(3)

        assert store.fail([a_failure(lease, kind, seconds=9)]) == {lease.token}

        held = store.find(lease.life)
        assert seconds(clock, held.visible_at if held else None) == (3 if dead else None)
        assert store.depth(QUEUE).dead == dead
        failed = store.history([lease.life])[-1]
        assert (failed.kind, seconds(clock, failed.at)) == (kind, 3)
        assert failed.facts["error"]["summary"] == "E: m"
        assert store.lost_reason(lease) is LostReason.FINISHED

    def test_a_failure_of_a_lost_lease_changes_nothing(
        self, store: Store, clock: FakeClock
    ) -> None:
        lease = a_lease(store)
        clock.set(30)

        assert store.fail([a_failure(lease)]) == set()
        assert kinds(store, lease.life) == ["enqueued", "leased"]

    def test_a_release_restores_what_was_before_the_claim(
        self, store: Store, clock: FakeClock
    ) -> None:
        """The place in the order too: the former visible time, heartbeats notwithstanding."""
        clock.set(1)
        lease = a_lease(store)
        store.fail([a_failure(lease, Kind.RETRIED, 5)])
        clock.set(10)
        lease = a_claim(store)
        store.heartbeat(lease, None)
        clock.set(11)

        assert store.release([lease]) == {lease.token}

        held = store.find(lease.life)
        assert held
        assert (held.state, held.attempt, seconds(clock, held.visible_at)) == (State.READY, 1, 6)
        assert a_claim(store).attempt == 2
        assert store.lost_reason(lease) is LostReason.SUPERSEDED


class TestSettleAndAdopt:
    def test_settling_is_oldest_due_first_and_bounded(self, store: Store, clock: FakeClock) -> None:
        lives = []
        for second in (2, 1, 0):
            lease = a_lease(store, f"v{second}", visibility=timedelta(seconds=20 + second))
            lives.append(lease.life)
        clock.set(100)

        assert store.settle(QUEUE, limit=2) == 2

        assert [kinds(store, life)[-1] for life in lives] == ["leased", "lapsed", "lapsed"]
        assert store.settle(QUEUE) == 1
        assert store.settle(QUEUE) == 0

    def test_adoption_gives_back_the_live_leases_of_a_name(
        self, store: Store, clock: FakeClock
    ) -> None:
        lapsed = a_lease(store, "lapsed", worker="w3")
        clock.set(20)
        mine = a_lease(store, "mine", worker="w3")
        last = a_lease(store, "last", worker="w3", max_attempts=1)
        other = a_lease(store, "other", worker="w")
        clock.set(31)

        adopted = store.adopt(QUEUE, "w3")

        assert [(task.id, task.state, task.attempt) for task in adopted] == [
            ("mine", State.READY, 1),
            ("last", State.DEAD, 1),
        ]
        assert all(seconds(clock, task.visible_at) == 31 for task in adopted)
        assert store.history([mine.life])[-1].facts == {"adopted_by": "w3"}
        reasons = [store.lost_reason(lease) for lease in (lapsed, mine, last, other)]
        assert reasons == [LostReason.LAPSED, LostReason.ADOPTED, LostReason.ADOPTED, None]


class TestRedriveAndCancel:
    def test_a_redriven_letter_starts_again_with_what_it_had(
        self, store: Store, clock: FakeClock
    ) -> None:
        lease = a_lease(store, payload='{"n":1}')
        store.heartbeat(lease, '"half"')
        store.fail([a_failure(lease, Kind.DEAD)])
        clock.set(50)

        assert redriven(store, "a", "a") == (1, {})

        again = a_claim(store)
        assert (again.attempt, again.payload, again.details) == (1, {"n": 1}, "half")
        assert again.token > lease.token
        back = store.history([lease.life])[-2]
        assert (back.kind, seconds(clock, back.visible_at)) == (Kind.REDRIVEN, 50)
        assert back.facts == {"by": "7 ada", "reason": "fixed"}

    def test_only_the_dead_move_and_the_others_say_why_not(
        self, store: Store, clock: FakeClock
    ) -> None:
        """B29: no exception, no row for the skipped, a live lease untouched."""
        store.complete([a_finish(a_lease(store, "acked"))])
        a_dead_letter(store, "dead")
        a_lease(store, "lapsed", visibility=timedelta(seconds=1))
        a_lease(store, "died", visibility=timedelta(seconds=1), max_attempts=1)
        leased = a_lease(store, "leased")
        delayed = a_task("delayed", run_after=timedelta(seconds=60))
        store.enqueue(QUEUE, [a_task("ready"), delayed])
        clock.set(2)
        ids = ["acked", "dead", "lapsed", "died", "leased", "ready", "delayed", "unknown"]

        assert redriven(store, *ids) == (
            2,
            {
                "acked": "not held",
                "lapsed": "not dead: ready",
                "leased": "not dead: leased",
                "ready": "not dead: ready",
                "delayed": "not dead: scheduled",
                "unknown": "not held",
            },
        )
        assert store.lost_reason(leased) is None
        assert kinds(store, delayed.life) == ["enqueued"]

    def test_a_letter_whose_key_is_taken_is_skipped(self, store: Store) -> None:
        """B27: and the rest of the selection goes on."""
        for id in ("y1", "y2", "y3"):
            a_dead_letter(store, id, dedupe_key=None if id == "y1" else "n")
        store.enqueue(QUEUE, [a_task("y4", dedupe_key="n")])

        assert redriven(store, "y3", "y1") == (1, {"y3": "key 'n' is held by y4"})

    def test_of_letters_with_one_key_the_first_gets_it(self, store: Store) -> None:
        for id in ("y1", "y2"):
            a_dead_letter(store, id, dedupe_key="n")

        assert redriven(store, "y2", "y1") == (1, {"y2": "key 'n' is held by y1"})

    def test_a_key_held_by_one_dead_by_the_clock_is_free(
        self, store: Store, clock: FakeClock
    ) -> None:
        a_dead_letter(store, "y1", dedupe_key="n")
        lease = a_lease(store, "y2", dedupe_key="n", max_attempts=1)
        clock.set(30)

        assert redriven(store, "y1") == (1, {})
        assert kinds(store, lease.life)[-1] == "dead"

    def test_no_ids_move_nothing_and_tenants_are_kept_apart(self, store: Store) -> None:
        a_dead_letter(store, "a", tenant="x")

        assert redriven(store) == (0, {})
        assert redriven(store, "a", tenant="y") == (0, {"a": "not held"})

    def test_a_cancelled_task_leaves_and_its_worker_is_refused(self, store: Store) -> None:
        lease = a_lease(store)

        assert cancelled(store)
        assert not cancelled(store)

        assert store.find(lease.life) is None
        assert store.history([lease.life])[-1].facts == {"by": "7 ada", "reason": "unwanted"}
        assert store.complete([a_finish(lease)]) == set()
        assert store.lost_reason(lease) is LostReason.CANCELLED


class TestLists:
    def test_dead_letters_come_in_pages_by_enqueue_order(
        self, store: Store, clock: FakeClock
    ) -> None:
        """Dead by the clock alone is dead; what is stored comes back as it is stored."""
        a_lease(store, "a", max_attempts=1)
        a_dead_letter(store, "b", tenant="x")
        a_lease(store, "c", max_attempts=1)
        a_lease(store, "d")
        clock.set(30)

        first = store.dead(QUEUE, tenant=ALL, limit=2)
        rest = store.dead(QUEUE, tenant=ALL, after=first[-1].seq)

        assert [task.id for task in first + rest] == ["a", "b", "c"]
        assert first[0] == store.held(QUEUE, "a", "")
        assert [task.id for task in store.dead(QUEUE, tenant="x")] == ["b"]
        assert store.dead("other", tenant=ALL) == []

    def test_when_things_come_due_and_how_long_they_have_waited(
        self, store: Store, clock: FakeClock
    ) -> None:
        assert (store.oldest_visible(QUEUE), store.outlook(QUEUE)) == (None, (False, None))
        store.enqueue(QUEUE, [a_task("late", run_after=timedelta(seconds=40))])
        a_lease(store)
        clock.set(4)
        assert store.outlook(QUEUE) == (False, timedelta(seconds=26))
        store.enqueue(QUEUE, [a_task("b")])

        clock.set(35)

        assert store.outlook(QUEUE) == (True, timedelta(seconds=5))
        assert store.oldest_visible(QUEUE) == timedelta(seconds=31)
        clock.set(40)
        assert store.outlook(QUEUE) == (True, None), "what has come due is there already"

    def test_the_history_is_in_log_order_from_any_position(self, store: Store) -> None:
        lease, other = a_lease(store), a_lease(store, "b")
        store.complete([a_finish(lease)])

        history = store.history([lease.life, other.life])

        positions = [transition.position for transition in history]
        assert positions == sorted(set(positions))
        assert [t.kind for t in store.history([lease.life], since=lease.token)] == [
            Kind.LEASED,
            Kind.ACKED,
        ]
