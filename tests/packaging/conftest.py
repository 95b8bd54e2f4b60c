"""The package as it would be published, built once a session."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Built:
    sdist: Path
    wheel: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution, and the wheel made of it."""
    folder = tmp_path_factory.mktemp("built")
    build("sdist", ROOT, folder)
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        # As filter="data", which Python 3.11 learned only with 3.11.4.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)  # noqa: S202  made just now, by us
    build("wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)
    [wheel] = folder.glob("*.whl")
    return Built(sdist=sdist, wheel=wheel)


def build(target: str, source: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target]
    subprocess.run([*command, "--directory", folder], cwd=source, check=True, capture_output=True)
