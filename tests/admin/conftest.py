from __future__ import annotations

from tests.admin.desk import both_databases, desk, emails, log, make_desk, tasks

__all__ = ["both_databases", "desk", "emails", "log", "make_desk", "tasks"]
