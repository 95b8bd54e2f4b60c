"""The faults that a queue of this kind is most likely to have, and the tests that catch them.

Where the rules of the in-memory and the portable store and the SQL of PostgreSQL say the same, the
fault is planted in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SUITE: Final = "tests/promises/test_conformance.py"
MODEL: Final = f"{SUITE}::TestInMemory::test_"
SQLITE: Final = f"{SUITE}::TestOnSQLite::test_"
POSTGRES: Final = f"{SUITE}::TestOnPostgreSQL::test_"
WHOLE: Final = "tests/stores/test_append_only.py::test_a_move_that_can_not_be_logged_in_full"


@dataclass(frozen=True)
class Fault:
    """*old*, which stands in *file* once, becomes *new*; then *tests* must fail, each of them."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def rules(name: str, old: str, new: str, *tests: str, file: str = "transitions.py") -> Fault:
    return Fault(name, file, old, new, tests)


def sql(name: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name, f"stores/postgres/sql/{file}.sql", old, new, tests)


AT_ITS_DEADLINE: Final = "a_lease_is_over_at_the_very_instant_of_its_deadline"
LAST_LAPSES: Final = "the_last_attempt_that_lapses_is_the_last"
LAST_FAILS: Final = "the_last_attempt_that_fails_is_the_last"
TOKENS_GROW: Final = "tokens_are_unique_over_all_queues_and_grow"
LARGER_TOKEN: Final = "a_redriven_task_gets_a_larger_token"
BEATS: Final = "a_heartbeat_moves_the_deadline_and_is_capped"
DETAILS: Final = "details_stay_until_others_come_and_reach_the_next_attempt"
DUPLICATE: Final = "a_held_id_comes_back_as_a_duplicate_and_replaces_nothing"
LEFT: Final = "a_completed_task_leaves_for_good"
SUPERSEDED: Final = "a_superseded_lease_moves_nothing"
AGAIN: Final = "a_redriven_task_starts_again_with_what_it_had"
DELAY: Final = "a_retry_waits_out_its_delay"
FIRST: Final = "first_come_first_served"

DRAWN: Final = "SELECT nextval('leasequeue_transition_id_seq') AS token, picked.*"
KEPT: Final = "ON CONFLICT DO NOTHING"
REPLACED: Final = (
    "ON CONFLICT (queue, tenant, task_id) WHERE task_id <> life::text"
    " DO UPDATE SET payload = excluded.payload"
)
TIME_GUARD: Final = "              AND task.visible_at > (SELECT now FROM clock)\n"
TOKEN_GUARD: Final = "task.seq = finish.seq AND task.token = finish.token"

PLANTED: Final = [
    rules(
        "a lease is live at its deadline's instant",
        "if task.state is State.LEASED and task.visible_at <= now:",
        "if task.state is State.LEASED and task.visible_at < now:",
        f"{MODEL}{AT_ITS_DEADLINE}[complete]",
    ),
    sql(
        "a lease is live at its deadline's instant",
        "complete", TIME_GUARD, TIME_GUARD.replace(">", ">="),
        f"{POSTGRES}{AT_ITS_DEADLINE}[complete]",
    ),
    rules(
        "the token isn't compared",
        "if task.token in tokens and as_of(task, now)", "if as_of(task, now)",
        f"{MODEL}{SUPERSEDED}[complete]",
        file="stores/folding.py",
    ),
    sql(
        "the token isn't compared",
        "complete", TOKEN_GUARD, "task.seq = finish.seq",
        f"{POSTGRES}{SUPERSEDED}[complete]",
    ),
    rules(
        "an expired lease may act",
        "if task.token in tokens and as_of(task, now).state is State.LEASED",
        "if task.token in tokens and task.state is State.LEASED",
        f"{MODEL}{AT_ITS_DEADLINE}[fail]",
        file="stores/folding.py",
    ),
    sql("an expired lease may act", "fail", TIME_GUARD, "", f"{POSTGRES}{AT_ITS_DEADLINE}[fail]"),
    rules(
        "all leases have one token",
        "token=transition.position if leased else task.token", "token=1 if leased else task.token",
        f"{MODEL}{TOKENS_GROW}",
    ),
    sql(
        "all leases have one token",
        "claim_rotating", DRAWN, "SELECT 1 AS token, picked.*",
        f"{POSTGRES}{TOKENS_GROW}",
    ),
    sql(
        "all leases have one token",
        "claim", DRAWN, "SELECT 1 AS token, picked.*",
        f"{POSTGRES}timeline_one",
    ),
    sql(
        "the token counter starts again",
        "claim_rotating", DRAWN, DRAWN.replace("nextval(", "-nextval("),
        f"{POSTGRES}{TOKENS_GROW}",
    ),
    sql(
        "the token counter starts again",
        "claim", DRAWN, DRAWN.replace("nextval(", "-nextval("),
        f"{POSTGRES}{LARGER_TOKEN}",
    ),
    rules(
        "the token counter starts again",
        "token=transition.position if leased else task.token",
        "token=transition.attempt if leased else task.token",
        f"{MODEL}{LARGER_TOKEN}",
    ),
    rules(
        "one attempt too many",
        "return self.attempt >= self.max_attempts", "return self.attempt > self.max_attempts",
        f"{MODEL}{LAST_LAPSES}",
    ),
    rules(
        "one attempt too many",
        "return self.attempt >= self.max_attempts", "return self.attempt > self.max_attempts",
        f"{MODEL}{LAST_FAILS}",
        file="lease.py",
    ),
    sql(
        "one attempt too many",
        "settle", "task.attempt >= task.max_attempts AS over",
        "task.attempt > task.max_attempts AS over",
        f"{POSTGRES}{LAST_LAPSES}",
    ),
    rules(
        "an expired last attempt is delivered again",
        "kind = Kind.DEAD if task.last_attempt else Kind.LAPSED\n    return follow(",
        "kind = Kind.LAPSED\n    return follow(",
        f"{MODEL}{LAST_LAPSES}",
    ),
    sql(
        "an expired last attempt is delivered again",
        "settle", "task.state = 'leased' AND task.attempt >= task.max_attempts AS over",
        "false AS over",
        f"{POSTGRES}{LAST_LAPSES}",
    ),
    rules(
        "what isn't retryable is retried",
        "if not retryable or lease.last_attempt:", "if lease.last_attempt:",
        f"{MODEL}a_failure_for_good_is_not_retried",
        file="queue.py",
    ),
    rules(
        "a redrive keeps the count",
        "attempt=transition.attempt,",
        "attempt=task.attempt if transition.kind is Kind.REDRIVEN else transition.attempt,",
        f"{MODEL}{AGAIN}",
    ),
    sql("a redrive keeps the count", "redrive", "attempt = 0,", "", f"{POSTGRES}{AGAIN}"),
    rules(
        "a retry is visible at once",
        "Kind.RETRIED: now + failure.delay", "Kind.RETRIED: now",
        f"{MODEL}{DELAY}",
        file="stores/folding.py",
    ),
    sql(
        "a retry is visible at once",
        "fail", "clock.now + failure.delay_us * interval '1 microsecond'", "clock.now",
        f"{POSTGRES}{DELAY}",
    ),
    rules(
        "a heartbeat doesn't extend the lease",
        "deadline = min(now + task.visibility, lease.leased_at + task.max_lease)",
        "deadline = task.visible_at",
        f"{MODEL}{BEATS}",
        file="stores/folding.py",
    ),
    sql(
        "a heartbeat doesn't extend the lease",
        "heartbeat", "least(clock.now AT TIME ZONE 'UTC' + task.visibility,",
        "least(task.visible_at AT TIME ZONE 'UTC',",
        f"{POSTGRES}{BEATS}",
    ),
    rules(
        "a heartbeat loses the details",
        'details=json_text(facts["details"]) if "details" in facts else task.details',
        "details=task.details",
        f"{MODEL}{DETAILS}",
    ),
    sql(
        "a heartbeat loses the details",
        "heartbeat", "coalesce(%(details)s::text, task.details)", "%(details)s::text",
        f"{POSTGRES}{DETAILS}",
    ),
    rules(
        "the newest comes first",
        "(-task.priority, task.visible_at, task.seq)", "(-task.priority, -task.seq)",
        f"{MODEL}{FIRST}",
        file="stores/memory.py",
    ),
    rules(
        "the newest comes first",
        '"-priority", "visible_at", "seq"', '"-priority", "-seq"',
        f"{SQLITE}{FIRST}",
        file="stores/portable.py",
    ),
    sql(
        "the newest comes first",
        "claim", "ORDER BY task.priority DESC, task.visible_at, task.seq",
        "ORDER BY task.priority DESC, task.seq DESC",
        f"{POSTGRES}{FIRST}",
    ),
    rules(
        "an enqueue wakes nobody",
        "duplicate for task in stored):\n            self.on_commit(wake)",
        "duplicate for task in stored):\n            pass",
        f"{MODEL}a_poll_is_woken_by_an_enqueue",
        file="stores/base.py",
    ),
    rules(
        "an enqueue wakes nobody",
        "            wake.here()\n        else:\n            self.on_commit(wake)",
        "            pass",
        f"{POSTGRES}a_poll_is_woken_by_an_enqueue",
        file="stores/postgres/__init__.py",
    ),
    rules(
        "an enqueue that goes out with the look wakes nobody",
        "PairCursor(connection, first, second", "PairCursor(connection, first, first",
        "tests/stores/postgres/test_along.py::test_who_sleeps_hears_of_it_when_it_is_there",
        file="stores/postgres/statements.py",
    ),
    sql(
        "an enqueue wakes no other process",
        "notify", "THEN pg_notify(", "THEN coalesce(",
        "tests/promises/test_wakeups.py"
        "::test_many_enqueues_of_one_transaction_notify_once_and_after_the_commit",
    ),
    rules(
        "a retry that comes due wakes nobody",
        "sleeper.sleep(min(left, due, self.options.poll_interval))", "sleeper.sleep(left)",
        f"{MODEL}a_poll_returns_when_a_retry_comes_due",
        file="polling.py",
    ),
    sql(
        "a retry that comes due wakes nobody",
        "outlook", "AND task.visible_at > (SELECT now FROM clock)", "AND false",
        f"{POSTGRES}a_poll_returns_when_a_retry_comes_due",
    ),
    rules(
        "a wait spins at its end",
        "sleeper.sleep(min(left, due, self.options.poll_interval))",
        "sleeper.sleep(min(left, due, self.options.poll_interval) if left > 0.5 else 0)",
        "tests/promises/test_wakeups.py::test_a_wait_does_not_spin_at_its_end",
        file="polling.py",
    ),
    rules(
        "a duplicate replaces what is held",
        "self.append(stored, follow(stored, Kind.DUPLICATE, now))",
        "self.append(stored, follow(stored, Kind.CANCELLED, now))\n"
        "            stored = self.kept(None, beginning(queue, task, now))",
        f"{MODEL}{DUPLICATE}",
        file="stores/folding.py",
    ),
    sql(
        "a duplicate replaces what is held",
        "enqueue_one", KEPT, REPLACED,
        f"{POSTGRES}{DUPLICATE}",
    ),
    sql(
        "a duplicate replaces what is held",
        "enqueue", KEPT, REPLACED,
        "tests/stores/postgres/test_claims.py"
        "::test_a_bulk_enqueue_is_its_own_duplicate_in_the_callers_order",
    ),
    rules(
        "an ack doesn't remove the task",
        "Kind.ACKED: Rule(after={State.LEASED}, leads_to=NOT_HELD)",
        "Kind.ACKED: Rule(after={State.LEASED}, leads_to=State.READY)",
        f"{MODEL}{LEFT}",
    ),
    sql(
        "an ack doesn't remove the task",
        "complete", "WHERE task.seq = live.seq\n   -- Once", "WHERE false\n   -- Once",
        f"{POSTGRES}{LEFT}",
    ),
    rules(
        "log and projection are written in separate transactions",
        "with transaction.atomic(using=self.using):\n            yield self.now()",
        "with connections[self.using].cursor():\n            yield self.now()",
        f"{WHOLE}_changes_nothing[complete-1-sqlite]",
        file="stores/database.py",
    ),
]  # fmt: skip
