"""What stands between a queue and its store where tasks come in: nothing, or who traces them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .records import Admitted, EnqueuedTask, Part, RedriveBatch
    from .stores.base import Store, Wake


class Around:
    """Calls the store. Whoever is to see these calls puts a subclass in ``Queue.around``."""

    def enqueue(
        self, store: Store, queue: str, tasks: Sequence[Admitted], wake: Wake
    ) -> list[EnqueuedTask]:
        return store.enqueue(queue, tasks, wake)

    def enqueue_alike(
        self, store: Store, queue: str, like: Admitted, payloads: Iterable[str], wake: Wake
    ) -> Iterator[Part]:
        return store.enqueue_alike(queue, like, payloads, wake)

    def redrive(self, store: Store, queue: str, ids: Sequence[str], **how: Any) -> RedriveBatch:
        return store.redrive(queue, ids, **how)
