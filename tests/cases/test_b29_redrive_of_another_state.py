"""B29: a redrive of what isn't dead moves nothing and says why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django_leasequeue import Queue

MakeQueue = Callable[..., Queue]


def test_only_dead_letters_move(make_queue: MakeQueue) -> None:
    """G22"""
    queue = make_queue()
    for id in ("leased", "acked", "cancelled", "dead"):
        queue.enqueue({}, id=id)
    leases = {lease.id: lease for lease in queue.claim(worker="w", limit=10)}
    queue.complete(leases["acked"])
    queue.cancel("cancelled")
    queue.fail(leases["dead"], "refused", retryable=False)
    queue.enqueue({}, id="ready")
    queue.enqueue({}, id="scheduled", run_after=timedelta(hours=1))
    before = queue.store.find(leases["leased"].life)

    batch = queue.redrive(
        ["leased", "acked", "cancelled", "dead", "dead", "ready", "scheduled", "unknown"]
    )

    assert batch.redriven == 1
    assert dict(batch.skipped) == {
        "leased": "not dead: leased",
        "ready": "not dead: ready",
        "scheduled": "not dead: scheduled",
        "acked": "not held",
        "cancelled": "not held",
        "unknown": "not held",
    }
    assert queue.store.find(leases["leased"].life) == before
    queue.heartbeat(leases["leased"])


def test_no_ids_move_nothing(make_queue: MakeQueue) -> None:
    """G22"""
    queue = make_queue()
    queue.enqueue({}, id="a")
    queue.fail(queue.claim(worker="w")[0], "refused", retryable=False)

    assert queue.redrive([]).redriven == 0
    assert queue.depth().dead == 1


def test_redriving_all_leaves_other_tenants_and_held_keys_alone(make_queue: MakeQueue) -> None:
    """G22, G24"""
    queue = make_queue()
    for tenant in ("x", "y"):
        for number in range(3):
            queue.enqueue({}, id=f"{tenant}{number}", tenant=tenant, dedupe_key=f"k{number}")
    for lease in queue.claim(worker="w", limit=10):
        queue.fail(lease, "refused", retryable=False)
    queue.enqueue({}, id="new", tenant="x", dedupe_key="k1")

    batch = queue.redrive_all(tenant="x", by="7 ada", reason="mended")

    assert (batch.redriven, dict(batch.skipped)) == (2, {"x1": "key 'k1' is held by new"})
    assert [letter.id for letter in queue.dead_letters()] == ["x1", "y0", "y1", "y2"]
    queue.enqueue({}, id="also new", tenant="y", dedupe_key="k1")
    assert set(queue.redrive_all().skipped) == {"x/x1", "y/y1"}
    redriven = queue.store.held("emails", "x0", "x")
    assert redriven
    assert queue.store.history([redriven.life])[-1].facts == {"by": "7 ada", "reason": "mended"}
