"""``manage.py leasequeue verify|rebuild|advance-tokens``: is the log the truth, and is it told?"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import pluralize

from django_leasequeue import audit
from django_leasequeue.audit import Step
from django_leasequeue.drift import Finding
from django_leasequeue.stores import store_for, tokens
from django_leasequeue.stores.base import Store

from ..terminal import DATABASE, Bar, argument, databases, verb, write_json

FINDINGS_MAX: Final = 1000  # in a report, which is one object; lines are written as they come
NUMBER_MAX: Final = 2**63 - 1
JSON: Final = argument(
    "--json",
    action="store_true",
    help=f"One object, with the first {FINDINGS_MAX} findings of each database.",
)


@verb(
    "Compare the queue's table with what the log folds into, and look for what is wrong in the "
    "log itself, beside live workers. Changes nothing; exits with 1 where there is drift.",
    *(JSON, DATABASE),
)
def verify(command: BaseCommand, asked: Namespace) -> None:
    walk(command, audit.verify, asked)


@verb(
    "Make the queue's table what the log folds into, wherever it isn't, beside live workers. "
    "Exits with 1 where drift is left: what is wrong in the log itself stays.",
    argument(
        "--delete-unlogged",
        action="store_true",
        help="Delete also tasks that the log knows nothing of. They may be all that is left of "
        "what was enqueued: without this they are named and kept.",
    ),
    *(JSON, DATABASE),
)
def rebuild(command: BaseCommand, asked: Namespace) -> None:
    walk(command, partial(audit.rebuild, unlogged=asked.delete_unlogged), asked)


@verb(
    "Let the sequence of fencing tokens go on behind every token in the queue's tables, so that "
    "none is given out a second time. After a dump was restored, or a replica that lagged took "
    "over, say --by: tokens were given out that these tables never saw.",
    argument("--by", type=int, default=0, metavar="N", help="Leave out that many numbers besides."),
    DATABASE,
)
def advance_tokens(command: BaseCommand, asked: Namespace) -> None:
    if asked.by < 0:
        raise CommandError("--by: tokens never go back")
    for using in databases(asked.database):
        to = max(tokens.given_out(using), tokens.standing(using)) + asked.by
        if to > NUMBER_MAX:
            raise CommandError(f"--by: no token is above {NUMBER_MAX}")
        tokens.advance(using, to)
        command.stdout.write(f"{using}: the next token is above {tokens.standing(using)}")


@dataclass(kw_only=True)
class Report:
    """What was seen on one database."""

    database: str
    lives: int = 0
    rows: int = 0
    tasks: int = 0
    seconds: float = 0.0
    drifts: Counter[str] = field(default_factory=Counter)
    mended: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many drifts are there still."""
        return self.drifts.total() - self.mended

    def add(self, step: Step) -> None:
        self.lives += step.lives
        self.rows += step.rows
        self.tasks += step.tasks
        self.drifts.update(str(finding.drift) for finding in step.findings)
        self.mended += sum(bool(finding.mended) for finding in step.findings)
        self.findings += step.findings[: FINDINGS_MAX - len(self.findings)]

    def told(self) -> dict[str, Any]:
        """As JSON takes it."""
        findings = [asdict(finding) for finding in self.findings]
        return vars(self) | {"drifts": dict(self.drifts), "findings": findings}

    def __str__(self) -> str:
        found = ", ".join(f"{count} {drift}" for drift, count in sorted(self.drifts.items()))
        mended = f"; {self.mended} mended" if self.mended else ""
        return (
            f"{self.database}: {self.rows} row{pluralize(self.rows)} of the log, "
            f"{self.lives} li{pluralize(self.lives, 'fe,ves')}, "
            f"{self.tasks} task{pluralize(self.tasks)} held, in {self.seconds:.1f} s: "
            f"{found or 'no drift'}{mended}"
        )


def walk(
    command: BaseCommand, steps_of: Callable[[Store], Iterable[Step]], asked: Namespace
) -> None:
    """Go through the databases that are meant, and tell.

    Raises:
        CommandError: there is drift that wasn't mended, or no such database.
    """
    reports = []
    for using in databases(asked.database):
        report = Report(database=using)
        reports.append(report)
        for finding in seen(command, report, steps_of(store_for(using))):
            if not asked.json:
                command.stdout.write(line(using, finding))
        if not asked.json:
            command.stdout.write(str(report))
    if asked.json:
        told = {"clean": not any(r.left for r in reports), "databases": [r.told() for r in reports]}
        write_json(command, told)
    if left := sum(report.left for report in reports):
        raise CommandError(f"drift: {left}")


def seen(command: BaseCommand, report: Report, steps: Iterable[Step]) -> Iterator[Finding]:
    """The findings of *steps*, which are counted in *report* and shown on a terminal."""
    began, bar = time.monotonic(), Bar(command, report.database)
    for step in steps:
        report.add(step)
        report.seconds = time.monotonic() - began
        if step.findings:
            bar.wipe()
        yield from step.findings
        bar.show(step.done)
    bar.wipe()


def line(using: str, finding: Finding) -> str:
    """One line of a terminal, whatever names tasks have."""
    parts: list[Any] = [f"{using}: {finding.drift}"]
    if finding.life:
        tenant = f" of {finding.tenant!r}" if finding.tenant else ""
        parts.append(f"{finding.queue} {finding.id!r}{tenant}, life {finding.life}")
    if finding.position:
        parts.append(f"at position {finding.position}")
    return ": ".join([*parts, finding.what]) + (f" ({finding.mended})" if finding.mended else "")
