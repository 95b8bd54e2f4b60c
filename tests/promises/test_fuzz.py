"""Junk at the doors that test_junk.py leaves out: settings, command lines, tasks, lease strings."""

from __future__ import annotations

import io
from typing import Any, Final

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command, load_command_class
from django.core.management.base import CommandParser
from hypothesis import example, given, strategies as st

from django_leasequeue import InvalidTaskError, Queue
from django_leasequeue.compat import InvalidTask, TaskResultDoesNotExist, task_backends
from django_leasequeue.conf import parse
from django_leasequeue.lease import Lease
from django_leasequeue.management.commands.leasequeue_worker import queues_of as served
from django_leasequeue.management.verbs import VERBS
from django_leasequeue.models import TaskTransition
from django_leasequeue.tasks import LeaseTask
from django_leasequeue.testing.clock import START
from tests.databases import on_all
from tests.promises.test_junk import MANY, junk, refusal
from tests.words.test_lease import LEASE
from tests.worker import tasks

OPTIONS: Final = (
    "using", "policy", "queues", "task_modules", "poll_interval", "listen_using",
    "payload_bytes_max", "retention",
)  # fmt: skip
POLICY: Final = (
    "visibility", "max_attempts", "max_lease", "backoff_base", "backoff_factor", "backoff_cap",
    "jitter", "on_fatal",
)  # fmt: skip
# As a shell can hand it over: no NUL.
words = st.text(st.characters(exclude_characters="\0"), max_size=20) | st.sampled_from(
    ["", "-1", "nan", "inf", "1e400", "9" * 400, "0x1", "٣", "\udcff", "-", "--", "--x", "'; --"]
)


def some_of(keys: tuple[str, ...], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(keys), values, max_size=4)


limits = junk | some_of(POLICY, junk)
of_queues = st.dictionaries(st.text(max_size=3), limits, max_size=3)
deep = st.fixed_dictionaries({}, optional={"policy": limits, "queues": of_queues})


@MANY
@given(queues=junk, options=junk | some_of(OPTIONS, junk) | deep)
def test_settings_are_understood_or_refused_by_name(queues: Any, options: Any) -> None:
    """G36"""
    for config in ({"QUEUES": queues, "OPTIONS": options}, {"QUEUES": [], "OPTIONS": options}):
        refused = refusal(lambda config=config: parse("a", config))  # type: ignore[misc]

        assert refused is None or isinstance(refused, ImproperlyConfigured), repr(refused)


WORKER: Final = ("--queue", "--backend", "--name", "--threads", "--max-tasks", "--grace")
ENDLESS: Final = {"--watch"}


@MANY
@given(argv=st.lists(st.sampled_from(WORKER) | words, max_size=5))
def test_the_worker_s_command_line_is_understood_or_refused(argv: list[str]) -> None:
    """G36: before it works, in one line."""
    command = load_command_class("django_leasequeue", "leasequeue_worker")

    def understood() -> None:
        parser = command.create_parser("manage.py", "leasequeue_worker")
        options = parser.parse_args(argv)
        served(options.backend, options.queues)

    refused = refusal(understood)

    assert refused is None or isinstance(refused, CommandError), repr(refused)


def options_of(verb: str) -> list[str]:
    parser = CommandParser()
    VERBS[verb].add_arguments(parser)
    return sorted(parser._option_string_actions.keys() - {"-h", "--help", *ENDLESS})


command_lines = st.sampled_from(sorted(VERBS)).flatmap(
    lambda verb: st.lists(st.sampled_from([*options_of(verb), "show"]) | words, max_size=4).map(
        lambda argv: [verb, *argv]
    )
)


@on_all
@MANY
@given(argv=command_lines)
@example(argv=["verify", "--database", "nowhere"])
@example(argv=["advance-tokens", "--database", "nowhere"])
def test_an_operator_s_command_line_does_as_it_says_or_nothing(argv: list[str]) -> None:
    """G36"""
    queue = Queue("work", using="default")
    queue.complete(claimed(queue))
    before = TaskTransition.objects.count()

    refused = refusal(lambda: call_command("leasequeue", *argv, stdout=io.StringIO()))

    if refused:
        assert isinstance(refused, CommandError), repr(refused)
        assert TaskTransition.objects.count() == before


def claimed(queue: Queue) -> Lease:
    queue.enqueue({})
    [lease] = queue.claim(worker="w")
    return lease


USING: Final = ("priority", "queue_name", "run_after", "backend", "tenant", "dedupe_key")


@pytest.mark.django_db
@MANY
@given(using=some_of(USING, junk), arguments=st.lists(junk, max_size=2))
def test_a_task_is_enqueued_or_refused_by_django_s_names_and_ours(
    using: dict[str, Any], arguments: list[Any]
) -> None:
    """G36: nothing is stored then."""
    before = TaskTransition.objects.count()

    def enqueue() -> None:
        changed = tasks.fail.using(**using)
        assert isinstance(changed, LeaseTask)
        changed.enqueue(*arguments)

    refused = refusal(enqueue)

    if refused:
        known = (InvalidTask, InvalidTaskError)
        assert isinstance(refused, known) or "backend" in using, repr(refused)
        assert TaskTransition.objects.count() == before


@pytest.mark.django_db
@MANY
@given(id=junk)
def test_a_result_of_anything_is_not_there(id: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["worker on default"].get_result(id)


@given(place=st.integers(0, 10**6), letter=st.characters(), keep=st.booleans())
@example(place=0, letter="\ud800", keep=False)
def test_a_lease_string_with_one_letter_changed_is_refused(
    place: int, letter: str, keep: bool
) -> None:
    """G53"""
    text = LEASE.to_string()
    at = place % len(text)
    touched = text[:at] + letter + text[at + keep :]

    if touched == text:
        assert Lease.from_string(touched, now=START).token == LEASE.token
    else:
        with pytest.raises(InvalidTaskError, match="lease string"):
            Lease.from_string(touched, now=START)
