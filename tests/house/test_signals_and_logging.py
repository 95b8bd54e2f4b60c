"""G71: the page of signals and log lines tells what the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from django.dispatch import Signal

from django_leasequeue import Queue, signals
from django_leasequeue.backend import LeaseQueueBackend
from django_leasequeue.errors import LeaseLostError
from django_leasequeue.testing import FakeClock, MemoryQueue
from django_leasequeue.worker.deliveries import Delivery
from django_leasequeue.worker.finisher import say
from django_leasequeue.worker.runner import Outcome

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs/signals-and-logging.md").read_text()
LEVELS: Final = {
    **{name: name.upper() for name in ("info", "warning", "error", "critical")},
    **{"exception": "ERROR", "log": "by outcome"},
}
ALL: Final = {name: each for name, each in vars(signals).items() if isinstance(each, Signal)}


def logged() -> Iterator[tuple[str, str]]:
    """Each line that the code may log, its facts as dots, and its level."""
    for file in (ROOT / "django_leasequeue").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"), attr=method)):
                    if method in LEVELS:
                        words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                        line = re.sub(r"%[-#0 +]*\d*(\.\d+)?[a-z]", "…", str(words[0]))
                        yield line, LEVELS[method]


def test_the_page_lists_each_line_and_no_other() -> None:
    listed = re.findall(r"^\| `(.+)` \| ([A-Z]+|by outcome) \|", PAGE, re.MULTILINE)

    assert sorted(listed) == sorted(set(logged()))


@pytest.fixture
def heard() -> Iterator[dict[str, set[str]]]:
    """The arguments that each signal was sent with."""
    heard: dict[str, set[str]] = {}

    def hear(signal: Signal, sender: Any, **arguments: Any) -> None:
        [name] = [name for name, each in ALL.items() if each is signal]
        heard[name] = set(arguments)

    for each in ALL.values():
        each.connect(hear)
    yield heard
    for each in ALL.values():
        each.disconnect(hear)


def test_the_page_lists_each_signal_with_its_arguments(heard: dict[str, set[str]]) -> None:
    queue: Queue = MemoryQueue("mail", clock=FakeClock())
    for _ in range(2):
        queue.enqueue({}, id="a", max_attempts=2)
    [lease] = queue.claim(worker="w")
    queue.fail(lease, "no", retry_after=0)
    [lease] = queue.claim(worker="w")
    queue.fail(lease, "no")
    with pytest.raises(LeaseLostError):
        queue.complete(lease)
    queue.redrive(["a"])
    delivery = Delivery(queue=queue, lease=lease, sent_at=0.0)
    backend = LeaseQueueBackend("default", {})
    say("lost", Outcome(backend=backend, delivery=delivery))

    listed = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([a-z, ]+) \|", PAGE, re.MULTILINE))
    assert {name: set(arguments.split(", ")) for name, arguments in listed.items()} == heard
    assert listed.keys() == ALL.keys()
