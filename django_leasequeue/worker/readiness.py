"""What has to be so before a worker claims anything; what isn't raises CannotStartError."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections

from django_leasequeue.stores import lack_of_skip_locked, pending_migrations, tokens


class CannotStartError(Exception):
    """The worker refuses to start, or to go on; the message says why in one line."""


def refuse_unready(using: str) -> None:
    """Look at everything of the database *using* that has to be so."""
    refuse_old_servers(using)
    refuse_pending_migrations(using)
    refuse_used_tokens(using)


def refuse_old_servers(using: str) -> None:
    """Look whether the server is one that Django and the claims can work with."""
    try:
        connections[using].ensure_connection()
    except NotSupportedError as error:
        raise CannotStartError(str(error)) from error
    if lack := lack_of_skip_locked(connections[using]):
        raise CannotStartError(lack)


def refuse_pending_migrations(using: str) -> None:
    """Look whether the queue's tables are those that this code works with."""
    if pending := pending_migrations(using):
        raise CannotStartError(
            f"the queue's tables are not up to date ({', '.join(pending)}): "
            f"manage.py migrate leasequeue{where(using)}"
        )


def refuse_used_tokens(using: str) -> None:
    """Look whether the next fencing token is a new one: a restored dump may have set them back."""
    if late := tokens.behind(using):
        stands, highest = late
        raise CannotStartError(
            f"fencing tokens up to {highest} were given out, and the sequence stands at {stands}: "
            f"manage.py leasequeue advance-tokens{where(using)}"
        )


def where(using: str) -> str:
    return "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
