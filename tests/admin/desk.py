"""An operator at the dead letters' pages, and the queue whose letters they see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from django_leasequeue import Lease, Queue, QueuePolicy
from django_leasequeue.admin import DeadLetterAdmin
from django_leasequeue.models import Task
from django_leasequeue.testing.clock import FakeClock

Answer = Any  # what Django's test client gives: a response with context and more
LIST = "admin:leasequeue_deadletter_changelist"


@dataclass
class Desk:
    """What an operator can do with the browser. Numbers are tasks' ``seq``."""

    client: Client
    user: User

    def page(self, **query: Any) -> Answer:
        return self.client.get(reverse(LIST), query)

    def rows(self, **query: Any) -> list[Task]:
        return list(self.page(**query).context["cl"].result_list)

    def story(self, number: int) -> Answer:
        return self.client.get(reverse("admin:leasequeue_deadletter_change", args=[number]))

    def ask(self, *numbers: int, across: bool = False, path: str = "", **more: Any) -> Answer:
        """Choose letters in the list, or press the story's button, and get to the question."""
        form = {"action": "redrive_selected", "_selected_action": numbers, **more}
        if across:
            form["select_across"] = "1"
        return self.client.post(path or reverse(LIST), form)

    def redrive(self, *numbers: int, reason: str = "", **how: Any) -> str:
        """Ask, answer the question just as its page would, and read what is said then."""
        asked = self.ask(*numbers, **how)
        as_of = asked.context["form"]["as_of"].value()
        done = self.ask(*numbers, confirmed="yes", reason=reason, as_of=as_of, **how)
        assert done.status_code == 302
        return "\n".join(self.told(done))

    def redrive_story(self, number: int, reason: str = "") -> str:
        path = reverse("admin:leasequeue_deadletter_redrive", args=[number])
        return self.redrive(path=path, reason=reason)

    @staticmethod
    def told(answer: Answer) -> list[str]:
        return [str(message) for message in get_messages(answer.wsgi_request)]


MakeDesk = Callable[..., Desk]


@pytest.fixture
def both_databases(request: pytest.FixtureRequest) -> None:
    request.applymarker(pytest.mark.django_db(databases=["default", "sqlite"]))
    request.getfixturevalue("db")


@pytest.fixture
def make_desk(both_databases: None) -> MakeDesk:
    """A maker of desks: what the operator may do beside seeing dead letters, and their name."""

    def make(*permissions: str, name: str = "ada") -> Desk:
        user = User.objects.create_user(name, is_staff=True)
        allowed = ["view_deadletter", *permissions]
        user.user_permissions.set(Permission.objects.filter(codename__in=allowed))
        client = Client()
        client.force_login(user)
        return Desk(client, user)

    return make


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk("redrive_task", "view_payload")


@pytest.fixture(params=["default", "sqlite"], ids=["postgres", "sqlite"])
def emails(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, both_databases: None
) -> Queue:
    """A queue whose clock stands in the past, so that the pages' clock finds its leases over."""
    monkeypatch.setattr(DeadLetterAdmin, "using", lambda self: request.param)
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


def states(queue: Queue, *ids: str) -> list[str]:
    """Where the tasks stand, as stored; "left" for those that have."""
    held = dict(Task.objects.using(queue.using).values_list("task_id", "state"))
    return [held.get(id, "left") for id in ids]


def ids_of(rows: Iterable[Task]) -> list[str]:
    return [row.task_id for row in rows]
