"""The README's "In your own site", to the letter: a new site, the wheel, a worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import django
import pytest

from .conftest import ROOT, Built

SECTION: Final = re.search(
    r"^## In your own site\n(.*?)^## ", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
)
KINDS: Final = """
from django_leasequeue.models import TaskTransition
print(*TaskTransition.objects.order_by("id").values_list("kind", flat=True))
"""


@dataclass(frozen=True)
class Site:
    """An empty Django project with an app, in a virtual environment of its own."""

    folder: Path
    environment: dict[str, str]

    def sh(self, command: str) -> str:
        """What *command* says; it has to work."""
        ran = subprocess.run(
            ["sh", "-ec", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if ran.returncode and "connection broken by" in ran.stdout and not os.environ.get("CI"):
            pytest.skip(f"no network for {command}")
        assert ran.returncode == 0, f"{command}\n{ran.stdout}"
        return ran.stdout

    def shell(self, code: str) -> str:
        return self.sh(f"python manage.py shell -c '{code}'")

    def append(self, name: str, code: str) -> None:
        [path] = list(self.folder.glob(f"*/{name}")) or [self.folder / name]
        with path.open("a") as file:
            file.write(f"\n{code}")


@pytest.fixture
def site(built: Built, tmp_path: Path) -> Site:
    """A site, and a pip that takes the built wheel for what the index has under its name."""
    subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", tmp_path / "venv"], check=True)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(
        f"django-leasequeue @ {built.wheel.as_uri()}\nDjango=={django.get_version()}\n"
    )
    folder = tmp_path / "site"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name in {"HOME", "LANG", "TMPDIR"}}
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    ours = {
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(constraints),
        "PIP_RETRIES": "1",
    }
    return Site(folder, kept | pip | ours)


def blocks(language: str) -> list[str]:
    assert SECTION
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION[1], re.DOTALL | re.MULTILINE)


def pieces(block: str) -> list[tuple[str, str]]:
    """What stands under which comment at the margin."""
    return re.findall(r"^# (.*)\n((?:(?!# ).*\n?)*)", block, re.MULTILINE)


@pytest.mark.timeout(300)
def test_a_stranger_follows_the_readme_and_the_task_runs(site: Site) -> None:
    install, run = blocks("sh")
    [code] = blocks("python")
    [settings, tasks, enqueue] = pieces(code)

    assert install.startswith("pip install django-leasequeue ")
    site.sh(install)
    start_a_shop_on_sqlite(site)
    site.append(*settings)
    site.append(*tasks)
    migrate, worker = run.splitlines()
    site.sh(migrate)
    site.shell(f"""
from types import SimpleNamespace
from shop.tasks import send_receipt
order = SimpleNamespace(pk=7)
{enqueue[1]}""")
    said = site.sh(f"{worker} --drain")

    assert "acked queue=default" in said
    assert site.shell(KINDS.replace("'", '"')).split()[-3:] == ["enqueued", "leased", "acked"]


def start_a_shop_on_sqlite(site: Site) -> None:
    """What "your own site" has before it reads the README, and what that says of SQLite."""
    assert SECTION
    said = re.search(r"On SQLite set\s`(OPTIONS) = ({.*?})`", SECTION[1])
    assert said
    site.sh("django-admin startproject mysite . && python manage.py startapp shop")
    site.append(
        "settings.py",
        f'INSTALLED_APPS += ["shop"]\nDATABASES["default"]["{said[1]}"] = {said[2]}\n',
    )
