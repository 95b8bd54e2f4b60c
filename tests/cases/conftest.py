from __future__ import annotations

from tests.admin.desk import both_databases, desk, emails, log, make_desk, tasks
from tests.worker.conftest import fresh_tasks, no_nohup, postgres, site

__all__ = [
    "both_databases",
    "desk",
    "emails",
    "fresh_tasks",
    "log",
    "make_desk",
    "no_nohup",
    "postgres",
    "site",
    "tasks",
]
