"""The promises of docs/guarantees.md and the tests that hold them keep to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SUITE: Final = ROOT / "django_leasequeue/testing/conformance"
NUMBER: Final = re.compile(r"\bG\d+\b")
ROW: Final = re.compile(r"^\| (G\d+) \| (.+) \| (.+) \|$", re.MULTILINE)
PROMISES: Final = ROW.findall((ROOT / "docs/guarantees.md").read_text())


def cited_in(file: Path) -> set[str]:
    return set(NUMBER.findall(file.read_text()))


def all_tests() -> Iterator[Path]:
    yield from SUITE.glob("*.py")
    yield from (ROOT / "tests").rglob("test_*.py")


def named(pattern: str) -> list[Path]:
    """The files that the third column means."""
    root, rest = (SUITE.parent, pattern) if pattern.startswith("conformance/") else (ROOT, pattern)
    return list(root.glob(rest))


def test_the_numbers_are_counted_from_one() -> None:
    assert [number for number, *_ in PROMISES] == [f"G{n + 1}" for n in range(len(PROMISES))]


@pytest.mark.parametrize(("number", "files"), [(number, files) for number, _, files in PROMISES])
def test_a_promise_is_held_by_the_tests_it_names(number: str, files: str) -> None:
    patterns = re.findall(r"`(.+?)`", files)

    assert patterns, f"{number} names no test"
    for pattern in patterns:
        assert any(number in cited_in(file) for file in named(pattern)), (
            f"{pattern} cites no {number}"
        )


def test_no_test_cites_a_promise_that_is_not_made() -> None:
    made = {number for number, *_ in PROMISES}
    unknown = {str(file): cited_in(file) - made for file in all_tests() if cited_in(file) - made}

    assert unknown == {}
