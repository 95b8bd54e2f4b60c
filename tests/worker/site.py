"""Settings of a worker in a process of its own: the tests', on the databases of the test run."""

from __future__ import annotations

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

for alias, name in json.loads(os.environ["TEST_DATABASES"]).items():
    DATABASES[alias]["NAME"] = name
