"""Whether the queues work, for probes: as ``manage.py leasequeue health``, and as a view.

The view tells names of queues, no task's: put it where your probes reach it, as in
``path("health/queues/", django_leasequeue.health.view)``. It answers 200, or 503, and the problems
as JSON; ``?queue=emails&oldest=60`` asks as the command's options do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse

from .conf import serving
from .overview import Overview, QueueView, overview, served_databases
from .overview.wording import span
from .policy import seconds
from .validation import name

OLDEST_SECONDS: Final = 300.0


@dataclass(frozen=True, kw_only=True)
class Health:
    """What was looked at, and what is wrong; nothing wrong is health."""

    looked_at: Sequence[str]
    problems: Sequence[str]

    @property
    def healthy(self) -> bool:
        return not self.problems


def health(
    using: str,
    *,
    queues: Sequence[str] | None = None,
    oldest: float = OLDEST_SECONDS,
    workers: bool = True,
    worker: str | None = None,
) -> Health:
    """Look at the queues of a database.

    Args:
        queues: these; None: all of it.
        oldest: seconds that a visible task may have waited; a paused queue's may wait for ever.
        workers: whether somebody has to be alive: for each of *queues*, or for any where they
            aren't named.
        worker: the one of this name has to be alive; no other is minded then.
    """
    try:
        seen = overview(using, only=queues)
    except Error as error:
        why = " ".join(str(error).split())
        return Health(looked_at=(), problems=[f"the database {using!r} can't be reached: {why}"])
    problems = list(too_old(seen.queues, oldest))
    if worker is not None:
        alive = any(each.name == worker and each.alive for each in seen.workers)
        problems += [] if alive else [gone(worker)]
    elif workers:
        problems += missing(seen, queues)
    return Health(looked_at=[queue.name for queue in seen.queues], problems=problems)


def healths(
    places: Sequence[str],
    *,
    queues: Sequence[str] | None = None,
    worker: str | None = None,
    **bounds: Any,
) -> dict[str, Health]:
    """Look at several databases: at a queue where it is served, for a worker anywhere."""
    found: dict[str, Health] = {}
    for using in places:
        its = queues and [each for each in queues if using in places_of(each, places)]
        if its or not queues:
            found[using] = health(using, queues=its, worker=worker, **bounds)
    if worker is not None and any(gone(worker) not in each.problems for each in found.values()):
        for using, each in found.items():
            others = [problem for problem in each.problems if problem != gone(worker)]
            found[using] = replace(each, problems=others)
    return found


def places_of(queue: str, places: Sequence[str]) -> Sequence[str]:
    """Those of the databases *places* where *queue* is served; all, where it isn't known."""
    served = {options.using for options in serving(queue)}
    return [using for using in places if using in served] or places


def gone(worker: str) -> str:
    return f"the worker {worker!r} isn't alive"


def problems_of(found: Mapping[str, Health]) -> list[str]:
    """What is wrong, with the names of the databases where there are several."""
    return [
        f"{using}: {problem}" if len(found) > 1 else problem
        for using, each in found.items()
        for problem in each.problems
    ]


def too_old(queues: Iterable[QueueView], bound: float) -> Iterable[str]:
    for queue in queues:
        if not queue.paused and queue.oldest is not None and queue.oldest > bound:
            waited = f"a task has been visible for {span(queue.oldest)}"
            yield f"{queue.name}: {waited}, more than {span(bound)}"


def missing(seen: Overview, named: Sequence[str] | None) -> Iterable[str]:
    if named is None:
        if not any(worker.alive for worker in seen.workers):
            yield "no worker is alive"
        return
    for queue in seen.queues:
        if not queue.workers:
            yield f"{queue.name}: no worker is alive that serves it"


def view(request: HttpRequest) -> HttpResponse:
    """See the module."""
    try:
        oldest = seconds("oldest", float(request.GET.get("oldest", OLDEST_SECONDS)), minimum=0)
        queues = [name("queue", queue) for queue in request.GET.getlist("queue")] or None
    except ValueError as error:
        return JsonResponse({"healthy": False, "problems": [str(error)]}, status=400)
    problems = problems_of(healths(served_databases(), queues=queues, oldest=oldest))
    status = 503 if problems else 200
    answer = JsonResponse({"healthy": not problems, "problems": problems}, status=status)
    answer["Cache-Control"] = "no-store"
    return answer
