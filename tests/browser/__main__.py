"""Walk through the admin, and keep what its pages look like in docs/images."""

from __future__ import annotations

import os
import sys

import pytest

os.environ["SCREENSHOTS"] = "docs/images"
sys.exit(pytest.main(["-q", "tests/browser", *sys.argv[1:]]))
