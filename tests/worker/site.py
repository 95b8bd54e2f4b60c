"""Settings of a worker in a process of its own: the tests', on the databases of the test run."""

from __future__ import annotations

import json
import os
from typing import Any

from example_project.settings import env
from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS, TASKS

for alias, name in json.loads(os.environ["TEST_DATABASES"]).items():
    DATABASES[alias]["NAME"] = name

if "LISTEN_URL" in os.environ:
    DATABASES["direct"] = env.db_url("LISTEN_URL") | {"NAME": DATABASES["default"]["NAME"]}
    options: Any = TASKS["worker on default"]["OPTIONS"]
    options["listen_using"] = "direct"

if "POOL" in os.environ:
    DATABASES["default"].setdefault("OPTIONS", {})["pool"] = json.loads(os.environ["POOL"])

INSTALLED_APPS += os.environ.get("FURTHER_APPS", "").split()
