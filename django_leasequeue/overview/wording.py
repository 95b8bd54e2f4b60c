"""Times and numbers as people read them at a glance."""

from __future__ import annotations

from typing import Final

from django.utils.formats import number_format

UNITS: Final = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def span(seconds: float) -> str:
    """A duration in the two units that matter: "3 min 12 s"."""
    whole = round(seconds)
    for size, unit, lesser_size, lesser in UNITS:
        if whole >= size:
            rest = whole % size // lesser_size
            return f"{whole // size} {unit} {rest} {lesser}" if rest else f"{whole // size} {unit}"
    return f"{whole} s" if whole or seconds < 0.05 else f"{one_place(seconds)} s"


def number(value: float) -> str:
    """A count or a rate, short."""
    if 0 < value < 0.1:
        return f"<{one_place(0.1)}"
    return f"{value:.0f}" if value >= 10 or value == round(value) else one_place(value)


def one_place(value: float) -> str:
    """*value* with one place behind the decimal point, or comma, of the reader's language."""
    return number_format(f"{value:.1f}")  # which alone would cut, not round
