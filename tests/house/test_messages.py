"""The catalogues of translations. `make messages` brings them up to date."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from babel.messages.catalog import Catalog

from tests.messages import KEYWORDS, PACKAGE, faults, in_sources, languages

EAGER: Final = ("gettext", "ngettext", "pgettext", "npgettext")


@pytest.fixture(scope="module")
def sources() -> Catalog:
    return in_sources()


def test_there_are_the_languages_that_we_promise() -> None:
    assert languages() == ["de", "es", "fr", "ja", "zh_Hans"]


def test_both_kinds_of_source_are_read(sources: Catalog) -> None:
    assert sources.get("Nothing waits.")  # of Python
    assert sources.get("Dry run")  # of a template
    assert sources.get(("%(count)s tenant", "%(count)s tenants"))
    assert sources.get("Cancel", "tasks")


@pytest.mark.parametrize("language", languages())
def test_a_catalogue_is_complete_and_compiled(language: str, sources: Catalog) -> None:
    """Everything that the sources say is translated, nothing else, with the same placeholders."""
    assert list(faults(language, sources)) == []


def test_what_is_to_be_translated_stands_there_whole_and_is_asked_for_in_time() -> None:
    """Not put together before it is looked up, and not looked up while a module is imported: there
    is no reader then."""
    found = [fault for path in PACKAGE.rglob("*.py") for fault in misused(path)]

    assert found == []


def misused(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for call in calls:
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in KEYWORDS:
            texts = call.args[: len(KEYWORDS[name] or (1,))]
            if not all(isinstance(text, ast.Constant) for text in texts):
                yield f"{path}:{call.lineno}: no literal"
            if name in EAGER and id(call) not in inside:
                yield f"{path}:{call.lineno}: looked up at import"
