"""The async side of the queue.

Database steps run through ``sync_to_async(thread_sensitive=True)``: in the thread of the caller's
own connection, so that they join its transaction. A step that has begun is never torn: a caller
that is cancelled meanwhile goes when it has ended, and a lease it brought is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from .errors import LeaseLostError, QueueUnavailableError
from .lease import Lease
from .operating import OperatorMixin
from .policy import seconds
from .records import ALL, All, DeadLetter

P = ParamSpec("P")
R = TypeVar("R")
Q = TypeVar("Q")


def twin(
    method: Callable[Concatenate[Q, P], R],
) -> Callable[Concatenate[Q, P], Coroutine[Any, Any, R]]:
    """The async form of *method*: same arguments, same answer, same errors."""

    async def step(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> R:
        answer: R = await whole(sync_to_async(getattr(self, method.__name__))(*args, **kwargs))
        return answer

    functools.update_wrapper(step, method)
    step.__name__ = f"a{method.__name__}"
    step.__doc__ = f"See {method.__name__}()."
    return step


async def whole(step: Awaitable[R], interrupt: Callable[[], None] | None = None) -> R:
    """The answer of *step*, which is let end even where the caller is cancelled.

    Args:
        interrupt: makes the step end soon.
    """
    running = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if interrupt:
            interrupt()
        await asyncio.wait([running])
        raise


class AsyncQueueMixin(OperatorMixin):
    """The operators' calls as steps, and the calls that are more: they wait, or they page."""

    @abstractmethod
    def release_many(self, leases: Iterable[Lease]) -> list[Lease]:
        """See Queue."""

    aredrive = twin(OperatorMixin.redrive)
    aredrive_all = twin(OperatorMixin.redrive_all)
    acancel = twin(OperatorMixin.cancel)
    acancel_many = twin(OperatorMixin.cancel_many)
    apause = twin(OperatorMixin.pause)
    aresume = twin(OperatorMixin.resume)
    apaused = twin(OperatorMixin.paused)
    aerase = twin(OperatorMixin.erase)
    adepth = twin(OperatorMixin.depth)
    astats = twin(OperatorMixin.stats)

    async def aclaim(self, *, worker: str, limit: int = 1) -> list[Lease]:
        """See claim(). Where the caller is cancelled, what was claimed is given back."""
        step = asyncio.ensure_future(sync_to_async(self.claim)(worker=worker, limit=limit))
        try:
            return await whole(step)
        except asyncio.CancelledError:
            if not step.cancelled() and not step.exception() and step.result():
                with contextlib.suppress(LeaseLostError, QueueUnavailableError):
                    await sync_to_async(self.release_many)(step.result())
            raise

    async def apoll(self, *, worker: str, wait: float = 0.0) -> Lease | None:
        """See poll(). The event loop goes on meanwhile; a cancelled wait leaves no lease behind."""
        end = self.monotonic() + seconds("wait", wait, minimum=0)
        lease = await self.aclaim_one(worker, end)
        if lease or wait <= 0:
            return lease
        # A sleeper talks to the server: not on the event loop. Nor in one of the few threads that
        # the loop has: whoever comes next would wait for it.
        with self.borrowed_sleeper() as sleeper, ThreadPoolExecutor(1, "apoll") as own_thread:
            there = functools.partial(asyncio.get_running_loop().run_in_executor, own_thread)
            try:
                await whole(there(sleeper.__enter__))
                while True:
                    visible, due = await sync_to_async(self.outlook)()
                    lease = await self.aclaim_one(worker, end) if visible else None
                    left = end - self.monotonic()
                    if lease or left <= 0:
                        return lease
                    pause = min(left, due, self.options.poll_interval)
                    await whole(there(sleeper.sleep, pause), sleeper.wake)
            finally:
                await whole(there(sleeper.__exit__, None, None, None))

    async def aclaim_one(self, worker: str, end: float) -> Lease | None:
        try:
            leases = await self.aclaim(worker=worker)
        except QueueUnavailableError:
            if end <= self.monotonic():
                raise
            return None
        return leases[0] if leases else None

    async def adead_letters(self, *, tenant: str | All = ALL) -> AsyncIterator[DeadLetter]:
        """See dead_letters()."""
        letters = self.dead_letters(tenant=tenant)
        following = sync_to_async(lambda: next(letters, None))
        while letter := await following():
            yield letter
