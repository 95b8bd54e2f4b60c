"""``manage.py leasequeue dead list|show|redrive|discard``."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final, TextIO

from django.core.management.base import BaseCommand, CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Count, Max, Min, Q, QuerySet
from django.template.defaultfilters import pluralize

from django_leasequeue import batches
from django_leasequeue.conf import backends, parse
from django_leasequeue.management.terminal import who
from django_leasequeue.models import Batch, DeadLetter, dead_at
from django_leasequeue.records import DeadLetter as Letter
from django_leasequeue.stores import store_for
from django_leasequeue.story import VANISHED, dead_letter
from django_leasequeue.validation import as_life

HELP: Final = "Dead letters: list them, show one, redrive or discard many."
EPILOG: Final = (
    "Exit status: 0 done; 1 wrong call or no such letter; 3 some stayed, or --exit-code."
)
SOME_STAYED: Final = 3
SECONDS_PER_STEP: Final = 0.5  # between two looks at the progress
BAR_CHARACTERS: Final = 40


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    parser.epilog = EPILOG
    acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
    lists = acts.add_parser("list", help="What stopped: counted by task and error, or one by one.")
    add_filters(lists)
    lists.add_argument("--each", action="store_true", help="One by one, the newest first.")
    lists.add_argument("--limit", type=int, default=50, help="Lines, at most (50).")
    lists.add_argument("--exit-code", action="store_true", help="Exit with 3 if there are any.")
    shows = acts.add_parser("show", help="One dead letter with every attempt; no payload.")
    shows.add_argument("id", help="Its id, or its life.")
    add_place(shows)
    for name, told in (("redrive", "Make them ready again."), ("discard", "Cancel them.")):
        act = acts.add_parser(name, help=told)
        add_filters(act)
        act.add_argument("--all", action="store_true", help="Without any filter: all of them.")
        act.add_argument("--dry-run", action="store_true", help="Say how many; move nothing.")
        act.add_argument("--yes", action="store_true", help="Don't ask first.")
        act.add_argument("--by", metavar="NAME", help="Who, for the record (the shell's user).")
        act.add_argument("--reason", metavar="TEXT", default="", help="Why, for the record.")
        if name == "redrive":
            act.add_argument("--rate", type=float, metavar="N", help="At most N a second.")


def add_place(parser: ArgumentParser) -> None:
    parser.add_argument("--queue", metavar="NAME")
    parser.add_argument("--tenant", metavar="NAME", help="'' for those without one.")
    parser.add_argument("--database", metavar="ALIAS", help="Default: that of the first backend.")
    parser.add_argument("--json", action="store_true", help="For scripts.")


def add_filters(parser: ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("--id", action="append", metavar="ID", help="May be given several times.")
    parser.add_argument("--task", metavar="PATH", help="Dotted path of the task function.")
    parser.add_argument(
        "--error", metavar="TEXT", help="In the error's line, as the list shows it."
    )
    parser.add_argument(
        "--lost", action="store_true", help="Only those whose workers all vanished."
    )
    parser.add_argument("--failed", action="store_true", help="Only those that failed.")
    parser.add_argument("--older-than", type=float, metavar="HOURS")
    parser.add_argument("--newer-than", type=float, metavar="HOURS")


def run(command: BaseCommand, *, act: str, **options: Any) -> None:
    """See the package."""
    using = options["database"] or next((parse(*each).using for each in backends()), "default")
    acts: dict[str, Callable[..., None]] = {
        "list": list_letters,
        "show": show,
        "redrive": move,
        "discard": move,
    }
    acts[act](command, using, act=act, **options)


def matching(using: str, options: dict[str, Any]) -> QuerySet[DeadLetter]:
    """The dead letters that *options* ask for."""
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


def in_words(options: dict[str, Any]) -> str:
    """The filters of *options*, for the record."""
    names = ("queue", "tenant", "id", "task", "error", "lost", "failed", "older_than", "newer_than")
    asked = {name.replace("_", "-"): options[name] for name in names}
    return " ".join(
        f"--{name}" if value is True else f"--{name} {value}"
        for name, value in asked.items()
        if value is not None and value is not False
    )


def list_letters(
    command: BaseCommand, using: str, *, each: bool, limit: int, exit_code: bool, **options: Any
) -> None:
    letters = matching(using, options)
    rows = list(one_by_one(letters, limit) if each else grouped(letters, limit))
    if options["json"]:
        write_json(command, rows)
    else:
        command.stdout.write(table(rows) if rows else "no dead letters")
    if rows and exit_code:
        sys.exit(SOME_STAYED)


def grouped(letters: QuerySet[DeadLetter], limit: int) -> Iterator[dict[str, Any]]:
    rows = letters.order_by().values("queue", "path", "fingerprint")
    counted = rows.annotate(count=Count("pk"), newest=Max("visible_at"), oldest=Min("visible_at"))
    for row in counted.order_by("-count", "queue", "path", "fingerprint")[:limit]:
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


def show(command: BaseCommand, using: str, *, id: str, **options: Any) -> None:
    letters = matching(using, options)
    found = list(letters.filter(task_id=id)[:2]) or list(by_life(letters, id))
    if not found:
        raise CommandError(f"no dead letter {id!r} in {using!r}")
    if len(found) > 1:
        raise CommandError(f"several queues or tenants have {id!r}: give --queue and --tenant")
    store, [task] = store_for(using), found
    letter = dead_letter(task.record, store.history([task.life]), store.now())
    if options["json"]:
        write_json(command, facts_of(letter) | {"queue": task.queue})
    else:
        command.stdout.write(told(task.queue, letter))


def by_life(letters: QuerySet[DeadLetter], text: str) -> QuerySet[DeadLetter]:
    life = as_life(text)
    return letters.filter(life=life) if life else letters.none()


def facts_of(letter: Letter) -> dict[str, Any]:
    return {
        "life": letter.life,
        "id": letter.id,
        "tenant": letter.tenant,
        "task": letter.path,
        "attempts": letter.attempts,
        "error": letter.error,
        "dead since": letter.at,
        "failures": [
            {
                "round": attempt.round,
                "attempt": attempt.attempt,
                "token": attempt.token,
                "worker": attempt.worker,
                "started": attempt.started_at,
                "ended": attempt.ended_at,
                "outcome": attempt.outcome,
                "error": attempt.error,
            }
            for attempt in letter.failures
        ],
    }


def told(queue: str, letter: Letter) -> str:
    facts = facts_of(letter)
    failures = facts.pop("failures")
    lines = [f"queue: {queue}", *(f"{name}: {shown(value)}" for name, value in facts.items()), ""]
    last = failures[-1]["error"] if failures else None
    for failure in failures:
        failure["error"] = (failure["error"] or {}).get("summary", "")
    trace = last and (last.get("traceback") or last.get("message"))
    return "\n".join([*lines, table(failures), *(["", trace] if trace else [])])


def move(command: BaseCommand, using: str, *, act: str, **options: Any) -> None:
    chosen = in_words(options)
    if bool(chosen) == options["all"]:
        raise CommandError("say which by a filter, or --all")
    letters = matching(using, options)
    count = letters.count()
    if options["dry_run"]:
        answer(command, options, {"dry run": True, "selected": count})
        return
    if count and not options["yes"] and not agreed(f"{act} {count} dead letter{pluralize(count)}"):
        raise CommandError("nothing was moved")
    batch = batches.begin(
        letters,
        verb="cancel" if act == "discard" else act,
        by=who(options["by"]),
        reason=options["reason"],
        chosen=chosen or "--all",
        rate=options.get("rate"),
        letters=True,
    )
    batch = with_progress(batch, sys.stderr)
    skipped = dict(batches.reasons(batch))
    answer(
        command,
        options,
        {"batch": batch.pk, "moved": batch.moved, "skipped": batch.skipped},
        skipped,
    )
    if batch.skipped:
        sys.exit(SOME_STAYED)


def agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise CommandError("nobody to ask: give --yes")
    return input(f"{question}? [y/N] ").strip().lower() in {"y", "yes"}


def with_progress(batch: Batch, stream: TextIO) -> Batch:
    """Go on until it is done; on a terminal with a bar. Interrupted, workers go on with it."""
    while batch.done_at is None:
        batch = batches.go_on(batch, seconds=SECONDS_PER_STEP)
        if stream.isatty():
            full = BAR_CHARACTERS * batch.passed // max(1, batch.total)
            bar = "█" * full + "░" * (BAR_CHARACTERS - full)
            stream.write(f"\r{bar} {batch.passed}/{batch.total}")
            stream.write("\n" if batch.done_at else "")
            stream.flush()
    return batch


def answer(
    command: BaseCommand,
    options: dict[str, Any],
    facts: dict[str, Any],
    skipped: dict[str, int] | None = None,
) -> None:
    if options["json"]:
        write_json(command, facts | ({"why": skipped} if skipped else {}))
        return
    command.stdout.write(", ".join(f"{name}: {shown(value)}" for name, value in facts.items()))
    for why, count in (skipped or {}).items():
        command.stdout.write(f"{count:>8} stayed: {why}")


def write_json(command: BaseCommand, value: Any) -> None:
    command.stdout.write(json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2))


def table(rows: list[dict[str, Any]]) -> str:
    """*rows* in columns, each as wide as it has to be."""
    lines = [list(rows[0]), *([shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def shown(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat(sep=" ", timespec="seconds"))
    return "" if value is None else str(value)
