from __future__ import annotations

from pathlib import Path

import pytest

from example_project import bootstrap


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], bool]]:
    """What was installed, and whether from scratch; in a project of nothing but its papers."""
    made: list[tuple[set[str], bool]] = []
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / "installed.json")
    monkeypatch.setattr(bootstrap, "make", lambda extras, *, anew: made.append((extras, anew)))
    return made


def test_what_is_installed_is_not_installed_again(made: list[tuple[set[str], bool]]) -> None:
    bootstrap.python_with({"demo", "test"})
    bootstrap.python_with({"demo"})

    assert made == [({"demo", "test"}, True)]


def test_what_is_missing_is_added_and_nothing_is_lost(made: list[tuple[set[str], bool]]) -> None:
    bootstrap.python_with({"demo"})
    bootstrap.python_with({"postgres"})

    assert made[1:] == [({"demo", "postgres"}, False)]


def test_new_requirements_make_it_anew(made: list[tuple[set[str], bool]], tmp_path: Path) -> None:
    bootstrap.python_with({"demo"})
    (tmp_path / "constraints.txt").write_text("django==6.1.3")

    bootstrap.python_with({"demo"})

    assert made[1:] == [({"demo"}, True)]
