"""A headless Chromium at the example's admin.

It is the one on the PATH, or CHROMIUM names it, or Playwright's own. SCREENSHOTS names a folder for
the pictures; `python3 -m example_project screenshots` renews those of the docs by it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from tests.example.conftest import mail_folder

__all__ = ["mail_folder"]

Look = Callable[[Any, str], None]
LogIn = Callable[..., Any]
ALLOWED = [
    "view_deadletter", "view_task", "view_tasktransition", "view_payload", "view_order",
    "change_order", "view_upload", "add_upload", "change_orderline", "view_orderline",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Started for a module's tests: its event loop, in this thread, would be in others' way."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        try:
            chromium = started.chromium.launch(executable_path=program, args=as_root)
        except playwright.Error as error:
            if os.environ.get("SCREENSHOTS"):
                raise
            pytest.skip(f"needs a Chromium: {str(error).splitlines()[0]}")
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # the tables are asked beside it
            yield chromium
        chromium.close()


@pytest.fixture
def log_in(browser: Any, live_server: Any) -> Iterator[LogIn]:
    """Opens the admin in a window of its own, as somebody with these further permissions."""
    windows = []

    def log_in(name: str, *permissions: str, **look: Any) -> Any:
        user = User.objects.create_user(name, password=name, is_staff=True)
        codes = [*ALLOWED, *permissions]
        user.user_permissions.set(Permission.objects.filter(codename__in=codes))
        view = {"width": 1180, "height": 800}
        windows.append(browser.new_context(base_url=live_server.url, viewport=view, **look))
        page = windows[-1].new_page()
        page.set_default_timeout(15_000)
        page.goto("/admin/login/?next=/admin/")
        page.fill("#id_username", name)
        page.fill("#id_password", name)
        page.click("[type=submit]")
        return page

    yield log_in
    for window in windows:
        window.close()


@pytest.fixture
def look() -> Look:
    """Takes a picture for the docs, where a folder for it is named."""

    def look(page: Any, name: str) -> None:
        if folder := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")

    return look
