"""Run it; see the package's docstring."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys

import django

from tests.chaos.stage import SETTINGS, staged


def main() -> int:
    options = parser().parse_args()
    print(f"chaos: seed {options.seed}, {options.seconds:g} seconds of faults", flush=True)
    with staged(options.seed) as stage:
        os.environ |= {"DJANGO_SETTINGS_MODULE": SETTINGS, "DATABASE_URL": stage.cluster.url}
        django.setup()
        from tests.chaos.conduct import lines, run  # noqa: PLC0415  they need the settings

        report = run(
            stage, seconds=options.seconds, workers=options.workers, clients=options.clients,
            per_second=options.per_second,
        )  # fmt: skip
        print(f"on {stage.cluster.programs}, {options.workers} workers, {options.clients} clients")
        print("\n".join(lines(report)))
        if options.keep:
            shutil.copytree(stage.folder, options.keep, ignore=shutil.ignore_patterns(".devdb*"))
    # Whoever was still starting when it was told to stop had nothing to end in good order; but
    # nobody has to be killed.
    return int(-signal.SIGKILL in report.statuses or bool(report.violations))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m example_project chaos", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=180, help="of faults; default: %(default)s")
    add("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: any")
    add("--workers", type=int, default=5, help="processes; default: %(default)s")
    add("--clients", type=int, default=3, help="processes; default: %(default)s")
    add("--keep", metavar="FOLDER", help="copy the logs and the records there, to be read")
    add("--per-second", type=float, default=40, help="calls by all clients; default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
