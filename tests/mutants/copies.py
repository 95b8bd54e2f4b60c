"""Copies of the project, to make mistakes in, and a server for their tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from example_project import devdb

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGE: Final = "django_leasequeue"
COPIED: Final = (PACKAGE, "example_project", "tests", "docs", "pyproject.toml", "manage.py")


@contextmanager
def a_server() -> Iterator[str]:
    """DATABASE_URL, else a PostgreSQL of our own."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    cluster = devdb.start(ROOT, keep=False)
    try:
        yield cluster.url
    finally:
        cluster.close()


def copy_to(folder: Path) -> None:
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
