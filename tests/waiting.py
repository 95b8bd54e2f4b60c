"""Work in another thread, and waiting for a condition instead of for luck."""

from __future__ import annotations

from django_leasequeue.testing.conformance.threads import in_thread, wait_for

__all__ = ["in_thread", "wait_for"]
