"""Updates of a site's own rows that a stale worker can't make: they keep the last fencing token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import router, transaction
from django.db.models import Q, QuerySet

from .errors import LeaseLostError, LostReason
from .lease import Lease

if TYPE_CHECKING:
    from .worker.context import CurrentLease

FIELD: Final = "fencing_token"


def fenced(lease: Lease | CurrentLease, *, field: str = FIELD) -> Fence:
    """Updates under *lease*, of rows of any model that keeps the last token it was written under.

    Args:
        lease: as claim or poll returned it, or ``current_lease()``.
        field: the model's: ``BigIntegerField(null=True)``.
    """
    return Fence(lease if isinstance(lease, Lease) else lease.lease, field)


class Fence:
    """See fenced()."""

    def __init__(self, lease: Lease, field: str) -> None:
        self.lease = lease
        self.field = field

    def update(self, rows: QuerySet[Any], /, **values: Any) -> int:
        """``rows.update(**values)``, all or nothing, unless a newer token has written there.

        Not whether the lease is live: a token is newer or it is not, in any database and without
        asking the queue. The same token may write as often as it likes.

        Returns:
            How many rows were written.

        Raises:
            LeaseLostError: superseded: a newer token has written one of *rows*; none was changed.
            ObjectDoesNotExist: there is no such row (the model's own ``DoesNotExist``).
        """
        asked: Any = rows  # of rows that belong to an object, the hints say in which database it is
        using = asked._db or router.db_for_write(rows.model, **asked._hints)
        token = self.lease.token
        older = Q(**{self.field: None}) | Q(**{f"{self.field}__lte": token})
        with transaction.atomic(using=using):
            rows = rows.using(using)
            written = rows.filter(older).update(**values, **{self.field: token})
            # A statement that waited for a newer token's commit passed that row over.
            if rows.filter(**{f"{self.field}__gt": token}).exists():
                raise LeaseLostError(self.lease, LostReason.SUPERSEDED)
        if not written:
            raise rows.model.DoesNotExist(f"no such {rows.model._meta.verbose_name}")
        return written
