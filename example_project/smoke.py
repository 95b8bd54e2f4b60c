"""Looks at a running example as its operator would: logs in, waits for the work, reads the page."""

from __future__ import annotations

import json
import re
import time
from http.cookiejar import CookieJar
from typing import Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, ProxyHandler, build_opener

from example_project.site import DemoError, Site

PAGE_PATIENCE: Final = 60.0  # seconds until the first page
WORK_PATIENCE: Final = 600.0  # seconds until the queue is empty
PROGRESS_SECONDS: Final = 10.0
DEAD_LETTERS: Final = "/admin/leasequeue/deadletter/"


def check(site: Site, *, name: str, password: str) -> str:
    """Wait until the work is done and look for its dead letters in the admin.

    Returns:
        What was found, in one line.

    Raises:
        DemoError: the page, the work or the dead letters didn't come.
    """
    started = time.monotonic()
    browser = a_browser()
    log_in(browser, site, name, password)
    status = wait_for_the_work(site)
    letters = status["dead_letters"]
    page = read(browser, site.url + DEAD_LETTERS)
    if not letters or f"{letters} dead letter" not in page:
        raise DemoError(f"{letters} dead letters, and the admin's page doesn't show them:\n{page}")
    facts = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in status.items())
    return f"{facts}; {time.monotonic() - started:.1f} s"


def a_browser() -> OpenerDirector:
    return build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))


def log_in(browser: OpenerDirector, site: Site, name: str, password: str) -> None:
    page = first_page(browser, site)
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    if token is None:
        raise DemoError(f"There is no form to log in:\n{page}")
    form = {"csrfmiddlewaretoken": token[1], "username": name, "password": password}
    if "/admin/logout/" not in read(browser, site.url + "/admin/login/?next=/admin/", form):
        raise DemoError(f"{name} can't log in to the admin.")


def first_page(browser: OpenerDirector, site: Site) -> str:
    deadline = time.monotonic() + PAGE_PATIENCE
    while time.monotonic() < deadline:
        try:
            return read(browser, site.url + "/admin/login/")
        except URLError:
            site.watch(0.2)
    raise DemoError(f"No page from {site.url} after {PAGE_PATIENCE:.0f} s.")


def read(browser: OpenerDirector, url: str, form: dict[str, str] | None = None) -> str:
    data = urlencode(form).encode() if form else None
    with browser.open(url, data, timeout=PAGE_PATIENCE) as answer:
        return str(answer.read().decode())


def wait_for_the_work(site: Site) -> dict[str, int]:
    deadline = time.monotonic() + WORK_PATIENCE
    told_at = time.monotonic()
    while time.monotonic() < deadline:
        status: dict[str, int] = json.loads(site.manage("sample_status", "--json"))
        if status["orders"] and not status["in_flight"]:
            return status
        if time.monotonic() - told_at >= PROGRESS_SECONDS:
            told_at = time.monotonic()
            print(
                "smoke: {invoiced} of {orders} invoiced, {mailed} mailed".format(**status),
                flush=True,
            )
        site.watch(1)
    raise DemoError(f"Still not done after {WORK_PATIENCE:.0f} s: {status}")
