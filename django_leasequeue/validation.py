"""What may be stored: JSON values, names, sizes. Pure; every store relies on it alike.

What can't be raises InvalidTaskError, which names the field or the path inside the value, and the
bound; never the value: it may be a secret.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypedDict
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from .errors import InvalidTaskError
from .transitions import json_text

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
DETAILS_BYTES_MAX: Final = 64 * 1024
DEPTH_MAX: Final = 200  # deeper than any sane payload, well inside every parser's limit
DELAY_MAX: Final = timedelta(days=3660)
LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)  # no zone writes that as the year 10000
INTEGER_BITS_MAX: Final = 14_284  # 4,300 digits: what Python reads back unless told otherwise
WHY_CHARACTERS_MAX: Final = 1_000  # a path is as long as the value's keys are
CHARACTERS_MAX: Final = {
    "queue": 100,
    "tenant": 100,
    "id": 200,
    "dedupe_key": 200,
    "worker": 200,
    "effect": 200,
    "path": 500,
    "by": 200,
    "reason": 1_000,
}
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")


class Why(TypedDict):
    """Who did something, and why, for the record."""

    by: str | None
    reason: str | None


def name(field: str, value: Any, *, empty: bool = False) -> str:
    """*value*, a name that every database stores byte for byte.

    Args:
        field: queue, tenant, id, dedupe_key, worker, effect or path.
        empty: whether the empty string is a name (it is one for tenants).
    """
    text = bounded(field, value)
    if not text and not empty:
        raise InvalidTaskError(f"{field} must not be empty")
    if CONTROL.search(text):
        raise InvalidTaskError(f"{field} must not contain control characters or lone surrogates")
    return text


def remark(field: str, value: Any) -> str | None:
    """*value*, what somebody says for the record; None: nothing."""
    if value is None:
        return None
    text = bounded(field, value)
    if UNSTORABLE.search(text):
        raise InvalidTaskError(f"{field} must not contain NUL characters or lone surrogates")
    return text


def remarks(by: Any, reason: Any) -> Why:
    """Both, as ``remark`` takes each."""
    return {"by": remark("by", by), "reason": remark("reason", reason)}


def bounded(field: str, value: Any) -> str:
    limit = CHARACTERS_MAX[field]
    if not isinstance(value, str):
        raise InvalidTaskError(f"{field} must be a string of at most {limit} characters")
    if len(value) > limit:
        raise InvalidTaskError(f"{field} has {len(value)} characters, at most {limit} are allowed")
    return str.__str__(value)  # of an enumeration's member its value, not what it prints


def items(field: str, value: Any) -> Iterable[Any]:
    """*value*, many of something."""
    if not isinstance(value, Iterable):
        kind = type(value).__name__
        raise InvalidTaskError(f"{field} must be a list or another iterable, not a {kind}")
    return value


def as_life(value: Any) -> UUID | None:
    """*value*, a UUID or the text of one; None where it is neither: no life has that name."""
    try:
        return UUID(str(value).strip())
    except ValueError:
        return None


def payload_text(value: Any, *, field: str = "payload", bytes_max: int = PAYLOAD_BYTES_MAX) -> str:
    """*value* as JSON text of at most *bytes_max* bytes of UTF-8."""
    try:
        check_json(value)
        text = json_text(value)
    except NotJson as found:
        where = f"{field} at {found.path}" if found.path else field
        raise InvalidTaskError(f"{where} is not JSON: {found}") from None
    except ValueError:  # an integer of more digits than this process may write
        raise InvalidTaskError(f"{field} holds a number that JSON text can't carry") from None
    size = len(text.encode())
    if size > bytes_max:
        raise InvalidTaskError(f"{field} has {size} bytes, at most {bytes_max} are allowed")
    return text


def details_text(details: Any) -> str:
    """Heartbeat details as JSON text."""
    return payload_text(details, field="details", bytes_max=DETAILS_BYTES_MAX)


class NotJson(ValueError):
    """What JSON, or a database, can't hold; where it is, innermost first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.steps: list[str] = []

    def under(self, step: str) -> NotJson:
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        return "".join(reversed(self.steps)).removeprefix(".")


def check_json(value: Any, depth: int = 0) -> None:
    """Walk *value*, and raise NotJson of the first thing that can't be held."""
    CHECKS.get(type(value), check_kin)(value, depth)


def check_kin(value: Any, depth: int) -> None:
    """*value*, whose class is none of JSON's, as the one that it derives from."""
    for kind, check in CHECKS.items():
        if isinstance(value, kind):
            return check(value, depth)
    raise NotJson(type(value).__name__)


def check_nothing(_: object, __: int) -> None:
    pass


def check_integer(value: int, _: int) -> None:
    if value.bit_length() > INTEGER_BITS_MAX:
        raise NotJson("an integer of more than 4300 digits")


def check_text(value: str, _: int) -> None:
    if not storable(value):
        raise NotJson("text with a NUL character or a lone surrogate")


def check_float(value: float, _: int) -> None:
    if not math.isfinite(value):
        raise NotJson("a float that isn't finite")


def check_object(value: dict[Any, Any], depth: int) -> None:
    check_depth(depth)
    for key, item in value.items():
        check_key(key)
        try:
            check_json(item, depth + 1)
        except NotJson as found:
            found.under(f".{key}")
            raise


def check_array(value: list[Any] | tuple[Any, ...], depth: int) -> None:
    check_depth(depth)
    for index, item in enumerate(value):
        try:
            check_json(item, depth + 1)
        except NotJson as found:
            found.under(f"[{index}]")
            raise


def check_depth(depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise NotJson(f"more than {DEPTH_MAX} levels")


# By class: to ask of each value what it is an instance of takes twice as long.
CHECKS: Final[dict[type, Callable[[Any, int], None]]] = {
    **{type(None): check_nothing, bool: check_nothing},
    **{int: check_integer, str: check_text, float: check_float},
    **{dict: check_object, list: check_array, tuple: check_array},
}


def storable(text: str) -> bool:
    """Whether every database stores *text*; most of it is known to do so four times as fast."""
    return (text.isascii() and "\0" not in text) or not UNSTORABLE.search(text)


def check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise NotJson(f"a key of type {type(key).__name__}")
    if not storable(key):
        shown = ascii(key)[1:-1]
        raise NotJson("a key with a NUL character or a lone surrogate").under(f".{shown}")


def instant(field: str, value: Any) -> datetime | timedelta | None:
    """*value* as an aware instant, a delay, or None.

    A naive datetime is local time of ``TIME_ZONE`` where ``USE_TZ`` is off. A delay that is over
    already is none.
    """
    if value is None:
        return None
    if isinstance(value, timedelta):
        if value > DELAY_MAX:
            raise InvalidTaskError(f"{field} must be at most {DELAY_MAX.days} days away")
        return max(value, timedelta(0))
    if not isinstance(value, datetime):
        raise InvalidTaskError(f"{field} must be a datetime or a timedelta")
    if settings.USE_TZ and timezone.is_naive(value):
        raise InvalidTaskError(f"{field} must be an aware datetime, because USE_TZ is on")
    with suppress(OverflowError):
        aware = timezone.make_aware(value) if timezone.is_naive(value) else value
        if (moment := aware.astimezone(UTC)) < LATEST:
            return moment
    raise InvalidTaskError(f"{field} must lie in the years 1 to 9998")


def storable_text(text: str, characters_max: int) -> str:
    """*text* made storable and cut, with a mark wherever that changed it."""
    clean = UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    if len(clean) <= characters_max:
        return clean
    return f"{clean[:characters_max]}… [cut: {len(clean)} characters]"


def result_text(value: Any, *, bytes_max: int = PAYLOAD_BYTES_MAX) -> str:
    """A task's return value as JSON text; what can't be stored is replaced by a marked note.

    The work is done when its result arrives, so a result never makes a task fail.
    """
    if value is None:
        return "null"  # most tasks answer nothing
    try:
        return payload_text(value, field="result", bytes_max=bytes_max)
    except (InvalidTaskError, RecursionError) as error:
        why = storable_text(str(error), WHY_CHARACTERS_MAX)
        kind = storable_text(type(value).__name__, WHY_CHARACTERS_MAX)
        return json.dumps({"unstorable_result": kind, "why": why})
