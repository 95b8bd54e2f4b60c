"""B30, as a site meets it: a view in ATOMIC_REQUESTS enqueues, and a worker is polling."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_leasequeue.compat import TaskResultDoesNotExist, task_backends
from tests.databases import on_all
from tests.waiting import wait_for
from tests.worker import tasks
from tests.worker.conftest import Site

pytestmark = on_all


def view(request: HttpRequest, backend: str, fails: int) -> HttpResponse:
    result = tasks.add.using(backend=backend).enqueue(fails, 0)
    if fails:
        raise RuntimeError(result.id)
    return HttpResponse(result.id)


urlpatterns = [path("<str:backend>/<int:fails>/", view)]


@pytest.fixture
def client(site: Site, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Client:
    settings.ROOT_URLCONF = __name__
    monkeypatch.setitem(connections[site.using].settings_dict, "ATOMIC_REQUESTS", True)
    return Client()


def test_what_a_failed_request_enqueued_never_was(site: Site, client: Client) -> None:
    """G2"""
    with site.worker():
        with pytest.raises(RuntimeError) as failed:
            client.get(f"/{site.alias}/1/")
        stored = client.get(f"/{site.alias}/0/").content.decode()
        wait_for(lambda: site.kinds().count("acked") == 1)

    assert tasks.runs == [(0, 0)]
    assert site.kinds().count("enqueued") == 1
    assert task_backends[site.alias].get_result(stored).return_value == 0
    with pytest.raises(TaskResultDoesNotExist):
        task_backends[site.alias].get_result(str(failed.value))
