"""What the demo says where it can't go on: the reason, in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from example_project import demo, smoke
from example_project.site import DemoError, Site, reason

REFUSED = """
Traceback (most recent call last):
  File "base.py", line 279, in ensure_connection
    self.connect()
psycopg.OperationalError: connection failed: Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "manage.py", line 18, in <module>
    main()
django.db.utils.OperationalError: connection failed: Connection refused
Is the server running on that host?
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (REFUSED, "django.db.utils.OperationalError: connection failed: Connection refused"),
        ("CommandError: That name is taken.\n", "CommandError: That name is taken."),
        ("", ""),
    ],
)
def test_of_a_traceback_its_last_error_is_told(said: str, why: str) -> None:
    assert reason(said) == why


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgres://nobody@127.0.0.1:1/x", "refused"),
        ("nonsense", "DATABASE_URL must name a database"),
        ("sqlite:////no/such/folder/x.sqlite3", "unable to open database file"),
    ],
)
def test_a_database_that_is_not_there_is_told_in_one_line(
    tmp_path: Path, url: str, why: str
) -> None:
    site = Site(port=0, files=tmp_path, database_url=url)

    with pytest.raises(DemoError, match=why) as failed:
        site.manage("migrate")

    assert "\n" not in str(failed.value)


def test_data_of_another_version_is_told_what_to_do_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = Site(port=0, files=tmp_path, database_url="")

    def fails(*_: str) -> None:
        raise DemoError("manage.py migrate: django.db.utils.ProgrammingError: no such constraint")

    monkeypatch.setattr(site, "manage", fails)

    with pytest.raises(DemoError, match=r"no such constraint\n.*start over with --reset"):
        demo.migrate(site)


def test_whoever_waits_for_the_work_is_told_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(port=0, files=tmp_path, database_url="")
    done = iter([(5, 3), (6, 2), (8, 0)])
    status = '{"orders": 9, "invoiced": 8, "mailed": %d, "dead_letters": 1, "in_flight": %d}'
    monkeypatch.setattr(smoke, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr(site, "manage", lambda *_: status % next(done))
    monkeypatch.setattr(site, "watch", lambda _: None)

    assert smoke.wait_for_the_work(site)["in_flight"] == 0

    assert capsys.readouterr().out.splitlines() == [
        "smoke: 8 of 9 invoiced, 5 mailed",
        "smoke: 8 of 9 invoiced, 6 mailed",
    ]
