"""Reporting how attempts ended: many at a time when many end, at once when one does."""

from __future__ import annotations

import json
import logging
import queue
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from django.db import DataError

from django_leasequeue.backend import LeaseQueueBackend, finished_result
from django_leasequeue.compat import heard, task_finished
from django_leasequeue.errors import LeaseLostError, LostReason
from django_leasequeue.failure import printed, summary, type_path
from django_leasequeue.lease import Lease
from django_leasequeue.queue import DISPOSITIONS, Queue
from django_leasequeue.records import Disposition
from django_leasequeue.signals import attempt_ended
from django_leasequeue.transitions import Kind, Transition, ended_by
from django_leasequeue.validation import result_text

from .deliveries import Deliveries
from .outage import OUTAGE, Outage, pause
from .runner import Outcome
from .sessions import Session

IDLE_SECONDS: Final = 1.0  # so long a connection is kept even where CONN_MAX_AGE is 0
PAUSE_SECONDS_MAX: Final = 1.0
COMPANY_SECONDS: Final = 0.003  # that an outcome waits for others, where more are to come
UNSTORABLE: Final = "[the result could not be stored]"
ACKED: Final = "acked"
RELEASED: Final = "released"
WORDS: Final = {
    Disposition.RETRYING: "retried",
    Disposition.DEAD_LETTERED: "dead",
    Disposition.DROPPED: "dropped",
}
FINAL: Final = {ACKED, "dead", "dropped"}
LEVELS: Final = {ACKED: logging.INFO, "dead": logging.ERROR}

logger = logging.getLogger("django_leasequeue")


class Finisher:
    """Records outcomes on a thread and a database connection of its own.

    A database that can't be reached is tried again until the lease is over. Nothing that goes
    wrong with one outcome keeps the others from being recorded.
    """

    def __init__(self, backend: LeaseQueueBackend, deliveries: Deliveries, outage: Outage) -> None:
        self.backend = backend
        self.deliveries = deliveries
        self.outage = outage
        self.outcomes: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()

    def report(self, outcome: Outcome) -> None:
        """Hand in how an attempt ended."""
        self.outcomes.put(outcome)

    def stop(self) -> None:
        """Record what was handed in, then end."""
        self.outcomes.put(None)

    def run(self) -> None:
        """Until ``stop``: record what has been handed in since the last time."""
        session = Session()
        stopped = False
        while not stopped:
            batch = self.next_batch(session)
            stopped = None in batch
            self.record([outcome for outcome in batch if outcome])
            session.restore()  # receivers of signals are the site's code

    def next_batch(self, session: Session) -> list[Outcome | None]:
        """All that waits to be recorded, at least one; None where that is the end."""
        try:
            batch = [self.outcomes.get(timeout=IDLE_SECONDS)]
        except queue.Empty:
            session.tidy()
            batch = [self.outcomes.get()]
        if self.deliveries.company_comes():
            # To be woken by each of them would cost their threads more than it brings.
            time.sleep(COMPANY_SECONDS)
        while not self.outcomes.empty():
            batch.append(self.outcomes.get())
        return batch

    def record(self, batch: Sequence[Outcome]) -> None:
        for outcome in batch:
            outcome.delivery.being_recorded()
            if outcome.delivery.lost:
                say_lost(outcome, outcome.delivery.lost)
        held = [outcome for outcome in batch if not outcome.delivery.lost]
        done = [outcome for outcome in held if outcome.error is None and not outcome.acked]
        for target in {outcome.delivery.queue for outcome in done}:
            self.complete(target, [each for each in done if each.delivery.queue is target])
        for outcome in held:
            if outcome.error is not None:
                self.insist(outcome, repeated=outcome.acked)
            elif outcome.acked:
                self.recorded(outcome, ACKED)
        self.deliveries.drop(outcome.delivery for outcome in batch)

    def complete(self, target: Queue, done: Sequence[Outcome]) -> None:
        """Acknowledge all in one go; where that fails, one by one."""
        lost = self.complete_together(target, done)
        for outcome in done:
            if lost is None:
                self.insist(outcome, repeated=True)
            elif reason := lost.get(outcome.delivery.lease.token):
                say_lost(outcome, reason)
            else:
                self.recorded(outcome, ACKED)

    def complete_together(
        self, target: Queue, done: Sequence[Outcome]
    ) -> dict[int, LostReason] | None:
        """Why which tokens were refused; None where the call failed, and nothing is known."""
        try:
            refused = target.complete_many((each.delivery.lease, each.result) for each in done)
            return {lease.token: target.refused(lease).reason for lease in refused}
        except Exception as error:  # noqa: BLE001  which of them it was shows one by one
            self.outage.met(error)
            return None

    def insist(self, outcome: Outcome, *, repeated: bool) -> None:
        """Record one outcome, trying until its lease is over."""
        failures, plain = 0, False
        while True:
            try:
                word = self.try_once(outcome, repeated=repeated, plain=plain)
            except LeaseLostError as error:
                # An earlier call of ours, given up for lost, may have come through since.
                if not (repeated and error.reason is LostReason.FINISHED):
                    say_lost(outcome, error.reason)
                    return
            except Exception as error:
                if isinstance(error, OUTAGE) and not isinstance(error, DataError):
                    self.outage.met(error)
                else:
                    logger.exception("an outcome can't be recorded; trying without its text")
                    plain = True
            else:
                self.outage.over()
                self.recorded(outcome, word)
                return
            if outcome.delivery.seconds_left() <= 0:
                say_lost(outcome, LostReason.LAPSED)
                return
            time.sleep(pause(failures, PAUSE_SECONDS_MAX))
            failures, repeated = failures + 1, True

    def try_once(self, outcome: Outcome, *, repeated: bool, plain: bool) -> str:
        """Record *outcome* and say as what.

        Args:
            repeated: an earlier call may have worked though its answer was lost.
            plain: leave out result and error: storing them failed.
        """
        lease, target, error = outcome.delivery.lease, outcome.delivery.queue, outcome.error
        done_already = repeated and recorded_already(target, lease)
        if outcome.unread:
            if not done_already:
                target.release(lease)
            return RELEASED
        if outcome.acked and acked_already(target, lease):
            return ACKED
        if error is None:
            if not done_already:
                target.complete(lease, result=UNSTORABLE if plain else outcome.result)
            return ACKED
        told = f"{type_path(error)}: its text can't be stored" if plain else error
        retryable, retry_after = outcome.retryable, outcome.retry_after
        if done_already:
            failure = target.failure(lease, told, retryable=retryable, retry_after=retry_after)
            return WORDS[DISPOSITIONS[failure.kind]]
        return WORDS[target.fail(lease, told, retryable=retryable, retry_after=retry_after)]

    def recorded(self, outcome: Outcome, word: str) -> None:
        """Tell the log, and Django's receivers where the task has come to its end."""
        if word == ACKED and outcome.error is not None:
            # The commit's answer was lost, or a hook that ran after it has failed.
            logger.warning("acknowledged all the same", exc_info=outcome.error)
            outcome = replace(outcome, error=None)
        say(word, outcome)
        level = logging.INFO if outcome.error is None else logging.ERROR
        if word in FINAL and heard(task_finished, level):
            try:
                self.send_finished(outcome)
            except Exception:  # the outcome stands; who was to be told is not
                logger.exception("task_finished could not be sent")

    def send_finished(self, outcome: Outcome) -> None:
        """Send Django's signal as its own backends do: where an exception is being handled."""
        error, lease = outcome.error, outcome.delivery.lease
        size = outcome.delivery.queue.options.payload_bytes_max
        text = result_text(outcome.result, bytes_max=size)
        result = finished_result(
            outcome.task_result,
            at=lease.leased_at + timedelta(seconds=outcome.seconds),
            return_value=None if text == "null" else json.loads(text),
            error=error,
        )
        try:
            if error is not None:
                raise error
            task_finished.send_robust(type(self.backend), task_result=result)
        except BaseException:  # noqa: BLE001
            task_finished.send_robust(type(self.backend), task_result=result)


def recorded_already(target: Queue, lease: Lease) -> bool:
    """Whether this very delivery has ended by a report of its worker; others may have followed."""
    return ended_by(own_history(target, lease)) is LostReason.FINISHED


def acked_already(target: Queue, lease: Lease) -> bool:
    """Whether this very delivery is acknowledged."""
    return any(transition.kind is Kind.ACKED for transition in own_history(target, lease))


def own_history(target: Queue, lease: Lease) -> list[Transition]:
    """What the log tells of this delivery."""
    history = target.store.history([lease.life], since=lease.token)
    return [transition for transition in history if transition.token == lease.token]


def say(word: str, outcome: Outcome, why: str = "") -> None:
    """One line per outcome, always in the same order."""
    lease = outcome.delivery.lease
    if outcome.error is not None:
        why += f" error={summary(type_path(outcome.error), printed(outcome.error)[:1000])}"
    logger.log(
        LEVELS.get(word, logging.WARNING),
        "%s queue=%s id=%s attempt=%d token=%d in=%.3fs%s",
        *(word, lease.queue, lease.id, lease.attempt, lease.token, outcome.seconds, why),
    )
    facts = {"lease": lease, "outcome": word, "seconds": outcome.seconds, "error": outcome.error}
    attempt_ended.send_robust(Finisher, **facts)


def say_lost(outcome: Outcome, reason: LostReason) -> None:
    say("lost", outcome, f" reason={reason}")
