"""What happened to a task, for a site's own receivers: docs/signals-and-logging.md.

Each is sent at most once, after the move was committed, by the process that wrote it down, with
``send_robust``: a receiver that raises is logged by Django and doesn't disturb the queue. Connect
without a ``sender``: it is whichever class of this package wrote the move down.

Arguments of the first three: ``using`` (database alias), ``queue``, ``tenant``, ``id``, ``life``
(UUID), ``attempt``, ``token``, ``worker``, ``error`` (mapping with type, message, traceback,
summary; None where the worker vanished).
"""

from __future__ import annotations

from django.dispatch import Signal

task_retried = Signal()
"""An attempt failed, or its worker vanished, and another one follows."""

task_dead = Signal()
"""The task is a dead letter now."""

task_redriven = Signal()
"""An operator made a dead letter ready again. ``error`` is None."""

lease_lost = Signal()
"""A call was refused because its lease isn't live. Arguments: ``lease``, ``reason``."""

attempt_ended = Signal()
"""A worker has recorded how an attempt ended. Arguments: ``lease``, ``outcome`` (acked, retried,
dead, dropped, released, or lost where the lease was), ``seconds`` that the task ran, ``error``
(the exception, None where there was none)."""

task_duplicate = Signal()
"""An enqueue met a held id or a live key; sent at once, before any commit. Arguments: ``using``,
``queue``, ``task`` (the EnqueuedTask that is held)."""
