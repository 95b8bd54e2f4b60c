"""The catalogues of translations: what the sources say, and what each language has for it.

``make messages`` brings them up to date: new strings come in untranslated, or with a guess marked
fuzzy, strings that are gone go, and the compiled files are written. No gettext has to be installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Final

from babel import Locale
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

PACKAGE: Final = Path(__file__).resolve().parents[1] / "django_leasequeue"
LOCALE: Final = PACKAGE / "locale"
KEYWORDS: Final = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy"), None),
    **dict.fromkeys(("ngettext", "ngettext_lazy"), (1, 2)),
    **dict.fromkeys(("pgettext", "pgettext_lazy"), ((1, "c"), 2)),
    **dict.fromkeys(("npgettext", "npgettext_lazy"), ((1, "c"), 2, 3)),
}
PARTS: Final = re.compile(r"%\(\w+\)[sd]|%[sd]|{\w+}|<[^>]+>")
NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The rest of a header, instants and names, would change with each renewal, or say nothing.
HEADER: Final = re.compile(
    rb'^"(?!Language:|Plural-Forms|MIME-Version|Content-T)[A-Z][\w-]+: .*\\n"\n', re.M
)


def languages() -> list[str]:
    return sorted(folder.name for folder in LOCALE.iterdir())


def path_of(language: str, suffix: str = "po") -> Path:
    return LOCALE / language / "LC_MESSAGES" / f"django.{suffix}"


def in_sources() -> Catalog:
    """What the package's code and templates have to say."""
    catalog = Catalog(charset="utf-8")
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".html"):
            name = str(path.relative_to(PACKAGE.parent))
            for _line, text, notes, context in extract("python", code_of(path), KEYWORDS):
                catalog.add(text, locations=[(name, 0)], auto_comments=notes, context=context)
    return catalog


def code_of(path: Path) -> BytesIO:
    """Python with the strings of *path*; made of a template, without what is no indentation."""
    text = path.read_text()
    if path.suffix == ".html":
        text = "\n".join(line.strip() for line in templatize(text, origin=str(path)).split("\n"))
    return BytesIO(text.encode())


def translated(language: str) -> Catalog:
    with path_of(language).open("rb") as file:
        return read_po(file, locale=language, abort_invalid=True)


def compiled(language: str) -> Catalog:
    with path_of(language, "mo").open("rb") as file:
        return read_mo(file)


def renew(language: str, sources: Catalog) -> Catalog:
    """Bring a language's two files up to date; what there is of it then."""
    known = path_of(language).exists()
    catalog = translated(language) if known else Catalog(language, fuzzy=False)
    catalog.fuzzy = False
    catalog.header_comment = f"# django-leasequeue in {Locale.parse(language).english_name}."
    catalog.update(sources, update_header_comment=False)
    catalog.creation_date = catalog.revision_date = NEVER  # else the compiled file has today's
    text = BytesIO()
    write_po(text, catalog, width=100, include_lineno=False, ignore_obsolete=True)
    path_of(language).parent.mkdir(parents=True, exist_ok=True)
    path_of(language).write_bytes(HEADER.sub(b"", text.getvalue()))
    with path_of(language, "mo").open("wb") as file:
        write_mo(file, catalog)
    return catalog


def faults(language: str, sources: Catalog) -> Iterator[str]:
    """What keeps a language's catalogue from being complete."""
    catalog, ready = translated(language), compiled(language)
    for message in sources:
        if message.id and key(message) not in keys(catalog):
            yield f"not in the catalogue: {message.id}"
    for message in filter(lambda message: message.id, catalog):
        if key(message) not in keys(sources):
            yield f"not in the sources: {message.id}"
        if message.fuzzy or not all(strings(message)):
            yield f"untranslated: {message.id}"
        if not all(parts(said) in map(parts, ids(message)) for said in strings(message)):
            yield f"other placeholders or tags: {message.id}"
        said = ready.get(message.id, message.context)
        if not said or strings(said) != strings(message):
            yield f"not compiled: {message.id}"
    if len(ready) != len(catalog):
        yield "compiled from another catalogue"


def ids(message: Message) -> tuple[str, ...]:
    return (message.id,) if isinstance(message.id, str) else tuple(message.id)


def parts(text: str) -> list[str]:
    """What a translation has to keep, in any order."""
    return sorted(PARTS.findall(text))


def key(message: Message) -> tuple[object, object]:
    return message.context, message.id


def keys(catalog: Catalog) -> set[tuple[object, object]]:
    return {key(message) for message in catalog}


def strings(message: Message) -> tuple[str, ...]:
    """Its translations, one for each plural form."""
    said = message.string or ""
    return (said,) if isinstance(said, str) else tuple(said)


def main() -> None:
    sources = in_sources()
    for language in languages():
        catalog = renew(language, sources)
        wanting = [m for m in catalog if m.id and (m.fuzzy or not all(strings(m)))]
        print(f"{path_of(language)}: {len(catalog)} messages, {len(wanting)} to translate")


if __name__ == "__main__":
    main()
