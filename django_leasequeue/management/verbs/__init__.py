"""The verbs of ``manage.py leasequeue``, by name.

Each module has a HELP of one sentence, ``add_arguments(parser)``, and ``run(command, **options)``,
which does it and writes to the command's ``stdout``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from . import (
    advance_tokens,
    cancel,
    dead,
    erase,
    health,
    pause,
    prune,
    rebuild,
    resume,
    status,
    task,
    verify,
    workers,
)

VERBS: Final[Mapping[str, ModuleType]] = {
    "status": status,
    "workers": workers,
    "health": health,
    "pause": pause,
    "resume": resume,
    "task": task,
    "cancel": cancel,
    "dead": dead,
    "prune": prune,
    "erase": erase,
    "verify": verify,
    "rebuild": rebuild,
    "advance-tokens": advance_tokens,
}
