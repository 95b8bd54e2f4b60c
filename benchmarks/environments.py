"""The contestants' virtual environments, made once, with the newest versions of what they need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.contestants import Contestant

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
FOLDER: Final = CACHE / "django-leasequeue" / f"bench-{sys.version_info[0]}{sys.version_info[1]}"


def python_of(contestant: Contestant) -> str:
    """The path of a Python that has what *contestant* requires.

    Raises:
        CalledProcessError: it can't be installed.
    """
    if not contestant.requires:
        return sys.executable
    folder = FOLDER / contestant.module
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"Installing {contestant.name} into {folder} (once) ...", flush=True)
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", folder, "--without-pip"], check=True
        )
        subprocess.run([*installer(python), "--quiet", *contestant.requires], check=True)
        (folder / "ready").touch()
    return str(python)


def installer(python: Path) -> list[str]:
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", str(python)]
    subprocess.run([python, "-m", "ensurepip"], check=True, capture_output=True)
    return [str(python), "-m", "pip", "install", "--quiet"]
