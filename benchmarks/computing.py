"""Work that never lets go of the interpreter, some 20 ms; as a program, without a queue."""

from __future__ import annotations

import sys
import time


def compute() -> int:
    return sum(n * n % 7 for n in range(300_000))


if __name__ == "__main__":
    begun = time.perf_counter()
    for _ in range(int(sys.argv[1])):
        compute()
    print(time.perf_counter() - begun)
