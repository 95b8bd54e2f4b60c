"""``manage.py leasequeue dead list|show|redrive|discard``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Max, Min, Q, QuerySet
from django.template.defaultfilters import pluralize

from django_leasequeue import batches
from django_leasequeue.models import Batch, DeadLetter, counted, dead_at
from django_leasequeue.policy import SECONDS_MAX
from django_leasequeue.stores import store_for
from django_leasequeue.story import VANISHED
from django_leasequeue.validation import as_life

from ..terminal import (
    REMARKS,
    TOLD,
    Bar,
    Menu,
    argument,
    at_least,
    databases,
    local,
    remarks,
    table,
    verb,
    write_json,
)
from .task import tell

SOME_STAYED: Final = 3
HOURS_MAX: Final = SECONDS_MAX // 3600
SECONDS_PER_STEP: Final = 0.5  # between two looks at the progress

PLACE: Final = (
    argument("--queue", metavar="NAME"),
    argument("--tenant", metavar="NAME", help="'' for those without one."),
    *TOLD,
)
FILTERS: Final = (
    argument("--id", action="append", metavar="ID", help="May be given several times."),
    argument("--task", metavar="PATH", help="Dotted path of the task function."),
    argument("--error", metavar="TEXT", help="In the error's line, as the list shows it."),
    argument("--lost", action="store_true", help="Only those whose workers all vanished."),
    argument("--failed", action="store_true", help="Only those that failed."),
    argument("--older-than", type=at_least(0, float, HOURS_MAX), metavar="HOURS"),
    argument("--newer-than", type=at_least(0, float, HOURS_MAX), metavar="HOURS"),
)
MOVING: Final = (
    *(*PLACE, *FILTERS, *REMARKS),
    argument("--all", action="store_true", help="Without any filter: all of them."),
    argument("--dry-run", action="store_true", help="Say how many; move nothing."),
    argument("--yes", action="store_true", help="Don't ask first."),
)
NAMED: Final = (
    *("queue", "tenant", "id", "task", "error", "lost", "failed", "older_than", "newer_than"),
)


@verb(
    "What stopped: counted by task and error, or one by one.",
    *(*PLACE, *FILTERS),
    argument("--each", action="store_true", help="One by one, the newest first."),
    argument("--limit", type=at_least(1, int), default=50, help="Lines, at most (50)."),
    argument("--exit-code", action="store_true", help="Exit with 3 if there are any."),
)
def list_(command: BaseCommand, asked: Namespace) -> None:
    told = one_by_one if asked.each else grouped
    places = databases(asked.database)
    rows = [
        {"database": using} | row
        for using in places
        for row in told(matching(using, asked), asked.limit)
    ][: asked.limit]
    if asked.json:
        write_json(command, rows)
    elif rows:
        names = list(rows[0])[len(places) == 1 :]  # of one database its name is known
        shown = [[text_of(row[name]) for name in names] for row in rows]
        command.stdout.write("\n".join(table([name.upper() for name in names], shown)))
    else:
        command.stdout.write("no dead letters")
    if rows and asked.exit_code:
        sys.exit(SOME_STAYED)


@verb(
    "One dead letter with every attempt; no payload.",
    argument("id", help="Its id, or its life."),
    *PLACE,
)
def show(command: BaseCommand, asked: Namespace) -> None:
    found = [
        (using, letter.life)
        for using in databases(asked.database)
        for letter in named(matching(using, asked, id=None), asked.id)
    ]
    if not found:
        raise CommandError(f"no dead letter {asked.id!r}")
    if len(found) > 1:
        raise CommandError(
            f"several places have {asked.id!r}: give --queue and --tenant, or --database"
        )
    [(using, life)] = found
    tell(command, using, life, Namespace(json=asked.json, payload=False, traceback=True))


def named(letters: QuerySet[DeadLetter], id: str) -> list[DeadLetter]:
    life = as_life(id)
    return list(letters.filter(task_id=id)[:2]) or (list(letters.filter(life=life)) if life else [])


@verb(
    "Make them ready again.",
    *MOVING,
    argument("--rate", type=float, metavar="N", help="At most N a second."),
)
def redrive(command: BaseCommand, asked: Namespace) -> None:
    move(command, "redrive", asked)


@verb("Cancel them.", *MOVING)
def discard(command: BaseCommand, asked: Namespace) -> None:
    move(command, "cancel", asked)


dead: Final = Menu(
    "Dead letters: list them, show one, redrive or discard many.",
    "act",
    {"list": list_, "show": show, "redrive": redrive, "discard": discard},
    "Exit status: 0 done; 1 wrong call or no such letter; 3 some stayed, or list --exit-code.",
)


def matching(using: str, asked: Namespace, **instead: Any) -> QuerySet[DeadLetter]:
    """The dead letters in *using* that are asked for."""
    options = vars(asked) | instead
    now = store_for(using).now()
    wanted = {
        "queue": options["queue"],
        "tenant": options["tenant"],
        "path": options.get("task"),
        "task_id__in": options.get("id"),
    }
    # What dies while somebody is asked isn't meant.
    letters: QuerySet[DeadLetter] = DeadLetter.objects.using(using)
    letters = letters.filter(dead_at(now), visible_at__lte=now)
    letters = letters.filter(**{name: one for name, one in wanted.items() if one is not None})
    if text := options.get("error"):
        letters = letters.filter(Q(fingerprint__contains=text) | Q(last_error__contains=text))
    if options.get("lost") or options.get("failed"):
        lost = letters.filter(last_error="")
        letters = lost if options["lost"] else letters.exclude(last_error="")
    for name, bound in (("older_than", "lte"), ("newer_than", "gt")):
        if (hours := options.get(name)) is not None:
            letters = letters.filter(**{f"visible_at__{bound}": now - timedelta(hours=hours)})
    return letters


def in_words(asked: Namespace) -> str:
    """The filters that are asked for, for the record."""
    given = {name.replace("_", "-"): getattr(asked, name) for name in NAMED}
    return " ".join(
        f"--{name}" if value is True else f"--{name} {value}"
        for name, value in given.items()
        if value is not None and value is not False
    )


def grouped(letters: QuerySet[DeadLetter], limit: int) -> Iterator[dict[str, Any]]:
    ends = {"newest": Max("visible_at"), "oldest": Min("visible_at")}
    for row in counted(letters, "queue", "path", "fingerprint", **ends)[:limit]:
        yield {
            "count": row["count"],
            "queue": row["queue"],
            "task": row["path"],
            "newest": row["newest"],
            "oldest": row["oldest"],
            "error": row["fingerprint"] or VANISHED,
        }


def one_by_one(letters: QuerySet[DeadLetter], limit: int) -> Iterator[dict[str, Any]]:
    for letter in letters.defer("payload", "details").order_by("-visible_at", "-seq")[:limit]:
        yield {
            "dead since": letter.visible_at,
            "queue": letter.queue,
            "tenant": letter.tenant,
            "id": letter.task_id,
            "task": letter.path,
            "attempts": letter.attempt,
            "error": letter.last_error or VANISHED,
        }


def text_of(value: Any) -> str:
    return local(value) if hasattr(value, "isoformat") else str(value)


def move(command: BaseCommand, verb: str, asked: Namespace) -> None:
    chosen = in_words(asked)
    if bool(chosen) == asked.all:
        raise CommandError("say which by a filter, or --all")
    every = {using: matching(using, asked) for using in databases(asked.database)}
    letters = {using: found for using, found in every.items() if found.exists()} or every
    if asked.dry_run:
        answer(command, asked, {"dry run": True} | rehearsal(verb, letters.values()))
        return
    count = sum(found.count() for found in letters.values())
    if count and not asked.yes and not agreed(f"{verb} {count} dead letter{pluralize(count)}"):
        raise CommandError("nothing was moved")
    how = remarks(asked) | {"reason": asked.reason or "", "rate": getattr(asked, "rate", None)}
    begun = [
        batches.begin(found, verb=verb, chosen=chosen or "--all", letters=True, **how)
        for found in letters.values()
    ]
    for batch in begun:
        done = with_progress(command, batch)
        told = {"batch": done.pk, "moved": done.moved, "skipped": done.skipped}
        answer(command, asked, {"database": done.using} | told, dict(batches.reasons(done)))
        batch.skipped = done.skipped
    if any(batch.skipped for batch in begun):
        sys.exit(SOME_STAYED)


def rehearsal(verb: str, letters: Any) -> dict[str, int]:
    """How many would move, and how many would stay for their key's sake."""
    selected = sum(found.count() for found in letters)
    if verb != "redrive":
        return {"would move": selected}
    stay = sum(batches.would_stay(found, store_for(found.db).now()) for found in letters)
    return {"would move": selected - stay, "would stay": stay}


def agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise CommandError("nobody to ask: give --yes")
    return input(f"{question}? [y/N] ").strip().lower() in {"y", "yes"}


def with_progress(command: BaseCommand, batch: Batch) -> Batch:
    """Go on until it is done. Interrupted, workers go on with it."""
    bar = Bar(command, f"batch {batch.pk}")
    while batch.done_at is None:
        batch = batches.go_on(batch, seconds=SECONDS_PER_STEP)
        bar.show(batch.passed / max(1, batch.total))
    bar.wipe()
    return batch


def answer(
    command: BaseCommand,
    asked: Namespace,
    facts: dict[str, Any],
    skipped: dict[str, int] | None = None,
) -> None:
    if asked.json:
        write_json(command, facts | ({"why": skipped} if skipped else {}))
        return
    command.stdout.write(", ".join(f"{name}: {value}" for name, value in facts.items()))
    for why, count in (skipped or {}).items():
        command.stdout.write(f"{count:>8} stayed: {why}")
