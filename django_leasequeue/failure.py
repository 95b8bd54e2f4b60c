"""What is kept of an exception: storable on every database, cut to a size, told apart by type.

Recording a failure may never fail itself: an exception may refuse to be printed, quote twenty
megabytes, or hold text that no database stores.
"""

from __future__ import annotations

import re
import traceback
from functools import lru_cache
from typing import Any, Final

from .transitions import json_text
from .validation import storable_text

MESSAGE_CHARACTERS_MAX: Final = 4_000
TRACEBACK_CHARACTERS_MAX: Final = 16_000
SUMMARY_CHARACTERS_MAX: Final = 200
# What tells one occurrence of an error from the next: text in quotes (if cut, to the end),
# mail addresses, and whatever has a digit in it: numbers, ids, UUIDs, hex.
VARYING: Final = re.compile(
    r"""(?P<quoted> (?<!\w)' (?:[^']|(?<=\w)'(?=\w))* (?:'|$) | " [^"]* (?:"|$) )
      | [\w.+-]+ @ [\w.-]+
      | [\w-]* \d [\w-]* (?:[.,:]\d+)*""",
    re.VERBOSE,
)


def error_text(error: BaseException | str, *, note: str = "") -> str:
    """*error* as the JSON object that the log keeps: type, message, traceback, summary, note.

    Args:
        error: an exception, or a caller's own words.
        note: what the queue has to add, for example that a wait was clamped.
    """
    return json_text(error_facts(error) | ({"note": note} if note else {}))


def error_facts(error: BaseException | str) -> dict[str, Any]:
    if isinstance(error, str):
        kind, message, trace = "", error, ""
    else:
        kind, message, trace = type_path(error), printed(error), trace_of(error)
    message = storable_text(message, MESSAGE_CHARACTERS_MAX)
    return {"type": kind, "message": message, "traceback": trace, "summary": summary(kind, message)}


def own_wait(error: BaseException | str) -> Any:
    """The ``retry_after`` that an exception of the site's may bring; None: it has none to tell."""
    try:
        return getattr(error, "retry_after", None)
    except Exception:  # noqa: BLE001  a property of a user's own may raise anything
        return None


def type_path(error: BaseException) -> str:
    return storable_text(f"{type(error).__module__}.{type(error).__qualname__}", 300)


def printed(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001  a __str__ of a user's own may raise anything
        return f"<the exception's text can't be had: {type(second).__name__}>"


def trace_of(error: BaseException) -> str:
    """The traceback, its end kept where it is too long: there the cause stands."""
    try:
        # Cut by frames first: a recursion error's thousand frames say nothing new.
        text = "".join(traceback.TracebackException.from_exception(error, limit=-50).format())
    except BaseException as second:  # noqa: BLE001
        return f"<the traceback can't be had: {type(second).__name__}>"
    if len(text) <= TRACEBACK_CHARACTERS_MAX:
        return storable_text(text, TRACEBACK_CHARACTERS_MAX)
    kept = storable_text(text[-TRACEBACK_CHARACTERS_MAX:], TRACEBACK_CHARACTERS_MAX)
    return f"[cut: {len(text)} characters] …{kept}"


def summary(kind: str, message: str) -> str:
    """One line for lists and logs."""
    short = kind.rpartition(".")[2]
    line = " ".join(message.split())
    told = f"{short}: {line}" if short and line else short or line
    return storable_text(told, SUMMARY_CHARACTERS_MAX)


@lru_cache(maxsize=1024)  # of a queue that fails, the errors are mostly the same few
def fingerprint(summary: str) -> str | None:
    """What *summary*, an error in one line, has in common with others of its kind; None: no error.

    ``ValueError: no order 17 of 'ada'`` and ``ValueError: no order 9 of 'bob'`` are both
    ``ValueError: no order # of '…'``.
    """
    kind, colon, message = summary.partition(":")
    if not colon or not kind.isidentifier():
        kind, colon, message = "", "", summary
    common = VARYING.sub(lambda found: "'…'" if found["quoted"] else "#", message)
    return f"{kind}{colon}{common}"[:SUMMARY_CHARACTERS_MAX] or None
