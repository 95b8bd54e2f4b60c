"""``manage.py leasequeue erase``."""

from __future__ import annotations

from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from django_leasequeue import Queue
from django_leasequeue.models import TaskTransition
from tests.databases import ALIASES

from .test_prune import backend

pytestmark = pytest.mark.django_db(databases=ALIASES)


@pytest.mark.parametrize("using", ["default", "sqlite"])
def test_a_life_is_found_in_whichever_database_it_is(settings: Any, using: str) -> None:
    """G60"""
    settings.TASKS = {"one": backend("default", ["mail"]), "two": backend("sqlite", ["orders"])}
    task = Queue("of nobody", using=using).enqueue({"card": 4711})
    told = StringIO()

    call_command(
        "leasequeue", "erase", str(task.life), "--by", "ada", "--reason", "asked", stdout=told
    )

    assert f"{using}: {task.life} of queue of nobody is erased" in told.getvalue()
    first, last = TaskTransition.objects.using(using).filter(life=task.life).order_by("id")
    assert (first.payload, last.kind) == ("null", "erased")
    assert last.data == '{"by":"ada","reason":"asked"}'


def test_a_life_that_is_nowhere_is_said_to_be() -> None:
    with pytest.raises(CommandError, match="no database of ours has"):
        call_command("leasequeue", "erase", str(uuid4()))
