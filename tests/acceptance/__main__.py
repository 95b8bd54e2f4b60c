"""Fetch the suite, and run it on each database."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import django

from example_project import devdb

ROOT: Final = Path(__file__).resolve().parents[2]


def main() -> None:
    if django.VERSION < (6, 0):
        sys.exit("NOT RUN: Django has task backends from 6.0 on; for older ones see tests/backend.")
    with tempfile.TemporaryDirectory() as folder:
        fetch_suite(Path(folder))
        with postgresql() as url:
            statuses = [run_suite(Path(folder), url), run_suite(Path(folder), "sqlite:///unused")]
    sys.exit(any(statuses))


def fetch_suite(folder: Path) -> None:
    """Put the package ``tasks`` of Django's tests into *folder*."""
    version = django.get_version()
    print(f"Fetching the source distribution of Django {version} ...", flush=True)
    # Only Django's own: what its metadata are read with may come as wheels.
    options = ["--quiet", "--no-deps", "--no-binary", "django", "--dest", str(folder)]
    pip = [sys.executable, "-m", "pip", "download", *options, f"django=={version}"]
    if subprocess.run(pip).returncode:
        sys.exit("NOT RUN: pip could not fetch Django's tests; that takes a network.")
    [archive] = folder.glob("*.tar.gz")
    prefix = f"{archive.name.removesuffix('.tar.gz')}/tests/"
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            if member.name.startswith(f"{prefix}tasks/"):
                member.name = member.name.removeprefix(prefix)
                source.extract(member, folder, filter="data")


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of the database that was asked for, else of a new server's."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    cluster = devdb.start(ROOT, keep=False)
    try:
        print(f"A private {cluster.programs}", flush=True)
        yield cluster.url
    finally:
        cluster.close()


def run_suite(folder: Path, url: str) -> int:
    """The exit status of the suite on the database at *url*."""
    environment = os.environ | {"DATABASE_URL": url, "PYTHONPATH": f"{folder}:{ROOT}"}
    return subprocess.run(
        [sys.executable, "-m", "tests.acceptance.suite"], cwd=folder, env=environment
    ).returncode


if __name__ == "__main__":
    main()
