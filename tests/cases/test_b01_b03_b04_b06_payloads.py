"""B01, B03, B04, B06: what can't be stored is refused in the caller, before any SQL.

The refusals themselves, path by path, stand in tests/promises/test_bad_input.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_leasequeue import InvalidTaskError, Queue
from django_leasequeue.models import TaskTransition
from tests.conftest import on_databases

MakeQueue = Callable[..., Queue]

UNSTORABLE = [
    {"a": {"b": ["x", "ok\x00"]}},
    {"\x00": 1},
    {"name": "\ud83d"},
    {"x": [1.0, math.nan]},
    {"v": {1, 2}},
    {"v": object()},
    {"v": uuid4()},
    {"v": Decimal(1)},
    {"v": datetime(2026, 1, 1, tzinfo=UTC)},
    {"v": Group(name="a")},
]


@on_databases
@pytest.mark.parametrize("payload", UNSTORABLE, ids=range(len(UNSTORABLE)))
def test_the_callers_transaction_goes_on(make_queue: MakeQueue, payload: Any) -> None:
    """G36"""
    queue = make_queue()

    with transaction.atomic(using=queue.using):
        Group.objects.using(queue.using).create(name="before")
        with pytest.raises(InvalidTaskError):
            queue.enqueue(payload)
        with pytest.raises(InvalidTaskError):
            queue.enqueue_many([{"payload": {}}, {"payload": payload}])
        Group.objects.using(queue.using).create(name="after")

    assert Group.objects.using(queue.using).count() == 2
    assert queue.depth().visible == 0
    assert not TaskTransition.objects.using(queue.using).exists()


@pytest.mark.parametrize("payload", UNSTORABLE, ids=range(len(UNSTORABLE)))
def test_the_message_never_quotes_the_value(make_queue: MakeQueue, payload: Any) -> None:
    """G36"""
    with pytest.raises(InvalidTaskError) as refused:
        make_queue().enqueue({"secret-to-nobody": payload, "password": "hunter2"})

    assert "hunter2" not in str(refused.value)
    assert "ok" not in str(refused.value)
