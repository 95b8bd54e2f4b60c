"""Which parts of the package a test enters, its processes too."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any, Final

PACKAGE: Final = Path(__file__).resolve().parents[2] / "django_leasequeue"
NOTES: Final = "PLACES_REACHED"
"""The environment variable that names the file which takes a line for each place."""

monitoring: Final[Any] = vars(sys).get("monitoring")  # 3.12 brought it; the types hold before, too


def follow() -> None:
    """Note each function of the package that is entered, and each SQL file that is read."""
    here = f"{PACKAGE}/"

    def note(place: str) -> None:
        if place.startswith(here):
            with Path(os.environ[NOTES]).open("a") as file:
                file.write(f"{place.removeprefix(here)}\n")

    def entered(code: CodeType, _offset: int) -> Any:
        note(f"{code.co_filename}:{code.co_qualname}")
        return monitoring.DISABLE  # until start_again

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith(".sql"):
            note(str(arguments[0]))

    monitoring.use_tool_id(monitoring.PROFILER_ID, "follow")
    monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.PY_START, entered)
    monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)
    sys.addaudithook(opened)


def start_again() -> None:
    """Note again what was noted before."""
    monitoring.restart_events()
