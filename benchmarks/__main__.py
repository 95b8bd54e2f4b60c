from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import growth, measure, report
from benchmarks.contestants import EVERYBODY
from benchmarks.measure import Answers, measured, redis
from benchmarks.server import Server, server
from example_project.bootstrap import ROOT

MICRO: Final = Path(__file__).parent / "micro.py"
# Without what pytest does at each line that is logged.
PYTEST: Final = ("-m", "pytest", "-p", "no:logging", "-p", "no:randomly", "-qs")


def main() -> None:
    if sys.argv[1:2] == ["micro"]:
        os.execv(sys.executable, [sys.executable, *PYTEST, str(MICRO), *sys.argv[2:]])
    if sys.argv[1:2] == ["growth"]:
        return growth.main(sys.argv[2:])
    asked = options()
    chosen = [each for each in EVERYBODY if not asked.only or each.module in asked.only]
    rounds: list[list[Answers]] = []
    with server() as postgres, redis() as variables:
        for number in range(asked.rounds):
            answers = [Answers(each.name) for each in chosen]
            take_turns(
                measured(each, postgres, found, environment=variables, scale=asked.scale)
                for each, found in zip(chosen, answers, strict=True)
            )
            for found in answers:
                tell(number, found)
            rounds.append(answers)
        publish(rounds, postgres, Path(asked.docs))


def take_turns(goers: Iterable[Iterator[None]]) -> None:
    """Let each of *goers* make a step, and again, until all have ended."""
    going = deque(goers)
    while going:
        goer = going.popleft()
        with suppress(StopIteration):
            next(goer)
            going.append(goer)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Ours, its peers and bare SQL.")
    names = ", ".join(each.module for each in EVERYBODY)
    parser.add_argument("--rounds", type=int, default=1, help="Their medians count.")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"Repeatable: {names}.")
    parser.add_argument("--scale", type=float, default=1.0, help="Below 1 to try the harness.")
    parser.add_argument("--docs", default=str(ROOT / "docs"), help="Where the page goes.")
    return parser.parse_args()


def tell(number: int, found: Answers) -> None:
    shown = ", ".join(f"{name} {report.figure(value)}" for name, value in found.figures.items())
    print(f"round {number + 1}: {found.name}: {shown} {found.problem}", flush=True)


def publish(rounds: list[list[Answers]], postgres: Server, docs: Path) -> None:
    """Write the page and its picture."""
    answers = [medians(each) for each in zip(*rounds, strict=True)]
    today = datetime.now(UTC).date().isoformat()  # noqa: TID251  a date for readers
    run = report.Run(date=today, server=postgres.version, rounds=len(rounds))
    sizes = {
        "one_by_one": measure.ONE_BY_ONE,
        "bulk": measure.BULK,
        "pick_ups": measure.PICK_UPS,
    }
    (docs / "images").mkdir(parents=True, exist_ok=True)
    (docs / "benchmarks.md").write_text(report.page(answers, run, sizes))
    (docs / "images" / "benchmarks.svg").write_text(report.picture(answers))
    print(f"Written: {docs / 'benchmarks.md'}")


def medians(answers: tuple[Answers, ...]) -> Answers:
    """One contestant's answers of all rounds as one."""
    names = dict.fromkeys(name for each in answers for name in each.figures)
    figures = {
        name: median(each.figures[name] for each in answers if name in each.figures)
        for name in names
    }
    problem = next((each.problem for each in answers if each.problem), "")
    return Answers(answers[0].name, answers[0].versions, figures, problem)


if __name__ == "__main__":
    main()
