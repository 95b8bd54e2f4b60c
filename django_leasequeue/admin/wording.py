"""How lists write what they show."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.utils import timezone
from django.utils.formats import date_format


def local(moment: datetime) -> datetime:
    """*moment* in the zone that the site shows; a site without zones is shown UTC."""
    return timezone.localtime(moment) if settings.USE_TZ else moment


def to_the_second(moment: datetime) -> str:
    return date_format(local(moment), "Y-m-d H:i:s")


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
