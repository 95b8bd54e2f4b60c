from __future__ import annotations

from tests.admin.desk import both_databases, desk, emails, make_desk
from tests.worker.conftest import fresh_tasks, postgres, site

__all__ = [
    "both_databases",
    "desk",
    "emails",
    "fresh_tasks",
    "make_desk",
    "postgres",
    "site",
]
