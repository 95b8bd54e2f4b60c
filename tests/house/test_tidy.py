"""What the pages say of the code is so: each module has its place, each link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import django_leasequeue

PACKAGE: Final = Path(django_leasequeue.__file__).parent
ROOT: Final = PACKAGE.parent
MAP: Final = (ROOT / "ARCHITECTURE.md").read_text()
NAMED: Final = set(re.findall(r"`([\w/]+)(?:\.py)?/?`", MAP))
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NOT_CODE: Final = {"__init__", "__pycache__", "locale", "static", "templates", "py"}


def test_every_module_has_its_place_in_the_architecture() -> None:
    modules = {path.stem for path in PACKAGE.iterdir()} - NOT_CODE

    assert modules - {name.split("/")[0] for name in NAMED} == set()


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|sql)|[\w/]+/sql/[\w.]*)`", MAP)
    gone = {name for name in named if not any(PACKAGE.glob(f"**/{name}"))}

    assert len(named) > 30
    assert gone == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_something(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#([\w-]*))?\)", page.read_text())
    near = [(page.parent / name, part) for name, part in links if "://" not in name]

    assert [target for target, _ in near if not target.exists()] == []
    parts = [(target, part) for target, part in near if part and target.suffix == ".md"]
    assert [each for each in parts if each[1] not in headings(each[0])] == []


def test_every_picture_is_shown_and_can_be_renewed() -> None:
    shown = {name for page in PAGES for name in re.findall(r"images/([\w.-]+)\)", page.read_text())}
    walks = "".join(walk.read_text() for walk in ROOT.glob("tests/browser/test_*.py"))
    taken = {f"{name}.png" for name in re.findall(r'look\(page, "([\w-]+)"\)', walks)}

    assert {path.name for path in ROOT.glob("docs/images/*")} == shown
    assert {name for name in shown if name.endswith(".png")} == taken


def headings(page: Path) -> set[str]:
    """The names by which headings of *page* are linked to."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in found}
