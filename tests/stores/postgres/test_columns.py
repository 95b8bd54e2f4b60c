"""How a bulk enqueue is cut into statements."""

from __future__ import annotations

from django_leasequeue.stores.postgres import columns
from tests.builders import a_task


def test_large_payloads_are_stored_few_at_a_time() -> None:
    """The server refuses a statement of a gigabyte."""
    megabyte = '"' + "x" * 2**20 + '"'
    tasks = [a_task(str(number), payload=megabyte) for number in range(40)]

    chunks = list(columns.chunks(tasks))

    assert [task for chunk in chunks for task in chunk] == tasks
    assert max(len(chunk) for chunk in chunks) <= 16


def test_a_payload_larger_than_a_chunk_is_stored_alone() -> None:
    huge = '"' + "x" * columns.CHARACTERS_MAX + '"'

    assert [len(chunk) for chunk in columns.chunks([a_task("a", payload=huge), a_task("b")])] == [
        1,
        1,
    ]
