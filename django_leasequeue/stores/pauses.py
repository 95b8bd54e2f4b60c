"""Pausing and resuming a queue of a database, on record.

A claim and a pause exclude each other, so that nothing is claimed any more once a pause is
committed. What excludes them costs a claim no write. On PostgreSQL it is the lock on the table
that the claim's own look at it takes: ROW SHARE, so that a dump, which only reads, is in nobody's
way. On MySQL it is one row that claims share, and on SQLite that there is one writer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Unpack

from django.db import connections

from ..models import Pause
from ..records import Paused
from ..validation import Why

GATE: Final = ""  # the row on MySQL that is of no queue; those have names
LOCK: Final = "LOCK TABLE leasequeue_pause IN EXCLUSIVE MODE"
# Should its client freeze or vanish, claims from all queues would wait for as long as TCP does.
GIVE_UP: Final = """
SELECT set_config('idle_in_transaction_session_timeout', %s, true)
 WHERE current_setting('idle_in_transaction_session_timeout') = '0'
"""
IDLE_MILLISECONDS_MAX: Final = 10_000
SHARE: Final = """
SELECT paused_queue FROM leasequeue_pause WHERE paused_queue IN (%s, '') LOCK IN SHARE MODE
"""


def may_claim(using: str, queue: str) -> bool:
    """Whether *queue* isn't paused; inside the claim's transaction, which no pause overtakes."""
    if connections[using].vendor != "mysql":
        return not Pause.objects.using(using).filter(paused_queue=queue).exists()
    with connections[using].cursor() as cursor:
        cursor.execute(SHARE, [queue])
        return (queue,) not in cursor.fetchall()


def pause(using: str, queue: str, clock: Callable[[], datetime], **why: Unpack[Why]) -> bool:
    """Inside a transaction: nothing is claimed from its commit on; False where that is so."""
    wait_for_claims(using, clock)
    if Pause.objects.using(using).filter(paused_queue=queue).exists():
        return False
    names = {"queue": queue, "paused_queue": queue, "paused_by": why["by"]}
    Pause.objects.using(using).create(**names, paused_at=clock(), reason=why["reason"])
    return True


def wait_for_claims(using: str, clock: Callable[[], datetime]) -> None:
    vendor = connections[using].vendor
    if vendor == "postgresql":
        with connections[using].cursor() as cursor:
            cursor.execute(GIVE_UP, [str(IDLE_MILLISECONDS_MAX)])
            cursor.execute(LOCK)
    elif vendor == "mysql":
        gate = Pause(queue=GATE, paused_queue=GATE, paused_at=clock())
        Pause.objects.using(using).bulk_create([gate], ignore_conflicts=True)
        Pause.objects.using(using).select_for_update().get(paused_queue=GATE)


def resume(using: str, queue: str, now: datetime, **why: Unpack[Why]) -> bool:
    lasting = Pause.objects.using(using).filter(paused_queue=queue)
    told = {"resumed_by": why["by"], "resume_reason": why["reason"]}
    return bool(lasting.update(paused_queue=None, resumed_at=now, **told))


def pauses(using: str) -> Mapping[str, Paused]:
    """The paused queues of a database."""
    lasting = Pause.objects.using(using).filter(paused_queue__isnull=False).exclude(queue=GATE)
    return {
        row.queue: Paused(at=row.paused_at, by=row.paused_by, reason=row.reason) for row in lasting
    }
