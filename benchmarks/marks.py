"""What every contestant's task does: note its number and that it has begun. About 2 µs.

Each process has a file of its own, so that none waits for another.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Final

FOLDER: Final = "BENCH_MARKS"
RECORD: Final = struct.Struct("=qd")  # the number, time.monotonic(): one clock for all processes

files: dict[int, int] = {}  # by process: a fork must not write to its parent's


def mark(number: int) -> None:
    pid = os.getpid()
    if pid not in files:
        path = Path(os.environ[FOLDER], f"{pid}.marks")
        files[pid] = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(files[pid], RECORD.pack(number, time.monotonic()))


def count(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.marks")) // RECORD.size


def read(folder: Path) -> list[list[tuple[int, float]]]:
    """What each process has noted, in order."""
    return [list(RECORD.iter_unpack(file.read_bytes())) for file in folder.glob("*.marks")]


def clear(folder: Path) -> None:
    for file in folder.glob("*.marks"):
        file.unlink()
