"""Plant each fault in a copy of its own, and see that its tests fail there.

python -m tests.mutants              all of them
python -m tests.mutants heartbeat    those with the word in their names
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from .copies import PACKAGE, a_server, copy_to
from .planted import PLANTED, Fault

AT_ONCE: Final = 3
PYTEST: Final = (sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:randomly")
ALL_PASSED, SOME_FAILED = 0, 1  # pytest's exit statuses


def main(words: Sequence[str]) -> int:
    faults = [fault for fault in PLANTED if all(word in fault.name for word in words)]
    with a_server() as url, tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        places = [Place(Path(folder) / str(number), url) for number in range(len(faults) + 1)]
        named = sorted({test for fault in faults for test in fault.tests})
        status, said = places.pop().run(named)
        if status != ALL_PASSED or not faults:
            sys.exit(f"the tests have to pass before anything is planted:\n{said[-3000:]}")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            verdicts = list(pool.map(verdict_on, faults, places))
    caught = verdicts.count("")
    print(f"{caught} of {len(faults)} planted faults are caught by each test that has to.")
    return 0 if caught == len(faults) else 1


class Place:
    """A copy of the project in *folder*, with test databases that no other copy uses."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = f"{url.rpartition('/')[0]}/mutant_{folder.name}_{os.getpid()}"

    def plant(self, fault: Fault) -> None:
        file = self.folder / PACKAGE / fault.file
        file.write_text(file.read_text().replace(fault.old, fault.new))

    def run(self, tests: Sequence[str], fault: Fault | None = None) -> tuple[int, str]:
        """Pytest's exit status, and what it said."""
        copy_to(self.folder)
        if fault:
            self.plant(fault)
        ours = {"DATABASE_URL": self.url, "MARIADB_URL": ""}
        done = subprocess.run(
            [*PYTEST, *tests],
            cwd=self.folder,
            env=os.environ | ours,
            capture_output=True,
            text=True,
        )
        shutil.rmtree(self.folder)
        return done.returncode, done.stdout + done.stderr


def verdict_on(fault: Fault, place: Place) -> str:
    """Empty where all of the fault's tests fail; else what is wrong."""
    status, said = place.run(fault.tests, fault)
    verdict = ""
    if status != SOME_FAILED:
        verdict = "NOT CAUGHT" if status == ALL_PASSED else f"pytest broke: {said[-2000:]}"
    elif f"{len(fault.tests)} failed" not in said or " error" in said.splitlines()[-1]:
        verdict = f"NOT CAUGHT by all: {said.splitlines()[-1]}"
    tests = " ".join(test.rpartition("::")[2] for test in fault.tests)
    print(f"{verdict or 'caught'}: {fault.name} ({fault.file}; {tests})", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
