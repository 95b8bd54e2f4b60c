"""A queue is as if it were alone: others hold the same ids and keys, and that changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from django_leasequeue import ALL
from django_leasequeue.lease import Lease
from django_leasequeue.stores.base import Store
from django_leasequeue.stores.memory import MemoryStore
from django_leasequeue.testing.clock import FakeClock
from django_leasequeue.transitions import Kind
from tests.builders import a_failure, a_finish, a_task


def life_of(queue: str, store: Store, set_clock: Callable[[float], None]) -> Iterator[object]:
    """What a queue with three tenants answers, step by step."""

    def claimed(limit: int = 1) -> list[str]:
        leases = store.claim(queue, worker="w", limit=limit)
        latest.update({lease.tenant + lease.id: lease for lease in leases})
        return [lease.tenant + lease.id for lease in leases]

    def enqueued(tenant: str, id: str, key: str, last: int = 3) -> tuple[str, bool]:
        task = a_task(id, tenant=tenant, dedupe_key=key, max_attempts=last)
        [answer] = store.enqueue(queue, [task])
        lives.setdefault(answer.life)
        return answer.id, answer.duplicate

    def looked_at() -> object:
        dead = [letter.tenant + letter.id for letter in store.dead(queue, tenant=ALL, limit=9)]
        waited, due = store.oldest_visible(queue), store.outlook(queue)
        return store.depth(queue), dead, waited, due, store.counts(queue), held("m"), held("n")

    def held(tenant: str) -> list[object]:
        found = [store.held(queue, id, tenant) for id in "1234"]
        return [task and (task.id, task.state, task.attempt, task.life in lives) for task in found]

    def redriven(tenant: str, id: str) -> tuple[int, dict[str, str]]:
        batch = store.redrive(queue, [id], tenant=tenant, by=None, reason=None)
        return batch.redriven, dict(batch.skipped)

    def logged() -> list[object]:
        entries = [entry for life in lives for entry in store.history([life])]
        return [
            (
                *(
                    entry.kind,
                    entry.at,
                    entry.tenant,
                    entry.attempt,
                    entry.worker,
                    entry.visible_at,
                ),
                *(entry.id, entry.payload, entry.facts, entry.token is None),
            )
            for entry in entries
        ]

    latest: dict[str, Lease] = {}
    lives: dict[UUID, None] = {}
    for tenant, count in {"m": 3, "n": 2, "o": 3}.items():
        ids = [str(number + 1) for number in range(count)]
        yield [enqueued(tenant, id, f"k{id}") for id in ids]
    yield looked_at()
    yield [claimed() for _ in range(7)]
    store.fail([a_failure(latest[name], Kind.DEAD) for name in ("m1", "n1", "m3")])
    store.fail([a_failure(latest["o1"], seconds=5), a_failure(latest["o2"], Kind.DROPPED)])
    yield store.complete([a_finish(latest["m2"])]) == {latest["m2"].token}
    yield enqueued("m", "4", "k1", 1), enqueued("n", "2", "new"), enqueued("o", "4", "k1")
    yield looked_at()
    yield redriven("m", "1"), redriven("n", "1"), redriven("o", "1")
    set_clock(5)
    yield claimed(2)
    yield looked_at()
    yield {task.tenant + task.id for task in store.adopt(queue, "w")}
    yield looked_at()
    yield store.cancel(queue, ["4", "3"], tenant="o", by=None, reason=None)
    yield claimed(9)
    set_clock(40)
    yield looked_at()
    yield store.settle(queue), looked_at(), logged()
    yield store.pause(queue, by=None, reason=None), claimed()
    yield store.resume(queue, by=None, reason=None), claimed(2), claimed(2), claimed(2)
    yield logged()


def test_a_queue_answers_as_if_it_were_alone(store: Store, clock: FakeClock) -> None:
    """The one before it by name is a step ahead, the one behind it a step behind."""
    own_clock = FakeClock()
    alone = list(life_of("mail", MemoryStore(own_clock), own_clock.set))

    names = ("mai", "mail", "mails")
    beside = zip(*(life_of(name, store, clock.set) for name in names), strict=True)

    assert list(beside) == [(answer,) * 3 for answer in alone]
