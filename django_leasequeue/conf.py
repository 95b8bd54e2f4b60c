"""The settings: TASKS[alias]["OPTIONS"] of our backends, parsed. Unknown keys are errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

from .errors import InvalidTaskError
from .policy import INTEGER_MAX, QueuePolicy, positive, whole
from .transitions import FORGETTABLE, Kind
from .validation import PAYLOAD_BYTES_MAX, name

POLL_INTERVAL: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a backend's OPTIONS may say.

    Args:
        using: alias of the queue's database.
        policy: limits for all of the backend's queues.
        queues: limits of single queues, by name; what they leave out comes from ``policy``.
        task_modules: modules outside the installed apps whose tasks may be run.
        poll_interval: seconds between two looks where no notification comes.
        listen_using: alias of a direct connection for LISTEN, where ``using`` goes through a
            transaction-pooling proxy; None: ``using``.
        payload_bytes_max: largest payload and result, in bytes of UTF-8.
        retention: seconds after which the log forgets, by kind; what isn't named it never does.
    """

    using: str = DEFAULT_DB_ALIAS
    policy: QueuePolicy = field(default_factory=QueuePolicy)
    queues: Mapping[str, QueuePolicy] = field(default_factory=dict)
    task_modules: tuple[str, ...] = ()
    poll_interval: float = POLL_INTERVAL
    listen_using: str | None = None
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    retention: Mapping[Kind, float] = field(default_factory=dict)

    def policy_of(self, queue: str) -> QueuePolicy:
        """The limits of *queue*."""
        return self.queues.get(queue, self.policy)


def parse(alias: str, config: Mapping[str, Any]) -> Options:
    """The OPTIONS of the backend TASKS[*alias*].

    Raises:
        ImproperlyConfigured: an unknown key, a value of another type or out of bounds, or limits
            for a queue that the backend doesn't serve.
    """
    with clear(alias):
        options = mapping("OPTIONS", config.get("OPTIONS", {}))
        known = {option.name for option in fields(Options)}
        if unknown := sorted(map(str, options.keys() - known)):
            raise TypeError(
                f"unknown OPTIONS {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        return parsed(options, queues_of(alias, config))


def queues_of(alias: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The queues that the backend TASKS[*alias*] serves; none: any.

    Raises:
        ImproperlyConfigured: not a list of names.
    """
    with clear(alias):
        queues = names("QUEUES", config.get("QUEUES", ["default"]))
        return tuple(name("queue", queue) for queue in queues)


@contextmanager
def clear(alias: str) -> Iterator[None]:
    """Say of what is wrong where it stands."""
    try:
        yield
    except (InvalidTaskError, TypeError) as error:
        raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from error


def parsed(given: Mapping[str, Any], served: tuple[str, ...]) -> Options:
    limits = mapping("policy", given.get("policy", {}))
    own = mapping("queues", given.get("queues", {}))
    if strangers := [str(queue) for queue in own if served and queue not in served]:
        raise TypeError(f"OPTIONS['queues'] has {', '.join(strangers)}, which QUEUES has not")
    size = given.get("payload_bytes_max", PAYLOAD_BYTES_MAX)
    return Options(
        using=text("using", given.get("using", DEFAULT_DB_ALIAS)),
        policy=QueuePolicy(**limits),
        queues={
            name("queue", queue): QueuePolicy(**limits | mapping(f"queues[{queue!r}]", its))
            for queue, its in own.items()
        },
        task_modules=names("task_modules", given.get("task_modules", ())),
        poll_interval=positive("poll_interval", given.get("poll_interval", POLL_INTERVAL)),
        listen_using=given.get("listen_using") and text("listen_using", given["listen_using"]),
        payload_bytes_max=whole("payload_bytes_max", size, 1, INTEGER_MAX),
        retention=retention_of(given.get("retention")),
    )


def mapping(option: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{option} must be a dictionary, not {value!r}")
    return dict(value)


def text(option: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{option} must be a string, not {value!r}")
    return value


def retention_of(value: Any) -> dict[Kind, float]:
    """Seconds by kind; a number counts for all that can be forgotten, None for nothing."""
    if not isinstance(value, Mapping):
        return {} if value is None else retention_of(dict.fromkeys(FORGETTABLE, value))
    if unknown := sorted(map(str, set(value) - FORGETTABLE)):
        known = ", ".join(sorted(FORGETTABLE))
        raise TypeError(f"retention of {', '.join(unknown)}; what can be forgotten is {known}")
    return {
        Kind(kind): positive("retention", seconds)
        for kind, seconds in value.items()
        if seconds is not None
    }


def names(option: str, value: Any) -> tuple[str, ...]:
    """*value*, a list of names; a lone string would be taken for a list of its letters."""
    if not isinstance(value, list | tuple | set | frozenset):
        raise TypeError(f"{option} must be a list of strings, not {value!r}")
    return tuple(text(f"each of {option}", each) for each in value)


def backends() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Our backends among TASKS: alias and configuration, in the order of the settings.

    One that can't be imported harms those only who use it: Django tells them.
    """
    for alias, config in getattr(settings, "TASKS", {}).items():
        with suppress(ImportError):
            if getattr(import_string(config["BACKEND"]), "leases_tasks", False):
                yield alias, config


def broken_backends() -> Iterator[tuple[str, ImportError]]:
    """Those of TASKS, maybe ours, that can't be imported: alias and why."""
    for alias, config in getattr(settings, "TASKS", {}).items():
        try:
            import_string(config["BACKEND"])
        except ImportError as error:
            yield alias, error


def serving(queue: str) -> list[Options]:
    """The options of the backends that name *queue*, else of those that take any."""
    every = [(queues_of(*each), parse(*each)) for each in backends()]
    named = [options for served, options in every if queue in served]
    return named or [options for served, options in every if not served]


def options_for(queue: str, using: str | None = None) -> Options:
    """The options of the backend that serves *queue*; defaults where none does.

    A backend that names the queue goes before those that take any, one in the database *using*
    before the others; of several that are left, the first one of TASKS is taken.

    Raises:
        ImproperlyConfigured: *using* isn't said, and they are in different databases.
    """
    every = serving(queue)
    here = [options for options in every if using in (None, options.using)] or every
    if using is None and len({options.using for options in here}) > 1:
        places = ", ".join(repr(options.using) for options in here)
        raise ImproperlyConfigured(
            f"TASKS has the queue {queue!r} in several databases: give using=, one of {places}"
        )
    return here[0] if here else Options()
