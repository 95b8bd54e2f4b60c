"""What ``verify`` and ``rebuild`` have in common: the walk, its progress, what is told of it."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from django_leasequeue.audit import Step
from django_leasequeue.drift import Finding
from django_leasequeue.management.terminal import add_database, databases
from django_leasequeue.stores import store_for
from django_leasequeue.stores.base import Store

FINDINGS_MAX: Final = 1000  # in a report, which is one object; lines are written as they come
BAR: Final = 40  # characters


def add_arguments(parser: ArgumentParser) -> None:
    """See the package."""
    add_database(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help=f"One object, with the first {FINDINGS_MAX} findings of each database.",
    )


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
            f"{self.database}: {self.rows} rows of the log, {self.lives} lives, {self.tasks} tasks "
            f"held, in {self.seconds:.1f} s: {found or 'no drift'}{mended}"
        )


def walk(
    command: BaseCommand,
    steps_of: Callable[[Store], Iterable[Step]],
    *,
    database: str | None,
    as_json: bool,
) -> None:
    """Go through the databases that are meant, and tell.

    Raises:
        CommandError: there is drift that wasn't mended, or no such database.
    """
    reports = []
    for using in databases(database):
        report = Report(database=using)
        reports.append(report)
        for finding in seen(command, report, steps_of(store_for(using))):
            if not as_json:
                command.stdout.write(line(using, finding))
        if not as_json:
            command.stdout.write(str(report))
    if as_json:
        told = {"clean": not any(r.left for r in reports), "databases": [r.told() for r in reports]}
        command.stdout.write(json.dumps(told, default=str, indent=2))
    if left := sum(report.left for report in reports):
        raise CommandError(f"drift: {left}")


def seen(command: BaseCommand, report: Report, steps: Iterable[Step]) -> Iterator[Finding]:
    """The findings of *steps*, which are counted in *report* and shown on a terminal."""
    began, shown = time.monotonic(), -1
    watched = command.stderr.isatty()
    for step in steps:
        report.add(step)
        report.seconds = time.monotonic() - began
        percent = int(step.done * 100)
        if watched and (step.findings or percent == 100):
            command.stderr.write("\r\x1b[K", ending="")
        yield from step.findings
        if watched and percent != shown and percent < 100:
            bar = "█" * (BAR * percent // 100)
            command.stderr.write(f"\r{report.database} {bar:░<{BAR}} {percent:3} %", ending="")
            shown = percent


def line(using: str, finding: Finding) -> str:
    """One line of a terminal, whatever names tasks have."""
    parts: list[Any] = [f"{using}: {finding.drift}"]
    if finding.life:
        tenant = f" of {finding.tenant!r}" if finding.tenant else ""
        parts.append(f"{finding.queue} {finding.id!r}{tenant}, life {finding.life}")
    if finding.position:
        parts.append(f"at position {finding.position}")
    return ": ".join([*parts, finding.what]) + (f" ({finding.mended})" if finding.mended else "")
