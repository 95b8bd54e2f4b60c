"""B62: on the event loop the sync call is refused as Django refuses it, the async one works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient
from django.urls import path

from django_leasequeue import Queue
from tests.conftest import on_databases
from tests.databases import on_all
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all

MakeQueue = Callable[..., Queue]


async def view(request: HttpRequest, using: str) -> JsonResponse:
    """All that a site's async code does with a queue."""
    queue = Queue("emails", using=using)
    refused = []
    for call in (lambda: queue.enqueue({}), lambda: tasks.add.enqueue(1, 2)):
        try:
            call()
        except SynchronousOnlyOperation as error:
            refused.append(str(error))
    stored = await asyncio.gather(*(queue.aenqueue({}, id=str(n)) for n in range(20)))
    leases = [await queue.apoll(worker="w") for _ in stored]
    polling = asyncio.ensure_future(queue.apoll(worker="w", wait=60))
    await asyncio.sleep(0)
    polling.cancel()
    ended = await asyncio.gather(polling, return_exceptions=True)
    await queue.acomplete_many([(lease, None) for lease in leases[:10] if lease])
    depth = await queue.adepth()
    return JsonResponse(
        {
            "refused": refused,
            "stored": len(stored),
            "cancelled": isinstance(ended[0], asyncio.CancelledError),
            "leased": depth.leased,
        }
    )


urlpatterns = [path("<str:using>/", view)]


@pytest.mark.parametrize("using", ["default", "sqlite"])
def test_an_async_view(settings: Any, using: str) -> None:
    """G44"""
    settings.ROOT_URLCONF = __name__

    answer: Any = async_to_sync(AsyncClient().get)(f"/{using}/").json()

    assert len(answer["refused"]) == 2
    assert all("async context" in error for error in answer["refused"])
    assert (answer["stored"], answer["cancelled"], answer["leased"]) == (20, True, 10)
    assert Queue("emails", using=using).depth().visible == 0


@on_databases
@pytest.mark.parametrize("fails", [True, False])
def test_a_transaction_around_it_takes_it_along(make_queue: MakeQueue, fails: bool) -> None:
    """G44"""
    queue = make_queue()

    def around() -> None:
        with transaction.atomic(using=queue.using):
            async_to_sync(queue.aenqueue)({})
            transaction.set_rollback(fails, using=queue.using)

    async def main() -> None:
        await sync_to_async(around)()

    async_to_sync(main)()
    assert queue.depth().visible == (not fails)


def test_django_tasks_and_async_tasks_with_the_async_orm(site: Site) -> None:
    """G44"""

    async def enqueue() -> Any:
        task = tasks.count_groups_later.using(backend=site.alias)
        return await asyncio.gather(*(task.aenqueue() for _ in range(5)))

    results = async_to_sync(enqueue)()
    site.drain(threads=2)

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [0] * 5
