"""What has to be so before a worker claims anything."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections
from django.db.migrations.loader import MigrationLoader

from django_leasequeue.models import Task
from django_leasequeue.stores import lack_of_skip_locked, tokens


class CannotStartError(Exception):
    """The worker refuses to start, or to go on; the message says why in one line."""


def refuse_old_servers(using: str) -> None:
    """Look whether the server is one that Django and the claims can work with.

    Raises:
        CannotStartError: it isn't.
    """
    try:
        connections[using].ensure_connection()
    except NotSupportedError as error:
        raise CannotStartError(str(error)) from error
    if lack := lack_of_skip_locked(connections[using]):
        raise CannotStartError(lack)


def refuse_pending_migrations(using: str) -> None:
    """Look whether the queue's tables are those that this code works with.

    Raises:
        CannotStartError: they aren't.
    """
    loader = MigrationLoader(connections[using])
    app = Task._meta.app_label
    ours = {node for node in loader.graph.nodes if node[0] == app}
    pending = sorted(name for _, name in ours - loader.applied_migrations.keys())
    if pending:
        where = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
        raise CannotStartError(
            f"the queue's tables are not up to date ({', '.join(pending)}): "
            f"manage.py migrate {app}{where}"
        )


def refuse_used_tokens(using: str) -> None:
    """Look whether the next fencing token is a new one: a restored dump may have set them back.

    Raises:
        CannotStartError: it isn't.
    """
    if late := tokens.behind(using):
        stands, highest = late
        where = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
        raise CannotStartError(
            f"fencing tokens up to {highest} were given out, and the sequence stands at {stands}: "
            f"manage.py leasequeue advance-tokens{where}"
        )
