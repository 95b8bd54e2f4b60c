"""What came of a run, as a page and a picture."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from benchmarks.measure import Answers

LIMIT: Final = "raw SQL"
OURS: Final = "django-leasequeue"
COLUMNS: Final = {
    "enqueue": "enqueue, one by one",
    "bulk": "enqueue, bulk",
    "drain1": "drain, 1 process",
    "drain2": "drain, 2 processes",
    "pick_up_p50_ms": "pick-up p50, ms",
    "pick_up_p99_ms": "p99, ms",
    "cpu_worker_us": "CPU a task: worker, µs",
    "cpu_server_us": "server, µs",
    "wal_bytes": "WAL a task, bytes",
    "statements": "statements a task",
}
RATIOS: Final = ("enqueue", "bulk", "drain1", "drain2", "pick_up_p50_ms", "pick_up_p99_ms")
NOTHING: Final = "\N{EN DASH}"
COMPUTING: Final = """
Tasks that compute, some 20 ms each, ours: {computing1:,.0f} a second by one process,
{computing2:,.0f} by `--processes 2`, {gain:.2f} times as many. The same work in bare processes,
without a queue: {bare1:,.0f} and {bare2:,.0f}, {bare:.2f} times as many; that is what this machine
has to give.
"""
PAGE: Final = """\
# Benchmarks

Made by `make bench`, which writes this page anew. All of it was measured in one run on one machine:
compare what stands side by side. Figures don't travel between machines, ratios mostly do.

{machine}

![How many no-op tasks a second are enqueued and drained](images/benchmarks.svg)

Tasks a second where nothing else is said; medians of {rounds} round{plural}. Meanwhile others on
the machine kept up to {others:.1f} of its cores busy.

{figures}
{problems}
Ours against the others (of rates more is better, of pick-up times less):

{ratios}
{computing}
## What was measured

- Each contestant by its own public interface, in processes, an environment and a database of its
  own, on a PostgreSQL with `fsync` on that was started for the run. They take turns: the first
  measurement of each, then the second, since a machine's speed may change within minutes. A task
  does nothing but write down its number and the time, some 2 µs.
- **Enqueue** is {one_by_one:,} calls in a row, each its own transaction; **bulk** {bulk:,} tasks by
  the contestant's bulk call.
- **Drain** begins with all tasks waiting and the tables analysed; the rate counts from when the
  last process has begun its first task.
- **Pick-up** is the time from the return of an enqueue to the begin of its task in an idle worker;
  {pick_ups} of them.
- **CPU**, **WAL** and **statements** are those of the drain by one process, `BEGIN` and `COMMIT`
  counted.
- **Raw SQL** is our row pattern and nothing else: psycopg, leases of 100, finished 100 at a time, a
  row of the log for each move; no retries, no results, no signals, no way to stop it.
- Redis keeps nothing on disk here: its tasks don't outlive it.

The programs are in `benchmarks/`. `make micro` measures parts of ours alone.
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """When and where, and how often."""

    date: str
    server: str
    rounds: int


def page(answers: Sequence[Answers], run: Run, sizes: dict[str, int]) -> str:
    by_name = {each.name: each for each in answers}
    return PAGE.format(
        machine=machine(dict(pair for each in answers for pair in each.versions.items()), run),
        rounds=run.rounds,
        plural="" if run.rounds == 1 else "s",
        others=max((each.figures.get("others", 0.0) for each in answers), default=0.0),
        figures=table(answers),
        problems=problems(answers),
        ratios=ratios(by_name),
        computing=computing(by_name[OURS]) if OURS in by_name else "",
        **sizes,
    )


def machine(versions: Mapping[str, str], run: Run) -> str:
    told = ", ".join(f"{package} {version}" for package, version in sorted(versions.items()))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{run.date} · {os.cpu_count()} cores ({processor()}), {memory:.0f} GB · "
        f"{platform.system()} {platform.release()} · PostgreSQL {run.server} · "
        f"Python {platform.python_version()} · {told}"
    )


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(answers: Sequence[Answers]) -> str:
    rows = [["", *COLUMNS.values()]]
    for each in filter(shown, answers):
        values = [figure(each.figures.get(column)) for column in COLUMNS]
        rows += [[each.name, *values]]
    return markdown(rows)


def shown(answers: Answers) -> bool:
    return bool(answers.figures)


def problems(answers: Sequence[Answers]) -> str:
    said = [f"- {each.name} {each.problem}" for each in answers if each.problem]
    return "\n".join(["", *said, ""]) if said else ""


def ratios(answers: dict[str, Answers]) -> str:
    ours = answers[OURS].figures if OURS in answers else {}
    rows = [["", *(COLUMNS[column] for column in RATIOS)]]
    for each in filter(shown, answers.values()):
        values = [ratio(ours.get(column), each.figures.get(column)) for column in RATIOS]
        if each.name != OURS:
            rows += [[f"ours / {each.name}", *values]]
    return markdown(rows)


def computing(ours: Answers) -> str:
    rates = ours.figures
    if "computing2" not in rates:
        return ""
    gain, bare = (rates[f"{kind}2"] / rates[f"{kind}1"] for kind in ("computing", "bare"))
    return COMPUTING.format(gain=gain, bare=bare, **rates)


def ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else NOTHING


def figure(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return NOTHING
    if value >= 100:
        digits = 10 ** max(0, len(str(int(value))) - 3)
        return f"{round(value / digits) * digits:,.0f}"
    return f"{value:.3g}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


# The picture

BAR, GAP, LEFT, WIDTH, PANEL_HEAD = 16, 6, 150, 760, 34
STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.head { font-weight: 600 }
.bar { fill: #8c959f } .ours { fill: #0a7d4f } .limit { fill: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .bar { fill: #6e7681 } .ours { fill: #3fb950 } .limit { fill: #373e47 }
}
"""


def picture(answers: Sequence[Answers]) -> str:
    """Bars of the rates, one panel a measurement, as SVG."""
    parts, top = [], 0
    for column in ("drain1", "drain2", "enqueue", "bulk"):
        bars = [(each.name, each.figures[column]) for each in answers if column in each.figures]
        parts.append(panel(COLUMNS[column], bars, top))
        top += PANEL_HEAD + len(bars) * (BAR + GAP) + GAP
    title = "<title>Tasks a second, side by side</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
    return "\n".join([head, title, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def panel(title: str, bars: Sequence[tuple[str, float]], top: int) -> str:
    longest = max((value for _, value in bars), default=1)
    room = WIDTH - LEFT - 80
    lines = [f'<text class="head" x="0" y="{top + 22}">{escape(title)}, tasks a second</text>']
    for place, (name, value) in enumerate(sorted(bars, key=lambda pair: -pair[1])):
        y = top + PANEL_HEAD + place * (BAR + GAP)
        kind = {OURS: "ours", LIMIT: "limit"}.get(name, "bar")
        width = max(1, value / longest * room)
        lines += [
            f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 12}">{figure(value)}</text>',
        ]
    return "\n".join(lines)
