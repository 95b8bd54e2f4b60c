"""The suite fails when it should: each store here breaks one promise, and is caught by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from inspect import signature
from typing import Any, Final

import pytest

from django_leasequeue import ALL, InvalidTaskError, Lease, Queue, QueuePolicy
from django_leasequeue.records import Admitted, EnqueuedTask, Outlook
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.testing.conformance import POLICY, WorkQueueConformance
from django_leasequeue.testing.conformance.bad_input import BAD_ITEMS, NOT_JSON
from django_leasequeue.testing.memory import MemoryQueue
from django_leasequeue.transitions import Kind, State, TaskRecord, Transition, follow, overdue
from django_leasequeue.wakeups import Wake


class LiveAtItsDeadline(MemoryStore):
    def lock_live(self, leases: Any, now: datetime) -> dict[int, TaskRecord]:
        return super().lock_live(leases, now - timedelta(microseconds=1))


class TokenNotCompared(MemoryStore):
    def lock_live(self, leases: Any, now: datetime) -> dict[int, TaskRecord]:
        return {
            lease.token: task
            for lease in leases
            for task in self.lock(life=lease.life, state=State.LEASED)
        }


class ExpiredLeaseMayAct(MemoryStore):
    def lock_live(self, leases: Any, now: datetime) -> dict[int, TaskRecord]:
        return super().lock_live(leases, min((lease.leased_at for lease in leases), default=now))


class OtherTokens(MemoryStore):
    """Gives leases other tokens than the places of their rows in the log."""

    def log(self, transition: Transition) -> Transition:
        logged = super().log(transition)
        if logged.kind is not Kind.LEASED:
            return logged
        return replace(logged, position=self.token_of(logged))

    def token_of(self, leased: Transition) -> int:
        raise NotImplementedError


class AllLeasesOneToken(OtherTokens):
    def token_of(self, leased: Transition) -> int:
        return 1


class TokenRestartsAtARedrive(OtherTokens):
    def token_of(self, leased: Transition) -> int:
        kinds = [each.kind for each in reversed(self.transitions)]
        return kinds.index(Kind.REDRIVEN) if Kind.REDRIVEN in kinds else len(kinds)


class TokenPerQueue(OtherTokens):
    def token_of(self, leased: Transition) -> int:
        return sum(each.queue == leased.queue for each in self.transitions)


class OneAttemptTooMany(MemoryStore):
    def enqueue(self, queue: str, tasks: Any, wake: Any = None) -> list[EnqueuedTask]:
        more = [replace(task, max_attempts=task.max_attempts + 1) for task in tasks]
        return super().enqueue(queue, more, wake)


class ExpiredLastAttemptRedelivered(MemoryStore):
    def written_down(self, task: TaskRecord, now: datetime) -> TaskRecord:
        late = overdue(task, now)
        return self.kept(task, replace(late, kind=Kind.LAPSED)) if late else task


class NonRetryableRetried(MemoryStore):
    def fail(self, failures: Any) -> set[int]:
        return super().fail(
            [
                each if each.lease.last_attempt else replace(each, kind=Kind.RETRIED)
                for each in failures
            ]
        )


class RedriveKeepsTheCount(MemoryStore):
    def log(self, transition: Transition) -> Transition:
        if transition.kind is Kind.REDRIVEN:
            transition = replace(transition, attempt=self.tasks[transition.life].attempt)
        return super().log(transition)


class RetryVisibleAtOnce(MemoryStore):
    def fail(self, failures: Any) -> set[int]:
        return super().fail([replace(failure, delay=timedelta(0)) for failure in failures])


class HeartbeatDoesNotExtend(MemoryStore):
    def log(self, transition: Transition) -> Transition:
        if transition.kind is Kind.HEARTBEAT:
            transition = replace(transition, visible_at=self.tasks[transition.life].visible_at)
        return super().log(transition)


class HeartbeatWithoutACap(MemoryStore):
    def heartbeat(self, lease: Lease, details: str | None) -> Lease | None:
        return super().heartbeat(lease._replace(max_lease=timedelta(days=1)), details)

    def log(self, transition: Transition) -> Transition:
        if transition.kind is Kind.HEARTBEAT:
            visibility = self.tasks[transition.life].visibility
            transition = replace(transition, visible_at=transition.at + visibility)
        return super().log(transition)


class HeartbeatLosesDetails(MemoryStore):
    def heartbeat(self, lease: Lease, details: str | None) -> Lease | None:
        return super().heartbeat(lease, None)


class NewestFirst(MemoryStore):
    def head(self, queue: str, tenant: str, now: datetime) -> TaskRecord | None:
        tasks = [task for task in self.visible(queue, now) if task.tenant == tenant]
        return max(tasks, key=lambda task: task.seq, default=None)


class PriorityIgnored(MemoryStore):
    def head(self, queue: str, tenant: str, now: datetime) -> TaskRecord | None:
        tasks = [task for task in self.visible(queue, now) if task.tenant == tenant]
        return min(tasks, key=lambda task: (task.visible_at, task.seq), default=None)


class OneTenantStarvesAnother(MemoryStore):
    def take_turn(self, queue: str, tenant: str, token: int) -> None:
        """Never remembered: the first tenant is always next."""


class NoWakeUp(MemoryStore):
    def on_commit(self, act: Any, *, once: bool = True) -> None:
        if not isinstance(act, Wake):
            super().on_commit(act, once=once)


class NoWakeUpForWhatComesDue(MemoryStore):
    def outlook(self, queue: str) -> Outlook:
        return super().outlook(queue)._replace(due_in=None)


class DuplicateReplaces(MemoryStore):
    def holder(self, queue: str, task: Admitted, now: datetime) -> TaskRecord | None:
        for held in self.lock(queue=queue, tenant=task.tenant, id=task.id):
            self.append(held, follow(held, Kind.CANCELLED, now))
        return None


class KeyNotFreedByDeath(MemoryStore):
    def key_holder(self, queue: str, tenant: str, key: str | None, now: Any) -> TaskRecord | None:
        tasks = self.look(queue=queue, tenant=tenant, dedupe_key=key) if key else []
        return tasks[0] if tasks else None


class AckDoesNotRemove(MemoryStore):
    def complete(self, finishes: Any) -> set[int]:
        with self.moving() as now:
            return set(self.lock_live([finish.lease for finish in finishes], now))


class ReleaseCountsTheAttempt(MemoryStore):
    def giving_back(self, task: TaskRecord, lease: Lease, now: datetime) -> Transition:
        return replace(super().giving_back(task, lease, now), attempt=task.attempt)


class ReleaseLosesThePlace(MemoryStore):
    def giving_back(self, task: TaskRecord, lease: Lease, now: datetime) -> Transition:
        return replace(super().giving_back(task, lease, now), visible_at=now)


class AdoptionOfEverybody(MemoryStore):
    def lock(self, *, wait: bool = True, **match: Any) -> list[TaskRecord]:
        match.pop("worker", None)
        return super().lock(wait=wait, **match)


class OtherTenantsLettersAreFound(MemoryStore):
    def held(self, queue: str, id: str, tenant: str) -> TaskRecord | None:
        return next(iter(self.look(queue=queue, id=id)), None)

    def candidates(self, wanted: Any) -> Any:
        return self.tasks.values()


class PayloadIsLost(MemoryStore):
    def enqueue(self, queue: str, tasks: Any, wake: Any = None) -> list[EnqueuedTask]:
        return super().enqueue(queue, [replace(task, payload="null") for task in tasks], wake)


class ManyInAnyOrder(MemoryStore):
    def enqueue(self, queue: str, tasks: Any, wake: Any = None) -> list[EnqueuedTask]:
        return super().enqueue(queue, tasks[::-1], wake)[::-1]


class ManyOneByOne(MemoryQueue):
    def enqueue_many(self, tasks: Any) -> Any:
        return [
            stored for task in tasks for stored in super(ManyOneByOne, self).enqueue_many([task])
        ]


class DeliveredEarly(MemoryStore):
    def visible(self, queue: str, now: datetime) -> list[TaskRecord]:
        return self.look(queue=queue, state=State.READY)


class LeasedTwice(MemoryStore):
    """The first lease of each task is in the log alone."""

    def project(self, before: TaskRecord | None, after: TaskRecord | None, now: datetime) -> None:
        if after and after.state is State.LEASED and after.seq not in self.seen:
            self.seen.add(after.seq)
        else:
            super().project(before, after, now)

    def __init__(self, clock: Any = None) -> None:
        super().__init__(clock)
        self.seen: set[int] = set()


class NeedsASweeper(MemoryStore):
    def as_of_now(self, queue: str) -> list[TaskRecord]:
        return self.look(queue=queue)


class LapseForgetsTheAttempt(MemoryStore):
    def written_down(self, task: TaskRecord, now: datetime) -> TaskRecord:
        late = overdue(task, now)
        return self.kept(task, replace(late, attempt=0)) if late else task


class LettersFallOut(MemoryStore):
    def look(self, **match: Any) -> list[TaskRecord]:
        old = self.now() - timedelta(hours=1)
        tasks = super().look(**match)
        return [task for task in tasks if task.state is not State.DEAD or task.visible_at > old]


class OnlyTheLastFailureIsKept(MemoryStore):
    def history(self, lives: Any, *, since: int = 0) -> list[Transition]:
        return super().history(lives, since=since)[-2:]


class LettersOfAllTenants(MemoryStore):
    def dead(self, queue: str, **options: Any) -> list[TaskRecord]:
        return super().dead(queue, **options | {"tenant": ALL})


class CancelSparesTheRunning(MemoryStore):
    def cancel(self, queue: str, ids: Any, **said: Any) -> set[str]:
        running = {task.id for task in self.look(queue=queue, state=State.LEASED)}
        return super().cancel(queue, [id for id in ids if id not in running], **said)


class PollGivesUpAtOnce(MemoryQueue):
    def poll(self, *, worker: str, wait: float = 0.0) -> Lease | None:
        return super().poll(worker=worker)


class NamesFoldCase(MemoryStore):
    def holder(self, queue: str, task: Admitted, now: datetime) -> TaskRecord | None:
        return super().holder(queue, replace(task, id=task.id.lower()), now)


class TakesAnything(MemoryQueue):
    def enqueue(self, payload: Any, **options: Any) -> Any:
        try:
            return super().enqueue(payload, **options)
        except InvalidTaskError:
            return super().enqueue(None)


class OddResultsAreNotRecorded(MemoryQueue):
    def complete(self, lease: Lease, *, result: Any = None) -> None:
        if not isinstance(result, set):
            super().complete(lease, result=result)


class CountsOnlyWhatIsWritten(MemoryStore):
    def counts(self, queue: str) -> Mapping[str, int]:
        return Counter(row.kind for row in self.transitions if row.queue == queue)


class RedrivesAtOnce(MemoryStore):
    def redrive(self, *args: Any, slots: Any = None, **options: Any) -> Any:
        return super().redrive(*args, **options)


class ClaimsWhilePaused(MemoryStore):
    def may_claim(self, queue: str) -> bool:
        return True


class ForgetsWhoPaused(MemoryStore):
    def pause(self, queue: str, *, by: str | None, reason: str | None) -> bool:
        return super().pause(queue, by=None, reason=reason)


Broken = type[MemoryStore] | type[MemoryQueue]
CAUGHT: Final[list[tuple[Broken, str, tuple[Any, ...]]]] = [
    (LiveAtItsDeadline, "a_lease_is_over_at_the_very_instant_of_its_deadline", ("complete",)),
    (TokenNotCompared, "a_superseded_lease_moves_nothing", ("complete",)),
    (ExpiredLeaseMayAct, "a_lease_is_over_at_the_very_instant_of_its_deadline", ("fail",)),
    (AllLeasesOneToken, "tokens_are_unique_over_all_queues_and_grow", ()),
    (TokenRestartsAtARedrive, "a_redriven_task_gets_a_larger_token", ()),
    (TokenRestartsAtARedrive, "timeline_one", ()),
    (TokenPerQueue, "tokens_are_unique_over_all_queues_and_grow", ()),
    (OneAttemptTooMany, "the_last_attempt_that_fails_is_the_last", ()),
    (OneAttemptTooMany, "the_last_attempt_that_lapses_is_the_last", ()),
    (ExpiredLastAttemptRedelivered, "the_last_attempt_that_lapses_is_the_last", ()),
    (ExpiredLastAttemptRedelivered, "timeline_one", ()),
    (NonRetryableRetried, "a_failure_for_good_is_not_retried", ()),
    (RedriveKeepsTheCount, "a_redriven_task_starts_again_with_what_it_had", ()),
    (RedriveKeepsTheCount, "timeline_one", ()),
    (RetryVisibleAtOnce, "a_retry_waits_out_its_delay", ()),
    (HeartbeatDoesNotExtend, "a_heartbeat_moves_the_deadline_and_is_capped", ()),
    (HeartbeatDoesNotExtend, "timeline_two", ()),
    (HeartbeatWithoutACap, "a_heartbeat_moves_the_deadline_and_is_capped", ()),
    (HeartbeatLosesDetails, "details_stay_until_others_come_and_reach_the_next_attempt", ()),
    (NewestFirst, "first_come_first_served", ()),
    (PriorityIgnored, "inside_a_tenant_priority_then_time_then_enqueue_order", ()),
    (OneTenantStarvesAnother, "a_single_task_is_served_within_one_lap_of_a_crowd", ()),
    (OneTenantStarvesAnother, "tenants_take_turns_claim_by_claim", ()),
    (NoWakeUp, "a_poll_is_woken_by_an_enqueue", ()),
    (NoWakeUp, "a_poll_is_woken_by_a_task_given_back", ("release",)),
    (NoWakeUpForWhatComesDue, "a_poll_returns_when_a_retry_comes_due", ()),
    (NoWakeUpForWhatComesDue, "a_poll_returns_when_a_lease_lapses", ()),
    (DuplicateReplaces, "a_held_id_comes_back_as_a_duplicate_and_replaces_nothing", ()),
    (KeyNotFreedByDeath, "a_dead_letter_holds_its_id_and_lets_go_of_its_key", ()),
    (AckDoesNotRemove, "a_completed_task_leaves_for_good", ()),
    (ReleaseCountsTheAttempt, "a_released_task_has_its_attempt_and_its_place_back", ()),
    (ReleaseLosesThePlace, "a_released_task_has_its_attempt_and_its_place_back", ()),
    (AdoptionOfEverybody, "adoption_gives_back_the_live_leases_of_one_name", ()),
    (OtherTenantsLettersAreFound, "an_id_of_another_tenant_is_nobodys", ()),
    (PayloadIsLost, "a_task_is_delivered_with_what_it_was_given", ()),
    (ManyInAnyOrder, "many_are_stored_in_order_and_answered_one_each", ()),
    (ManyOneByOne, "one_bad_item_in_a_bulk_enqueue_stores_nothing", BAD_ITEMS[0]),
    (DeliveredEarly, "a_delayed_task_is_delivered_at_its_time_and_not_before", ()),
    (LeasedTwice, "a_leased_task_is_not_leased_again", ()),
    (LeasedTwice, "many_who_ask_at_once_never_get_the_same_task", ()),
    (NeedsASweeper, "what_the_clock_has_done_is_true_before_anybody_writes_it_down", ()),
    (LapseForgetsTheAttempt, "the_last_attempt_that_lapses_is_the_last", ()),
    (LettersFallOut, "nothing_falls_out_of_the_dead_letters_by_itself", ()),
    (OnlyTheLastFailureIsKept, "a_dead_letter_shows_every_attempt_and_how_it_ended", ()),
    (LettersOfAllTenants, "dead_letters_come_in_enqueue_order_and_by_tenant", ()),
    (CancelSparesTheRunning, "whatever_is_held_can_be_cancelled", ("leased",)),
    (PollGivesUpAtOnce, "a_poll_returns_with_nothing_at_its_end", ()),
    (NamesFoldCase, "names_compare_byte_for_byte", ()),
    (TakesAnything, "a_payload_that_is_not_json_is_refused_by_its_path", NOT_JSON[0]),
    (OddResultsAreNotRecorded, "a_result_that_cant_be_stored_costs_no_task", ()),
    (CountsOnlyWhatIsWritten, "whatever_happened_is_counted", ()),
    (ClaimsWhilePaused, "nothing_is_claimed_while_paused_and_enqueueing_goes_on", ()),
    (ForgetsWhoPaused, "who_paused_and_why_is_known_until_it_is_resumed", ()),
    (RedrivesAtOnce, "a_rate_spreads_what_moves_over_time", ()),
]


class Suite(WorkQueueConformance):
    """The suite run by hand, one test at a time, on a store or a queue that is given."""

    patience_seconds = 0.3

    def __init__(self, broken: Broken) -> None:
        self.clock_of_it = FakeClock()
        self.kind = broken if issubclass(broken, MemoryQueue) else MemoryQueue
        self.store = (MemoryStore if issubclass(broken, MemoryQueue) else broken)(self.clock_of_it)

    def make_queue(
        self, name: str = "emails", *, policy: QueuePolicy | None = POLICY, clock: Any = None
    ) -> Queue:
        return self.kind(name, policy=policy, clock=self.clock_of_it, store=self.store)

    def play(self, test: str, *parameters: Any) -> None:
        method = getattr(self, f"test_{test}")
        given = {"clock": self.clock_of_it, "make": self.make_queue, "queue": self.make_queue()}
        names = list(signature(method).parameters)
        fixtures = {name: given[name] for name in names if name in given}
        others = [name for name in names if name not in given]
        method(**fixtures, **dict(zip(others, parameters, strict=True)))


@pytest.mark.parametrize(
    ("broken", "test", "parameters"),
    CAUGHT,
    ids=[f"{broken.__name__}-{test}" for broken, test, _ in CAUGHT],
)
def test_a_broken_implementation_is_caught(
    broken: Broken, test: str, parameters: tuple[Any, ...]
) -> None:
    Suite(MemoryStore).play(test, *parameters)  # what isn't broken passes

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        Suite(broken).play(test, *parameters)


def test_every_guarantee_of_the_suite_has_a_broken_implementation() -> None:
    def cited(tests: Iterable[str]) -> set[str]:
        documents = (getattr(WorkQueueConformance, test).__doc__ or "" for test in tests)
        return {number for text in documents for number in re.findall(r"\bG\d+\b", text)}

    of_the_suite = cited(name for name in dir(WorkQueueConformance) if name.startswith("test_"))
    caught = cited(f"test_{test}" for _, test, _ in CAUGHT if not test.startswith("timeline"))

    assert of_the_suite - caught == set()
