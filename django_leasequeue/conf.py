"""The settings: TASKS[alias]["OPTIONS"] of our backends, parsed. Unknown keys are errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from .errors import InvalidTaskError
from .policy import INTEGER_MAX, QueuePolicy, positive, whole
from .validation import PAYLOAD_BYTES_MAX

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
    """

    using: str = "default"
    policy: QueuePolicy = field(default_factory=QueuePolicy)
    queues: Mapping[str, QueuePolicy] = field(default_factory=dict)
    task_modules: tuple[str, ...] = ()
    poll_interval: float = POLL_INTERVAL
    listen_using: str | None = None
    payload_bytes_max: int = PAYLOAD_BYTES_MAX

    def policy_of(self, queue: str) -> QueuePolicy:
        """The limits of *queue*."""
        return self.queues.get(queue, self.policy)


def parse(options: Mapping[str, Any]) -> Options:
    """The OPTIONS of one backend.

    Raises:
        ImproperlyConfigured: an unknown key, or a value out of bounds.
    """
    known = {option.name for option in fields(Options)}
    if unknown := sorted(set(options) - known):
        raise ImproperlyConfigured(
            f"unknown OPTIONS {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    try:
        limits = dict(options.get("policy", {}))
        parsed = {
            "policy": QueuePolicy(**limits),
            "queues": {
                queue: QueuePolicy(**(limits | dict(own)))
                for queue, own in options.get("queues", {}).items()
            },
            "task_modules": names("task_modules", options.get("task_modules", ())),
            "poll_interval": positive("poll_interval", options.get("poll_interval", POLL_INTERVAL)),
            "payload_bytes_max": whole(
                "payload_bytes_max",
                options.get("payload_bytes_max", PAYLOAD_BYTES_MAX),
                1,
                INTEGER_MAX,
            ),
        }
        return Options(**(dict(options) | parsed))
    except (InvalidTaskError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"OPTIONS: {error}") from error


def names(option: str, value: Any) -> tuple[str, ...]:
    """*value*, a list of names; a lone string would be taken for a list of its letters."""
    if isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{option} must be a list of strings")
    return tuple(value)


def backends() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Our backends among TASKS: alias and configuration, in the order of the settings."""
    for alias, config in getattr(settings, "TASKS", {}).items():
        if getattr(import_string(config["BACKEND"]), "leases_tasks", False):
            yield alias, config


def options_for(queue: str) -> Options:
    """The options of the backend that serves *queue*; defaults where none names it."""
    open_to_all = Options()
    for _, config in backends():
        options = parse(config.get("OPTIONS", {}))
        served = config.get("QUEUES", ["default"])
        if queue in served:
            return options
        if not served:
            open_to_all = options
    return open_to_all
