"""Settings of the tests: the example's, on several databases at once.

``default`` is the PostgreSQL that ``example_project.pytest_devdb`` started, or DATABASE_URL;
``sqlite`` is a file, because threads must not share an in-memory database's one connection;
``mariadb`` is there where the plugin found one to start, or MARIADB_URL names it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("SECRET_KEY", "of the tests")

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES, TASKS, env, with_two_writers

FOLDER = Path(tempfile.mkdtemp(prefix="leasequeue-tests-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)

DATABASES["sqlite"] = with_two_writers(
    {"ENGINE": "django.db.backends.sqlite3", "NAME": str(FOLDER / "unused.sqlite3")}
)
if MARIADB_URL := env.str("MARIADB_URL", default=""):
    import pymysql  # needs no compiler, unlike mysqlclient; a site chooses for itself

    pymysql.install_as_MySQLdb()
    DATABASES["mariadb"] = env.db_url_config(MARIADB_URL) | {"TEST": {"DEPENDENCIES": []}}
for alias in DATABASES:
    if DATABASES[alias]["ENGINE"].endswith("sqlite3"):
        DATABASES[alias]["TEST"] = {"NAME": str(FOLDER / f"{alias}.sqlite3"), "DEPENDENCIES": []}

for place in DATABASES:
    TASKS[f"worker on {place}"] = {
        "BACKEND": "django_leasequeue.backend.LeaseQueueBackend",
        "QUEUES": ["urgent", "work"],
        "OPTIONS": {
            "using": place,
            "task_modules": ["tests.worker"],
            "policy": {"max_attempts": 3, "backoff_base": 0},
        },
    }

    TASKS[f"forgetful worker on {place}"] = {
        "BACKEND": "django_leasequeue.backend.LeaseQueueBackend",
        "QUEUES": ["urgent", "work"],
        "OPTIONS": {"using": place, "task_modules": ["tests.worker"], "retention": 0.5},
    }

DATABASE_ROUTERS = ["tests.databases.NamedDatabases"]
MEDIA_ROOT = str(FOLDER / "media")
# The real ones are slow on purpose; no test is about passwords.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# pytest collects what is logged; a handler made here would outlive the stream it writes to.
LOGGING = {}

# "forgetful worker" is the same queues with retention: one of the two is used at a time.
SILENCED_SYSTEM_CHECKS = ["leasequeue.W001"]
