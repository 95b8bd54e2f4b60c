from __future__ import annotations

from tests.admin.desk import both_databases, desk, emails, make_desk

__all__ = ["both_databases", "desk", "emails", "make_desk"]
