"""``manage.py leasequeue prune``: what it forgets, what it says, and when it refuses."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_leasequeue import Queue
from django_leasequeue.models import TaskTransition
from tests.databases import ALIASES, IDS

pytestmark = pytest.mark.django_db(databases=ALIASES)
DAY = 86_400.0
Prune = Callable[..., str]


def backend(using: str, queues: list[str], **options: Any) -> dict[str, Any]:
    return {
        "BACKEND": "django_leasequeue.backend.LeaseQueueBackend",
        "QUEUES": queues,
        "OPTIONS": {"using": using, **options},
    }


@pytest.fixture(params=ALIASES, ids=IDS)
def using(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(*arguments: str) -> str:
    told = StringIO()
    call_command("leasequeue", "prune", *arguments, stdout=told)
    return told.getvalue()


def done_long_ago(using: str, name: str) -> None:
    """A task that was done a moment ago, where a retention of a microsecond is over."""
    queue = Queue(name, using=using)
    queue.enqueue(1)
    queue.complete(queue.claim(worker="w")[0])


def kept(using: str) -> list[str]:
    log = TaskTransition.objects.using(using).order_by("id")
    return [f"{queue} {kind}" for queue, kind in log.values_list("queue", "kind")]


def test_each_backend_forgets_as_its_own_options_say(settings: Any, using: str) -> None:
    """G57"""
    settings.TASKS = {
        "soon": backend(using, ["mail"], retention=1e-6),
        "late": backend(using, ["orders"], retention=DAY),
        "never": backend(using, [], retention=None),
    }
    for name in ("mail", "orders", "any"):
        done_long_ago(using, name)

    told = run()

    assert f"{using}: 3 rows pruned" in told
    assert {row.split()[0] for row in kept(using)} == {"orders", "any"}


def test_a_backend_for_any_queue_leaves_the_queues_of_others_alone(
    settings: Any, using: str
) -> None:
    settings.TASKS = {
        "any": backend(using, [], retention=1e-6),
        "never": backend(using, ["orders"]),
    }
    for name in ("orders", "whatever"):
        done_long_ago(using, name)

    run("--backend", "any")

    assert {row.split()[0] for row in kept(using)} == {"orders"}


def test_a_dry_run_counts_and_deletes_nothing(settings: Any, using: str) -> None:
    settings.TASKS = {"only": backend(using, ["mail"], retention=1e-6)}
    done_long_ago(using, "mail")
    queue = Queue("mail", using=using)
    queue.enqueue(1, id="a")
    queue.enqueue(1, id="a")
    [lease] = queue.claim(worker="w")
    for _ in range(3):
        queue.heartbeat(lease)
    before = kept(using)

    told = run("--dry-run").split("\n")

    assert [line.split()[1:5] for line in told if line] == [
        ["3", "rows", "by", "acked"],
        ["0", "rows", "by", "cancelled"],
        ["0", "rows", "by", "dropped"],
        ["1", "rows", "by", "duplicate"],
        ["2", "rows", "by", "heartbeat"],
    ]
    assert kept(using) == before


def test_days_on_the_command_line_win(settings: Any, using: str) -> None:
    settings.TASKS = {"only": backend(using, ["mail"])}
    done_long_ago(using, "mail")

    run("--older-than", "1")
    assert len(kept(using)) == 3
    run("--older-than", "2e-11")
    assert kept(using) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no OPTIONS.'retention'. says what to forget"),
        (("--backend", "nobody"), "TASKS.'nobody'. is no lease queue"),
        (("--older-than", "-1"), "--older-than: retention must be from"),
        (("--older-than", "nan"), "--older-than: retention must be from"),
    ],
)
def test_what_can_not_be_meant_is_refused(
    settings: Any, arguments: tuple[str, ...], message: str
) -> None:
    settings.TASKS = {"only": backend("default", ["mail"])}

    with pytest.raises(CommandError, match=message):
        run(*arguments)


class Terminal(StringIO):
    """Somebody watches."""

    def isatty(self) -> bool:
        return True


def test_who_watches_sees_how_far_it_is(settings: Any, using: str) -> None:
    settings.TASKS = {"soon": backend(using, ["mail"], retention=1e-6)}
    done_long_ago(using, "mail")
    watched, told = Terminal(), StringIO()

    call_command("leasequeue", "prune", stdout=told, stderr=watched)

    bar, wiped = f"\r{using} {'█' * 40} 100 %", "\r\x1b[K"
    assert watched.getvalue().endswith(bar + wiped)
    assert told.getvalue() == f"{using}: 3 rows pruned\n"
