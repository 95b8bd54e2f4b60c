"""Try small changes to the code, one by one, and say which of them no test notices.

python -m tests.mutants.sweep stores/folding worker/names      all changes to these files
python -m tests.mutants.sweep --sample 30 --seed 1 sql/        30 of each file, always the same ones

A change is tried by the tests that reach the function or the SQL file it is in, the quickest first,
until one fails. Which those are is found out by running the tests once, and kept until code or
tests are changed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import environ
import psycopg

from .changes import Change, changes_of
from .copies import PACKAGE, ROOT, a_server
from .forks import ALL_PASSED, DATABASE, SOME_FAILED, homes, move_in, prepare

FOLDERS: Final = ["words", "stores", "promises", "commands", "backend", "worker", "cases"]
KEPT: Final = ROOT / ".pytest_cache" / "reached"
QUICK: Final = 40  # tests that are tried before the files of the others are so much as imported
REPEATS: Final = 3  # of a change that a test noticed which fails without it, too
TOO_SLOW: Final = 10.0  # seconds that a test may take to be tried at all

Reached = dict[str, dict[str, float]]  # the tests that reach each place, and their seconds


@dataclass(frozen=True)
class Trial:
    change: Change
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    trial: Trial
    noticed_by: str
    """Empty where all tests passed."""

    def __str__(self) -> str:
        change = self.trial.change
        told = change.told((ROOT / PACKAGE / change.file).read_bytes())
        if self.noticed_by:
            return f"noticed: {told}\n    by {self.noticed_by}"
        if not self.trial.tests:
            return f"NOT REACHED by a test: {told}"
        return f"SURVIVED {len(self.trial.tests)} tests: {told}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="sweep", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="in the files' names; none: all of the package")
    parser.add_argument("--sample", type=int, default=sys.maxsize, help="changes of each file")
    parser.add_argument("--tests", nargs="*", default=FOLDERS, help="folders or files of tests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=90, help="of tests for one change")
    options = parser.parse_args(arguments)
    changes = list(chosen(options.words, options.sample, options.seed))
    prepare()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    verdicts: list[Verdict] = []
    with (
        a_server() as url,
        tempfile.TemporaryDirectory("sweep", ignore_cleanup_errors=True) as folder,
    ):
        try:
            with get_context("fork").Pool(options.processes, move_in, (folder, url)) as pool:
                reached = which_reach(pool, test_files(options.tests))
                trials = [Trial(each, tests_of(each, reached, options.seconds)) for each in changes]
                for verdict in pool.imap(verdict_on, trials):
                    print(verdict, flush=True)
                    verdicts.append(verdict)
        finally:
            summarise(verdicts)
            drop_databases(url)
    return 0


def chosen(words: Sequence[str], sample: int, seed: int) -> Iterator[Change]:
    for path in sorted([*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / PACKAGE).rglob("*.sql")]):
        file = str(path.relative_to(ROOT / PACKAGE))
        if "migrations/" not in file and (not words or any(word in file for word in words)):
            changes = changes_of(file, path.read_bytes())
            picked = random.Random(f"{seed} {file}").sample(changes, min(sample, len(changes)))
            yield from sorted(picked, key=changes.index)


def which_reach(pool: Pool, files: Sequence[str]) -> Reached:
    kept = KEPT / f"{crc32(' '.join(files).encode()):08x}.jsonl"
    if not kept.exists() or kept.stat().st_mtime < newest_source(files):
        print(f"Finding out which tests reach what: {len(files)} files.", flush=True)
        shares = [files[number::12] for number in range(min(12, len(files)))]
        records = "".join(pool.imap_unordered(record_of, shares))
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_text(records)
    reached: Reached = defaultdict(dict)
    for line in kept.read_text().splitlines():
        test, passed, seconds, places = json.loads(line)
        if not passed:
            print(f"left out, it fails as it is: {test}")
        for place in places if passed and seconds < TOO_SLOW else ():
            reached[place][test] = seconds
            reached[place.partition(":")[0]][test] = seconds
    return reached


def test_files(names: Sequence[str]) -> list[str]:
    named = [ROOT / "tests" / name for name in names]
    found = [
        file for path in named for file in ([path] if path.suffix else path.rglob("test_*.py"))
    ]
    return sorted(str(file.relative_to(ROOT)) for file in found)


def newest_source(tests: Sequence[str]) -> float:
    code = [file for file in (ROOT / PACKAGE).rglob("*") if file.suffix in (".py", ".sql")]
    return max(file.stat().st_mtime for file in (*code, *(ROOT / test for test in tests)))


def record_of(files: Sequence[str]) -> str:
    """A line of JSON for each test of *files*, as ``plugins.Follower`` writes it."""
    [home] = homes
    record = home.folder / f"{Path(files[0]).stem}.jsonl"
    status = home.run("Follower", str(record), files, seconds=1200)
    if status not in (ALL_PASSED, SOME_FAILED):
        raise RuntimeError(f"pytest ended with {status}:\n{home.said.read_text()[-3000:]}")
    return record.read_text()


def tests_of(change: Change, reached: Reached, seconds: float) -> tuple[str, ...]:
    """The quickest ones that reach the change, as many as *seconds* are enough for."""
    chosen = []
    for test, takes in sorted(reached.get(change.place, {}).items(), key=lambda each: each[1]):
        seconds -= takes
        if seconds < 0:
            break
        chosen.append(test)
    return tuple(chosen)


def verdict_on(trial: Trial) -> Verdict:
    """Who noticed has to pass without the change: an earlier one may have spoilt the databases."""
    [home] = homes
    for _ in range(REPEATS):
        noticed_by = tried(trial)
        file, _, test = noticed_by.partition("::")
        if not test or home.run("Chosen", [noticed_by], [file]) == ALL_PASSED:
            return Verdict(trial, noticed_by)
        home.move()
    return Verdict(trial, "")


def tried(trial: Trial) -> str:
    """The test that failed with the change; empty where all passed."""
    [home] = homes
    change = trial.change
    source = (ROOT / PACKAGE / change.file).read_bytes()
    home.write(change.file, change.planted(source))
    try:
        for tests in filter(None, (trial.tests[:QUICK], trial.tests[QUICK:])):
            files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
            status = home.run("Chosen", tests, files)
            if status == SOME_FAILED:
                return (home.folder / "failed.txt").read_text()
            if status != ALL_PASSED:
                return f"everyone: pytest ended with {status}"
    finally:
        home.write(change.file, source)
    return ""


def drop_databases(url: str) -> None:
    named = environ.Env.db_url_config(url)
    where: dict[str, Any] = {
        key.lower(): named[key] or None for key in ("HOST", "PORT", "USER", "PASSWORD")
    }
    with psycopg.connect(dbname="postgres", autocommit=True, **where) as server:
        ours = server.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE %s", [f"test_{DATABASE}_%"]
        )
        for (name,) in ours.fetchall():
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def summarise(verdicts: Sequence[Verdict]) -> None:
    files: dict[str, list[bool]] = defaultdict(list)
    for verdict in verdicts:
        files[verdict.trial.change.file].append(bool(verdict.noticed_by))
    for file, noticed in {**files, "all": [bool(each.noticed_by) for each in verdicts]}.items():
        print(f"{file}: {sum(noticed)} of {len(noticed)} noticed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
