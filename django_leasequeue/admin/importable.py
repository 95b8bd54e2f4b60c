"""Whether a task's code is still there, judged without importing any of it."""

from __future__ import annotations

import sys


def is_gone(path: str) -> bool:
    """Whether the function at the dotted *path* can't be there: no such module, or not in it.

    A module that isn't loaded is only looked for: what it would say is not known.
    """
    module, _, function = path.rpartition(".")
    if loaded := sys.modules.get(module):
        return function not in vars(loaded)
    try:
        return not is_found(module)
    except (ImportError, LookupError):
        return False  # a finder that needs the parent imported


def is_found(module: str) -> bool:
    """Whether *module* and the packages around it have a file, found part by part."""
    name, places = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        specs = (finder.find_spec(name, places) for finder in sys.meta_path)
        spec = next(filter(None, specs), None) if part.isidentifier() else None
        if spec is None:
            return False
        places = spec.submodule_search_locations
    return True
