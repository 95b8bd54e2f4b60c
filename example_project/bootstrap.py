"""Makes ``.venv-example`` with all that the example and its tests need. Standard library only."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv-example"
PYTHON: Final = VENV / "bin" / "python"
STAMP: Final = VENV / "installed.json"
CONSTRAINTS: Final = ROOT / "example_project" / "constraints.txt"
# Under a virtual environment's Python the one below it: it must not depend on another one.
BASE: Final = getattr(sys, "_base_executable", sys.executable)

QUIET: Final = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "UV_COMPILE_BYTECODE": "1",  # as pip does: each start of Django would compile it anew
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_SYSTEM_CERTS": "1",  # the machine's own certificates, as pip does
}


def python_with(extras: set[str]) -> str:
    """The path of a Python that has the project and *extras*, installed if they aren't yet.

    Nothing is fetched where ``.venv-example`` is as it should be. Two that come at once take turns.
    """
    with (ROOT / ".venv-example.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fingerprint, installed = fingerprint_now(), set[str]()
        if STAMP.exists():
            stamp = json.loads(STAMP.read_text())
            installed = set(stamp["extras"]) if stamp["fingerprint"] == fingerprint else set()
        if not extras <= installed:
            print("Installing what is needed into .venv-example (once) ...", flush=True)
            make(extras | installed, anew=not installed)
            stamp = {"fingerprint": fingerprint, "extras": sorted(extras | installed)}
            STAMP.write_text(json.dumps(stamp))
    return str(PYTHON)


def fingerprint_now() -> str:
    """Changes with what is asked for, with the Python, and with the place of the project."""
    asked = (ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
    return hashlib.sha256(asked + f"{sys.version} {BASE} {ROOT}".encode()).hexdigest()


def make(extras: set[str], *, anew: bool) -> None:
    if anew:
        # Without pip: Debian's python3 has venv, but not what puts pip into one.
        subprocess.run([BASE, "-m", "venv", "--clear", "--without-pip", VENV], check=True)
    STAMP.unlink(missing_ok=True)
    what = ["--editable", f"{ROOT}[{','.join(sorted(extras))}]", "--constraint", str(CONSTRAINTS)]
    for install in installers():
        if subprocess.run([*install, "--quiet", *what], env=os.environ | QUIET).returncode == 0:
            return
    sys.exit("Could not install: that takes a network, and pip or (on Debian) python3-venv.")


def installers() -> Iterator[list[str]]:
    """Commands that install into ``.venv-example``, the next one where one fails."""
    if uv := shutil.which("uv"):
        yield [uv, "pip", "install", "--python", str(PYTHON)]
    if subprocess.run([BASE, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        yield [BASE, "-m", "pip", "--python", str(PYTHON), "install"]
    elif subprocess.run([PYTHON, "-m", "ensurepip"], capture_output=True).returncode == 0:
        yield [str(PYTHON), "-m", "pip", "install"]
