"""The verbs of ``manage.py leasequeue``, by name.

Each has a HELP of one sentence, ``add_arguments(parser)``, and ``run(command, **options)``: it is
declared by ``terminal.verb``, or a module of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from ..terminal import Verb
from . import auditing, dead, operating, pruning, seeing, task

VERBS: Final[Mapping[str, Verb | ModuleType]] = {
    "status": seeing.status,
    "workers": seeing.workers,
    "health": seeing.health,
    "pause": operating.pause,
    "resume": operating.resume,
    "task": task.task,
    "cancel": operating.cancel,
    "dead": dead,
    "prune": pruning.prune,
    "erase": operating.erase,
    "verify": auditing.verify,
    "rebuild": auditing.rebuild,
    "advance-tokens": auditing.advance_tokens,
}
