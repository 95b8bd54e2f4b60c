"""A queue in memory, for tests: the reference model behind the queue's own face."""

from __future__ import annotations

from ..policy import QueuePolicy
from ..queue import Queue
from ..stores.base import Clock, Store
from ..stores.memory import MemoryStore


class MemoryQueue(Queue):
    """A queue whose tasks live in this process only; otherwise it keeps every promise.

    Args:
        name: as of Queue.
        policy: as of Queue.
        clock: None: the process's own time.
        store: the ``store`` of another MemoryQueue, to share its tasks; None: a new one.
    """

    def __init__(
        self,
        name: str,
        *,
        policy: QueuePolicy | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        self.given = store
        super().__init__(name, policy=policy, clock=clock)

    def open_store(self, using: str, clock: Clock | None) -> Store:
        return self.given or MemoryStore(clock)
