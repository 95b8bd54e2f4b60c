"""What an operator does by ``manage.py leasequeue``, on record: pause, resume, cancel, erase."""

from __future__ import annotations

from argparse import Namespace
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import pluralize

from django_leasequeue.models import TaskTransition
from django_leasequeue.queue import Queue

from ..terminal import DATABASE, QUEUE, REMARKS, argument, databases, remarks, the_queue, verb


@verb(
    "Let nothing be claimed from a queue; what runs, and enqueueing, go on.",
    *(QUEUE, *REMARKS, DATABASE),
)
def pause(command: BaseCommand, asked: Namespace) -> None:
    queue = the_queue(asked)
    said = "is paused" if queue.pause(**remarks(asked)) else "was paused already"
    leased = queue.depth().leased
    its = f"{leased} of its tasks {pluralize(leased, 'is,are')} leased still"
    command.stdout.write(f"{queue.name} {said}; {its}")


@verb("Let tasks be claimed again from a paused queue.", QUEUE, *REMARKS, DATABASE)
def resume(command: BaseCommand, asked: Namespace) -> None:
    queue = the_queue(asked)
    said = "is resumed" if queue.resume(**remarks(asked)) else "wasn't paused"
    visible = queue.depth().visible
    its = f"{visible} of its tasks {pluralize(visible, 'is,are')} visible"
    command.stdout.write(f"{queue.name} {said}; {its}")


@verb(
    "Take held tasks away, on record; a running worker's next call is refused.",
    *(QUEUE, argument("ids", metavar="ID", nargs="+")),
    *(argument("--tenant", default="", metavar="NAME"), *REMARKS, DATABASE),
)
def cancel(command: BaseCommand, asked: Namespace) -> None:
    queue = the_queue(asked)
    done = queue.cancel_many(asked.ids, tenant=asked.tenant, **remarks(asked))
    for id in sorted(done):
        command.stdout.write(f"{queue.name}/{id} is cancelled")
    if missing := [id for id in asked.ids if id not in done]:
        raise CommandError(f"not held by {queue.name}: {', '.join(missing)}")


@verb(
    "Blank payload, details, results and errors of one task, in the log too, on record.",
    argument("life", type=UUID, help="What TaskResult.id and the admin say."),
    *(*REMARKS, DATABASE),
)
def erase(command: BaseCommand, asked: Namespace) -> None:
    for using in databases(asked.database):
        log = TaskTransition.objects.using(using).filter(life=asked.life)
        for name in log.values_list("queue", flat=True)[:1]:
            if Queue(name, using=using).erase(asked.life, **remarks(asked)):
                command.stdout.write(f"{using}: {asked.life} of queue {name} is erased")
                return
    raise CommandError(f"no database of ours has {asked.life} on record")
