"""The verbs of ``manage.py leasequeue``, by name, as ``terminal`` declares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..terminal import Menu, Verb
from . import auditing, dead, operating, pruning, seeing, task

VERBS: Final[Mapping[str, Verb | Menu]] = {
    "status": seeing.status,
    "workers": seeing.workers,
    "health": seeing.health,
    "pause": operating.pause,
    "resume": operating.resume,
    "task": task.task,
    "cancel": operating.cancel,
    "dead": dead.dead,
    "prune": pruning.prune,
    "erase": operating.erase,
    "verify": auditing.verify,
    "rebuild": auditing.rebuild,
    "advance-tokens": auditing.advance_tokens,
}
