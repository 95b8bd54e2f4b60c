"""A call that fails leaves the site's session to the site, as long as it works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import InternalError, connection, connections, transaction
from django.test import SimpleTestCase

from django_leasequeue import Queue, QueueUnavailableError

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def locked_out(transactional_db: None) -> Iterator[None]:
    """A queue's table that another session has locked, and a session that waits for no lock."""
    other = connection.copy()
    with closing(other):
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE leasequeue_task IN EXCLUSIVE MODE")
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = 100")
        yield
    connection.close()


def session() -> psycopg.Connection[object]:
    raw: psycopg.Connection[object] = connection.connection
    return raw


def test_what_the_site_has_told_it_stays_said(locked_out: None) -> None:
    """Its role, its search_path: a session that works isn't closed, whatever its age."""
    assert connection.settings_dict["CONN_MAX_AGE"] == 0
    before = session()
    with pytest.raises(QueueUnavailableError, match="lock timeout"):
        Queue("q").enqueue("x")
    assert session() is before


def test_a_transaction_of_the_site_s_own_is_not_cut_in_two(locked_out: None) -> None:
    """Without autocommit and without atomic(): what came after it was committed, in a new session;
    what came before was gone."""
    transaction.set_autocommit(False)
    try:
        User.objects.create(username="before")
        with pytest.raises(QueueUnavailableError):
            Queue("q").enqueue("x")
        with pytest.raises(InternalError, match="aborted"):
            User.objects.create(username="after")
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert not User.objects.exists()


def test_one_that_is_gone_is_opened_anew() -> None:
    Queue("q").enqueue("x")
    session().close()
    with pytest.raises(QueueUnavailableError):
        Queue("q").depth()
    assert Queue("q").depth().visible == 1


def test_a_backend_that_sets_the_schema_before_each_statement_does_so_before_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those of django-tenants and django-pgschemas do, in their cursor()."""

    class Tenants(type(connections["default"])):  # type: ignore[misc]
        schema = "one"

        def _cursor(self, name: str | None = None) -> Any:
            cursor = super()._cursor(name)
            cursor.execute(f"SET search_path = {self.schema}, public")
            return cursor

    queue = Queue("q")
    queue.enqueue("x")
    monkeypatch.setattr(connections["default"], "__class__", Tenants)
    for Tenants.schema in ("two", "three"):
        queue.enqueue("x")
        assert session().execute("SHOW search_path").fetchone() == (f"{Tenants.schema}, public",)
    connection.close()


def test_one_that_is_open_is_refused_to_a_test_that_may_not_use_it() -> None:
    """What such a test enqueued stayed: no transaction of its own was rolled back."""
    connection.ensure_connection()
    SimpleTestCase._add_databases_failures()  # type: ignore[attr-defined]
    try:
        with pytest.raises(AssertionError, match="not allowed"):
            Queue("q").enqueue("x")
    finally:
        SimpleTestCase._remove_databases_failures()  # type: ignore[attr-defined]
    assert Queue("q").depth().visible == 0
