"""The right to work on one task until its deadline, and its signed form for other processes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.core import signing

from .errors import InvalidTaskError

SALT: Final = "django_leasequeue.lease"
DECODER: Final = json.JSONDecoder()  # of our own text, around which there is nothing
UNSHOWN: Final = ("payload_text", "details_text")
INSTANTS: Final = ("leased_at", "deadline", "enqueued_at", "visible_since")


class Lease(NamedTuple):
    """One delivery of one task: whoever holds it may work until ``deadline``.

    Instants are the database's. ``seconds_left`` is how long the lease lasted when the database
    answered: measure what is left of it from the moment the call was *sent*, by the process's
    monotonic clock, never by comparing ``deadline`` with a wall clock. ``details`` are those of
    the last heartbeat, the attempt before included. ``renewed`` is False where a heartbeat found
    the task's row locked and stored nothing.

    ``seq`` is the task's number; it became visible, before it was claimed, at ``visible_since``;
    ``previous_token`` is that of the delivery before this one, None where there was none.

    A tuple, since a worker makes one for each task: a frozen dataclass takes ten times as long.
    """

    queue: str
    tenant: str
    id: str
    seq: int
    life: UUID
    token: int
    attempt: int
    max_attempts: int
    worker: str
    leased_at: datetime
    deadline: datetime
    max_lease: timedelta
    seconds_left: float
    enqueued_at: datetime
    visible_since: datetime
    previous_token: int | None = None
    dedupe_key: str | None = None
    priority: int = 0
    path: str = ""
    payload_text: str = "null"
    details_text: str | None = None
    renewed: bool = True

    def __repr__(self) -> str:
        """Without the site's data: what prints a lease may be a log."""
        shown = {name: value for name, value in self._asdict().items() if name not in UNSHOWN}
        return f"Lease({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __sentry_repr__(self) -> str:
        """For Sentry, which else tells each value of a tuple."""
        return repr(self)

    @property
    def payload(self) -> Any:
        """The task's payload, parsed anew at each call: nobody can change it for others."""
        return DECODER.raw_decode(self.payload_text)[0]

    @property
    def details(self) -> Any:
        """What the last heartbeat left, of this attempt or the one before; None where nothing."""
        return json.loads(self.details_text) if self.details_text else None

    @property
    def last_attempt(self) -> bool:
        """Whether no further delivery follows this one."""
        return self.attempt >= self.max_attempts

    def to_string(self, *, using: str = "default") -> str:
        """The lease as a signed string, without its payload.

        It is a bearer right to this one delivery, for processes that share the SECRET_KEY.
        Whether the lease is live is always asked of the database.

        Args:
            using: the alias of the queue's database.

        Raises:
            InvalidTaskError: *using* is no alias.
        """
        if not isinstance(using, str):
            raise InvalidTaskError("using must be an alias of DATABASES")
        facts = self._asdict() | {
            "using": using,
            "life": str(self.life),
            "max_lease": self.max_lease // timedelta(microseconds=1),
            **{name: getattr(self, name).isoformat() for name in INSTANTS},
        }
        del facts["payload_text"], facts["details_text"], facts["renewed"]
        return signing.dumps(facts, salt=SALT)

    @classmethod
    def from_string(cls, text: str, *, now: datetime, using: str = "default") -> Lease:
        """The lease that ``to_string`` wrote.

        Args:
            now: the database's clock (``Queue.now()``).
            using: the alias of the queue's database.

        Raises:
            InvalidTaskError: not signed by this site, for another database, no lease, or older
                than the longest life its lease could have had.
        """
        if not isinstance(text, str):
            raise InvalidTaskError("the lease string must be a string")
        if getattr(now, "tzinfo", None) is None:
            raise InvalidTaskError("now must be an aware datetime, as Queue.now() answers it")
        try:
            facts = signing.loads(text, salt=SALT)
        except (signing.BadSignature, UnicodeEncodeError):  # half a surrogate pair has no bytes
            raise InvalidTaskError("the lease string was not signed by this site") from None
        try:
            signed_for, lease = facts.pop("using"), cls.of(facts)
            ends_at = lease.leased_at + lease.max_lease
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise InvalidTaskError("the lease string holds no lease that could be") from None
        if signed_for != using:
            raise InvalidTaskError(f"the lease string is not for the database {using!r}")
        if now >= ends_at:
            raise InvalidTaskError("the lease string has expired")
        return lease

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Lease:
        return cls(
            **facts
            | {
                "life": UUID(facts["life"]),
                "max_lease": timedelta(microseconds=facts["max_lease"]),
                **{name: datetime.fromisoformat(facts[name]) for name in INSTANTS},
            }
        )
