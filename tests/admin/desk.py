"""An operator at the queue's pages, and the queue whose tasks they see."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from django_leasequeue import Lease, Queue, QueuePolicy
from django_leasequeue.admin.access import ReadOnlyTaskAdmin
from django_leasequeue.models import Task, TaskTransition
from django_leasequeue.testing.clock import FakeClock
from tests.databases import ALIASES, IDS

Answer = Any  # what Django's test client gives: a response with context and more


@dataclass
class Desk:
    """What an operator can do with the browser, at the pages of one model.

    Numbers are tasks' ``seq``, and log positions.
    """

    client: Client
    user: User
    model: str = "deadletter"

    def at(self, model: str) -> Desk:
        """The same operator at other pages."""
        return replace(self, model=model)

    def url(self, name: str, *args: int) -> str:
        return reverse(f"admin:leasequeue_{self.model}_{name}", args=args)

    def page(self, **query: Any) -> Answer:
        return self.client.get(self.url("changelist"), query)

    def rows(self, **query: Any) -> list[Any]:
        return list(self.page(**query).context["cl"].result_list)

    def story(self, number: int) -> Answer:
        return self.client.get(self.url("change", number))

    def ask(
        self,
        *numbers: int,
        verb: str = "redrive",
        across: bool = False,
        path: str = "",
        **more: Any,
    ) -> Answer:
        """Choose tasks in the list, or press the story's button, and get to the question."""
        form = {"action": f"{verb}_selected", "_selected_action": numbers, **more}
        if across:
            form["select_across"] = "1"
        return self.client.post(path or self.url("changelist"), form)

    def do(self, *numbers: int, reason: str = "", **how: Any) -> str:
        """Ask, answer the question just as its page would, and read what is said then."""
        asked = self.ask(*numbers, **how)
        until = asked.context["form"]["until"].value()
        done = self.ask(*numbers, confirmed="yes", reason=reason, until=until, **how)
        assert done.status_code == 302
        return "\n".join(self.told(done))

    def redrive(self, *numbers: int, **how: Any) -> str:
        return self.do(*numbers, **how)

    def redrive_story(self, number: int, reason: str = "") -> str:
        return self.do(path=self.url("redrive", number), reason=reason)

    def cancel(self, *numbers: int, **how: Any) -> str:
        return self.do(*numbers, verb="cancel", **how)

    def cancel_story(self, number: int, reason: str = "") -> str:
        return self.do(path=self.url("cancel", number), reason=reason)

    @staticmethod
    def told(answer: Answer) -> list[str]:
        """What was said, as it is read; without the link to the record."""
        texts = [str(message) for message in get_messages(answer.wsgi_request)]
        return [html.unescape(re.sub(" <a .*", "", text)) for text in texts]


MakeDesk = Callable[..., Desk]


@pytest.fixture
def both_databases(db: None) -> None:
    """Both databases, for whoever uses this; see tests/conftest.py."""


@pytest.fixture
def make_desk(both_databases: None) -> MakeDesk:
    """A maker of desks: what the operator may do beside seeing the pages, and their name."""

    def make(*permissions: str, name: str = "ada") -> Desk:
        user = User.objects.create_user(name, is_staff=True)
        allowed = ["view_deadletter", "view_task", "view_tasktransition", *permissions]
        user.user_permissions.set(Permission.objects.filter(codename__in=allowed))
        client = Client()
        client.force_login(user)
        return Desk(client, user)

    return make


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk("redrive_task", "cancel_task", "view_payload")


@pytest.fixture
def tasks(desk: Desk) -> Desk:
    """The desk, at the tasks that wait or run."""
    return desk.at("task")


@pytest.fixture
def log(desk: Desk) -> Desk:
    return desk.at("tasktransition")


@pytest.fixture(params=ALIASES, ids=IDS)
def emails(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, both_databases: None
) -> Queue:
    """A queue whose clock stands in the past, so that the pages' clock finds its leases over."""
    monkeypatch.setattr(ReadOnlyTaskAdmin, "using", lambda self: request.param)
    policy = QueuePolicy(max_attempts=2, backoff_base=0)
    return Queue("emails", using=request.param, policy=policy, clock=FakeClock())


def poll(queue: Queue, worker: str = "w1") -> Lease:
    [lease] = queue.claim(worker=worker, limit=1)
    return lease


def a_dead_letter(
    queue: Queue, id: str, *, error: Exception | str = "no such mailbox", **options: Any
) -> int:
    """Enqueue a task and let it fail for good; its number."""
    queue.enqueue(options.pop("payload", {"to": "ada"}), id=id, **options)
    queue.fail(poll(queue), error, retryable=False)
    return number(queue, id)


def number(queue: Queue, id: str) -> int:
    seq: int = Task.objects.using(queue.using).get(queue=queue.name, task_id=id).seq
    return seq


def log_of(queue: Queue, **conditions: Any) -> list[TaskTransition]:
    return list(TaskTransition.objects.using(queue.using).filter(**conditions).order_by("pk"))


def states(queue: Queue, *ids: str) -> list[str]:
    """Where the tasks stand, as stored; "left" for those that have."""
    held = dict(Task.objects.using(queue.using).values_list("task_id", "state"))
    return [held.get(id, "left") for id in ids]


def ids_of(rows: Iterable[Task]) -> list[str]:
    return [row.task_id for row in rows]
