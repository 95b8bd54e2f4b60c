"""How lists write what they show."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.conf import settings
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..models import Task, TaskTransition

BREAK: Final = "\u200b"


def local(moment: datetime) -> datetime:
    """*moment* in the zone that the site shows; a site without zones is shown UTC."""
    return timezone.localtime(moment) if settings.USE_TZ else moment


def to_the_second(moment: datetime) -> str:
    return date_format(local(moment), "Y-m-d H:i:s")


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def short_id(id: str, row: Task | TaskTransition) -> str:
    """The *id* of *row*'s task; of one that only repeats the life's UUID, the end, which tells
    more than the beginning: that is its time."""
    return f"…{id[-8:]}" if id == str(row.life) else shortened(id, 60)


def breakable(path: str) -> str:
    """A dotted *path* that may go on in the next line behind each dot."""
    return path.replace(".", f".{BREAK}")


def two_lines(first: object, *below: object, full: object = "") -> SafeString:
    """*first*, and under it, small, what of *below* isn't empty; *full* is told on hovering."""
    under = format_html_join("", ' <span class="under">{}</span>', ((b,) for b in below if b))
    return format_html('<span title="{}">{}</span>{}', full, first, under)
