"""Tasks for the worker's tests, each doing one thing that tasks do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, OperationalError, connections, transaction
from django.utils import translation
from opentelemetry import trace

from django_leasequeue import effects
from django_leasequeue.errors import LeaseLostError
from django_leasequeue.models import TaskTransition
from django_leasequeue.tasks import task
from django_leasequeue.worker import current_lease

task = partial(task, backend="worker on default", queue_name="work")  # type: ignore[assignment]

runs: list[Any] = []  # what ran, for tests whose worker is a thread of their own
gate = threading.Event()  # closed until a test opens it
FOREVER = 120.0  # longer than any test waits
RENEWED = 5.0  # of a lease that is to be kept: the machine may stand still for three seconds
OUTLIVED = 3.0  # of one that is to be over, and not before its task has begun


def place() -> str:
    """The database of the queue that this task came from."""
    return current_lease().delivery.queue.using


@task()
def add(a: int, b: int) -> int:
    runs.append((a, b))
    return a + b


@task()
def enqueue_many(count: int) -> None:
    for number in range(count):
        add.enqueue(number, 0)


@task()
async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@task()
def speak(language: str) -> str:
    before = translation.get_language()
    translation.activate(language)
    return before


@task()
def fail(message: str) -> None:
    raise ValueError(message)


@task()
def leave() -> None:
    raise SystemExit(3)


@task()
def wait_at_the_gate() -> bool:
    runs.append("at the gate")
    return gate.wait(FOREVER)


@task(visibility=RENEWED)
def take_long(seconds: float) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return current_lease().attempt


@task(atomic=True, max_attempts=2)
def found_atomically(name: str, how: str = "") -> str:
    """Write a row, then do what may go wrong between that and the acknowledgement's commit."""
    using = place()
    groups = Group.objects.using(using)
    groups.create(name=name)
    runs.append(name)
    match how:
        case "fail":
            raise ValueError("after the write")
        case "swallow an error":
            with suppress(IntegrityError):
                groups.create(name=name)
        case "break a promise to the commit":
            memberships = User.groups.through.objects.using(using)
            memberships.create(user_id=10**6, group_id=10**6)
        case "hook":
            transaction.on_commit(lambda: runs.append(groups.count()), using=using)
        case "failing hook":
            transaction.on_commit(partial(fail.func, "in a hook"), using=using)
        case "lose the answer":
            lose_the_commits_answer(using)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return name


def lose_the_commits_answer(using: str) -> None:
    connection = connections[using]
    commit = connection.commit

    def commit_silently() -> None:
        connection.commit = commit  # type: ignore[method-assign]
        commit()
        raise OperationalError("server closed the connection unexpectedly")

    connection.commit = commit_silently  # type: ignore[method-assign]


@task(atomic=True, visibility=OUTLIVED, max_lease=OUTLIVED, max_attempts=2)
def found_too_late(name: str) -> None:
    found_atomically.func(name)
    gate.wait(FOREVER)


@task(atomic=True, visibility=RENEWED)
def found_slowly(name: str, seconds: float) -> int:
    found_atomically.func(name)
    return take_long.func(seconds)


@task(atomic=True, visibility=OUTLIVED, max_lease=OUTLIVED, max_attempts=3)
def outlive_the_lease(times: int) -> None:
    """Write a row, and take longer than a lease lasts, at so many attempts.

    On SQLite the next claim waits for that row's transaction, and for less than its own lease.
    """
    attempt = current_lease().attempt
    found_atomically.func(f"attempt {attempt}")
    time.sleep(OUTLIVED + 0.5 if attempt <= times else 0)


@task(visibility=OUTLIVED, max_lease=OUTLIVED, max_attempts=1)
def ask_until_refused() -> None:
    while True:
        time.sleep(0.02)
        try:
            current_lease().check()
        except LeaseLostError as error:
            runs.append(str(error.reason))
            raise


@task(visibility=RENEWED)
def keep_a_connection(seconds: float) -> int:
    with transaction.atomic(using=place()):
        Group.objects.using(place()).count()
        return take_long.func(seconds)


@task(visibility=30)
def leave_details() -> Any:
    lease = current_lease()
    if lease.attempt > 1:
        return [lease.details, lease.token]
    with transaction.atomic(using=place()):
        lease.heartbeat({"page": 7})
        raise ValueError("half-way")


@task(visibility=30)
async def renew_while_the_loop_goes_on() -> Any:
    """The worker's own heartbeat is held up until the event loop opens the gate."""
    lease = current_lease()

    async def open_the_gate() -> None:
        gate.set()

    if lease.attempt == 1:
        await asyncio.gather(lease.aheartbeat({"page": 7}), open_the_gate())
        raise ValueError("half-way")
    await lease.acheck()
    return lease.details


@task(visibility=30)
async def give_up_asking() -> int:
    """Two calls that nobody waits for any more: one under way, one yet to be made."""
    lease = current_lease()
    calls = [asyncio.create_task(lease.acheck()) for _ in range(2)]
    await asyncio.sleep(0.05)
    for call in calls:
        call.cancel()
    gate.set()
    await lease.acheck()
    return sum(call.cancelled() for call in calls)


@task(takes_context=True)
def compare(context: Any) -> list[Any]:
    """What the context and the current lease say of the same things."""
    told = [context.attempt, context.lease.attempt, current_lease().attempt]
    runs.append([*told, context.lease is current_lease(), context.lease.token])
    raise ValueError(told)


@task(takes_context=True)
async def compare_later(context: Any) -> list[Any]:
    await asyncio.sleep(0)
    return [context.attempt, current_lease().attempt, await sync_to_async(attempt_here)()]


def attempt_here() -> int:
    return current_lease().attempt


@task()
def check_until_refused() -> None:
    runs.append("running")
    gate.wait(FOREVER)
    current_lease().check()


@task(timeout=0.2, max_attempts=2)
async def sleep_too_long() -> None:
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        runs.append("cancelled")
        raise


@task(timeout=0.2, max_attempts=2)
def check_too_late() -> None:
    while True:
        time.sleep(0.02)
        current_lease().check()


@task(visibility=0.6, timeout=0.1)
def never_check() -> None:
    gate.wait(FOREVER)


@task(max_attempts=2)
def raise_twenty_megabytes(kind: str) -> None:
    if kind == "long":
        raise ValueError("x" * 20_000_000)
    if kind == "deep":
        raise_twenty_megabytes.func(kind)
    raise chained(50)


def chained(links: int) -> Exception:
    error = ValueError(links)
    error.__cause__ = chained(links - 1) if links else None
    return error


@task()
def return_unstorable(kind: str) -> Any:
    Group.objects.using(place()).create(name=kind)
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    values = {"object": object(), "set": {1}, "large": ["x" * 1000] * 5000, "deep": nested}
    values["nan"] = float("nan")
    return values[kind]


@task(max_attempts=1)
def poison(how: str) -> None:
    connection = connections[place()]
    if how == "atomic":
        with transaction.atomic(using=connection.alias):
            Group.objects.using(connection.alias).create(name="twice")
            with suppress(IntegrityError):
                Group.objects.using(connection.alias).create(name="twice")
            raise ValueError("its own error")
    if how == "open atomic":
        transaction.atomic(using=connection.alias).__enter__()
    elif how == "autocommit":
        connection.set_autocommit(False)
        Group.objects.using(connection.alias).create(name="left behind")
    elif how == "broken":
        connection.ensure_connection()
        connection.connection.close()
    else:
        with connection.cursor() as cursor:
            cursor.execute(how)
    raise ValueError("its own error")


@task()
def count_groups() -> int:
    return Group.objects.using(place()).count()


@task()
async def count_groups_later() -> int:
    return await Group.objects.using(place()).acount()


@task()
def charge(how: str = "") -> Any:
    def act() -> str:
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "wait":
            wait_at_the_gate.func()
        runs.append("charged")
        return "receipt"

    return effects.once("charge", act)


@task(atomic=True)
def charge_atomically() -> int:
    """Fails after the effect, at first."""
    using = place()
    charge.func()
    Group.objects.using(using).create(name="a")
    if current_lease().attempt == 1:
        raise ValueError("half-way")
    return Group.objects.using(using).count()


async def act_later() -> str:
    await asyncio.sleep(0)
    runs.append("charged")
    return "receipt"


@task()
async def charge_later() -> Any:
    receipt = await effects.aonce("charge", act_later)
    if current_lease().attempt == 1:
        raise ValueError("half-way")
    return receipt


@task()
async def give_up_charging() -> str:
    charging = asyncio.create_task(effects.aonce("charge", act_later))
    await asyncio.sleep(0.05)
    charging.cancel()
    gate.set()
    with suppress(asyncio.CancelledError):
        await charging
    return "cancelled" if charging.cancelled() else "charged"


@task(max_attempts=1)
def open_undecodable() -> None:
    """As os.listdir gives names that are no UTF-8."""
    name = "caf\udce9.txt"
    raise FileNotFoundError(f"not there: {name}")


@task(visibility=RENEWED)
async def block_the_loop(seconds: float) -> int:
    time.sleep(seconds)
    return current_lease().attempt


@task(max_attempts=3)
def pay(card: str, fails: bool) -> str:
    """Fails in words of its own, which don't quote its argument."""
    if fails:
        raise ValueError("refused by the bank")
    return card


@task()
def touch(path: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")


@task(max_attempts=3)
def kill_the_worker(path: str) -> None:
    touch.func(path)
    os.kill(os.getpid(), signal.SIGKILL)


@task(visibility=RENEWED, max_attempts=5)
def sleep_at_first(seconds: float) -> int:
    """Long at its first attempt only."""
    if current_lease().attempt == 1:
        sys.stderr.write("asleep\n")
        time.sleep(seconds)
    return current_lease().attempt


@task(visibility=300)
def sleep_long_at_first(seconds: float) -> int:
    return sleep_at_first.func(seconds)


@task(visibility=5)
def compute(seconds: float) -> int:
    """Never lets go of the interpreter by itself."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return current_lease().attempt


@task()
def take_a_moment() -> int:
    time.sleep(0.9)
    return current_lease().attempt


@task()
def count_logged_queries() -> int:
    Group.objects.using(place()).count()
    return len(connections[place()].queries)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)

    @property
    def retry_after(self) -> float:
        raise RuntimeError("not to be asked")


@task()
def leave_while_printed() -> None:
    raise Unprintable


@task(backoff=lambda error, result: 0)
def refuse_to_say_when() -> None:
    raise Unprintable


# Async tasks beside each other


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@task()
async def meet(number: int) -> int:
    """Return when so many of us are here."""
    runs.append("here")
    await until(lambda: len(runs) == number)
    return len(runs)


@task()
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)


@task()
async def count_those_beside() -> int:
    runs.append("here")
    await asyncio.sleep(0.01)
    beside = len(runs)
    runs.remove("here")
    return beside


@task()
async def see_three_others_through() -> list[int]:
    await until(lambda: len(runs) == 3)
    return sorted(a for a, _ in runs)


@task()
async def fail_first() -> list[Any]:
    await asyncio.sleep(0)
    if current_lease().attempt == 1:
        raise Later
    return [str(current_lease().lease.life), current_lease().attempt]


class Later(Exception):
    retry_after = 0


@task(timeout=0.2, max_attempts=1)
async def never_end_with_a_child() -> None:
    async def child() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            runs.append("cancelled")

    await asyncio.create_task(child())


@task(timeout=0.2, max_attempts=1)
async def leave_a_thread_behind() -> None:
    await asyncio.to_thread(time.sleep, 300)


@task()
async def outlast_the_cancelled() -> str:
    async def child() -> str:
        await until(lambda: runs)
        return "ended well"

    return f"mine {await asyncio.create_task(child())}"


@task()
async def await_the_gate() -> None:
    runs.append("at the gate")
    await until(gate.is_set)


@task(visibility=0.6, max_lease=0.6)
async def block_the_loop_for_ever() -> None:
    gate.wait(FOREVER)


@task(visibility=OUTLIVED, timeout=0.1, max_attempts=1)
async def swallow_the_cancellation() -> None:
    while not gate.is_set():
        with suppress(asyncio.CancelledError):
            await until(gate.is_set)


@task(max_attempts=1)
async def fail_later() -> None:
    raise ValueError("later")


@task()
async def keep_the_loop_s_threads() -> None:
    """All of them, wherever it runs."""
    runs.append("keeping")
    await asyncio.gather(*(asyncio.to_thread(gate.wait, FOREVER) for _ in range(64)))


@task()
async def leave_a_transaction_open(using: str) -> None:
    await sync_to_async(lambda: connections[using].cursor().execute("BEGIN"))()


@task()
async def begin_a_transaction(using: str) -> None:
    """Fails where one is open."""

    def begin() -> None:
        with transaction.atomic(using=using, durable=True):
            Group.objects.using(using).create(name="after")

    await sync_to_async(begin)()


@task()
def count_what_is_recorded() -> int:
    return TaskTransition.objects.using(place()).filter(kind="acked").count()


@task(max_attempts=1)
async def exit_in_a_child() -> None:
    async def child() -> None:
        sys.exit(3)

    await asyncio.create_task(child())


@task(max_attempts=1)
async def leave_a_cancellation_behind() -> None:
    current = asyncio.current_task()
    assert current
    current.cancel()
    raise ValueError("and this")


@task(max_attempts=1)
async def note_one_delivery() -> None:
    runs.append("once")


@task()
async def enqueue_one_later() -> None:
    await asyncio.sleep(0)
    await add.using(backend=f"worker on {place()}").aenqueue(0, 0)


@task()
def tell_the_trace() -> str:
    return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)


@task()
def run_another_at_once() -> bool:
    """Whether this task's span is still the current one then."""
    mine = trace.get_current_span()
    add.using(backend="at once", queue_name="default").enqueue(1, 2)
    return trace.get_current_span() is mine


@task(atomic=True)
def fork(how: str) -> int:
    """How the child ended, which goes on in here."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if how == "exits":
        sys.exit(3)
    if how == "raises":
        raise ValueError(how)
    return 7
