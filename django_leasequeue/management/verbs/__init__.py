"""The verbs of ``manage.py leasequeue``, by name.

Each module has a HELP of one sentence, ``add_arguments(parser)``, and ``run(command, **options)``,
which does it and writes to the command's ``stdout``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from . import advance_tokens, erase, prune, rebuild, verify

VERBS: Final[Mapping[str, ModuleType]] = {
    "prune": prune,
    "erase": erase,
    "verify": verify,
    "rebuild": rebuild,
    "advance-tokens": advance_tokens,
}
