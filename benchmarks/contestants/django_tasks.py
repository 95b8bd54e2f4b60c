from __future__ import annotations

from typing import TYPE_CHECKING

import django

from benchmarks.marks import mark

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task
def noop(number: int) -> None:
    mark(number)
