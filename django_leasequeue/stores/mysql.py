"""What MariaDB and MySQL say by number: most of it their drivers call OperationalError."""

from __future__ import annotations

from typing import Final

DUPLICATE_KEY: Final = 1062
# Deadlock; "record has changed since last read".
CONFLICTS: Final = frozenset({1213, 1020})
UNAVAILABLE: Final = frozenset(
    {
        *(2002, 2003, 2005, 2006, 2012, 2013, 2026, 2055),  # not reached, or lost on the way
        *(1040, 1044, 1045, 1049, 1129, 1130, 1203, 1226, 1698),  # reached, and not let in
        *(1053, 1080, 1158, 1159, 1160, 1161, 1927, 4031),  # sent away
        *(1205, 1317, 1969, 3024),  # not answered in time
        *(1290, 1792, 1836),  # read-only: the primary before a fail-over
        *(1021, 1037, 1041, 1114),  # no room left
    }
)


def number(error: Exception) -> int:
    """The server's or the driver's number of *error*; 0 where it has none."""
    said = error.args[0] if error.args else 0
    return said if isinstance(said, int) else 0
