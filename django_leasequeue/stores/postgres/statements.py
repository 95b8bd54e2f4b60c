"""The SQL files beside this module, run on the connection that Django has open.

What Django and the driver do around a small statement takes longer than the statement. So its
arguments go to the server as text, those of very many tasks packed, its plan is kept there, and its
answer comes back in the server's own format; whoever watches Django's connection sees each
statement all the same.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg
from django.apps import apps
from django.db import connections
from django.db.backends import utils
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Pipeline, generators
from psycopg.adapt import Dumper, Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result

from ..drivers import is_direct

FOLDER: Final = Path(__file__).parent / "sql"
PARAMETER: Final = re.compile(r"%\((\w+)\)s")
PART: Final = re.compile(r"^-- part: (\w+)$", re.MULTILINE)  # stands for sql/parts/*.sql
PREPARED_FROM: Final = 3  # uses on one connection: it pays where more are to come
BINARY: Final = psycopg.pq.Format.BINARY
FATAL: Final = psycopg.pq.ExecStatus.FATAL_ERROR
TEXT_OID: Final = psycopg.adapters.types["text"].oid
UUID_OID: Final = psycopg.adapters.types["uuid"].oid

columns: Final[dict[str, list[str]]] = {}  # of each statement's answer: always the same


@dataclass(frozen=True, slots=True)
class Packed:
    """An array in the server's own format, which it reads in half the time: of text or of UUIDs."""

    values: Sequence[str]
    uuids: bool = False

    def encode(self, codec: str) -> bytes:
        if self.uuids:
            elements = [bytes.fromhex(text.replace("-", "")) for text in self.values]
        else:
            elements = [text.encode(codec) for text in self.values]
        kind = UUID_OID if self.uuids else TEXT_OID
        begin = struct.pack("!iiIii", 1, 0, kind, len(elements), 1)  # one dimension, from 1
        return begin + b"".join([len(element).to_bytes(4) + element for element in elements])


class PackedDumper(Dumper):
    """Hands it to the driver."""

    format = BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj.encode(self.connection.info.encoding if self.connection else "utf-8")


Text = str | Packed | None


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL file, without the header and the comments that explain it.

    ``text`` names its parameters, ``numbered`` counts them, as the server wants it.
    """

    name: str
    text: str
    numbered: bytes
    parameters: tuple[str, ...]

    @property
    def prepared_as(self) -> bytes:
        return f"leasequeue_{self.name}".encode()


@cache
def statement(name: str) -> Statement:
    whole = PART.sub(lambda found: written(f"parts/{found[1]}"), written(name))
    lines = whole.splitlines()
    # Short: the driver remembers what it made of up to 4,096 characters, and works the rest out
    # anew each time.
    text = "\n".join(line.strip() for line in lines if not line.lstrip().startswith("--"))
    parameters = tuple(dict.fromkeys(PARAMETER.findall(text)))
    numbered = PARAMETER.sub(lambda found: f"${parameters.index(found[1]) + 1}", text)
    return Statement(name, text, numbered.replace("%%", "%").encode(), parameters)


def written(name: str) -> str:
    return (FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def run(using: str, name: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """As ``run_plain``, each row by the names of its columns."""
    rows = run_plain(using, name, parameters)
    return [dict(zip(columns[name], row, strict=True)) for row in rows]


def run_plain(using: str, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run sql/*name*.sql in the caller's transaction, if there is one; the rows it answers."""
    connection = opened(using)
    connection.validate_no_broken_transaction()
    wanted = statement(name)
    cursor = cursor_for(connection, wanted)
    if isinstance(cursor, Cursor) and not is_watched(connection):
        connection.validate_thread_sharing()
        with connection.wrap_database_errors:  # Django's cursor does no more where nobody watches
            return answer_of(cursor, wanted, parameters)
    with connection._prepare_cursor(cursor) as seen:
        return answer_of(seen, wanted, texts(wanted, parameters))


def answer_of(
    cursor: Any, wanted: Statement, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    cursor.execute(wanted.text, parameters)
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    if wanted.name not in columns:
        answer = cursor.pgresult
        columns[wanted.name] = [answer.fname(index).decode() for index in range(answer.nfields)]
    return rows


def is_watched(connection: Any) -> bool:
    """Whether somebody wants to see our statements, too, not the site's alone.

    By Django's wrappers, or in the place of its cursor or the cursor's ``execute``, as Sentry.
    """
    execute, made_by = utils.CursorWrapper.execute, type(connection).make_cursor
    plain = getattr(execute, "__globals__", None) is vars(utils)
    if not (plain and made_by is BaseDatabaseWrapper.make_cursor and apps.ready):
        return True
    return any(not getattr(each, "passes_ours", False) for each in connection.execute_wrappers)


def opened(using: str) -> Any:
    """Django's connection, as its own cursors find it."""
    connection: Any = connections[using]
    plain = type(connection)._cursor is BaseDatabaseWrapper._cursor  # type: ignore[attr-defined]
    if plain and "cursor" not in vars(connection):
        connection.close_if_health_check_failed()
        connection.ensure_connection()
    else:  # it refuses it to a test, or sets a tenant's search_path
        connection.cursor().close()
    return connection


def run_along(
    using: str, name: str, parameters: Mapping[str, Any], follower: str, told: Mapping[str, Any]
) -> tuple[list[tuple[Any, ...]], bool]:
    """As ``run_plain``, outside of a transaction; *follower* comes after the commit, if it can.

    Both are sent at once: to wait for the one and send the other takes longer. A follower that
    fails undoes nothing.

    Returns:
        The rows of the first one, and whether the follower ran.
    """
    connection = opened(using)
    first, second = statement(name), statement(follower)
    ours = isinstance(cursor_for(connection, first), Cursor) and not is_watched(connection)
    kept = kept_of(connection.connection)
    prepared = kept.lasts and {name, follower} <= kept.prepared
    if not (ours and prepared and connection.connection.autocommit and Pipeline.is_supported()):
        return run_plain(using, name, parameters), False
    pair = PairCursor(connection, first, second, told)
    connection.validate_thread_sharing()
    with connection.wrap_database_errors:
        pair.execute(first.text, parameters)
        return pair.rows, pair.followed


def run_ahead(
    using: str, name: str, batches: Iterable[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], list[tuple[Any, ...]]]]:
    """Run sql/*name*.sql in the caller's transaction, once for each of *batches*.

    From the second one on the server works on one while the next one is made: the first brings the
    transaction's beginning with it. To make one is not to ask the database.

    Returns:
        Each batch, with the rows that it answers.
    """
    connection = opened(using)
    connection.validate_no_broken_transaction()
    wanted = statement(name)
    ahead = not is_watched(connection)  # by what may ask the database after a statement
    sent: tuple[dict[str, Any], Any] | None = None
    try:
        for parameters in batches:
            given = texts(wanted, parameters)
            answered = sent and (sent[0], received(sent[1]))
            cursor = connection._prepare_cursor(cursor_for(connection, wanted, ahead=ahead))
            sent = parameters, cursor
            cursor.execute(wanted.text, given)
            if answered:
                yield answered
        if sent:
            yield sent[0], received(sent[1])
    finally:
        if sent:
            sent[1].close()


def received(cursor: Any) -> list[tuple[Any, ...]]:
    with cursor:
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def cursor_for(connection: Any, wanted: Statement, *, ahead: bool = False) -> Any:
    """What runs *wanted*: our own, where neither a BEGIN nor Django's log needs the driver's."""
    raw = connection.connection
    begun = raw.autocommit or raw.pgconn.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    piped = raw.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF
    site_prepares = raw.prepare_threshold is not None  # and would throw away what others prepared
    if piped or site_prepares or connection.queries_logged or not begun:
        driver_s = psycopg.Cursor(raw)
        driver_s.format = BINARY  # it reads no interval in another style than the default one
        driver_s.adapters.register_dumper(Packed, PackedDumper)
        return driver_s
    return AheadCursor(connection, wanted) if ahead else Cursor(connection, wanted)


@dataclass(slots=True)
class Kept:
    """What we know of a session of the driver's.

    ``lasts``: whether what is prepared on it is there the next time: a proxy hands each transaction
    to another session, and a site may throw it away. None: not known yet.
    """

    uses: dict[str, int] = field(default_factory=dict)
    prepared: set[str] = field(default_factory=set)
    lasts: bool | None = None


class Cursor:
    """As much of a cursor as Django's wrappers need to run one statement."""

    def __init__(self, connection: Any, wanted: Statement) -> None:
        self.connection = connection
        self.raw = connection.connection
        self.wanted = wanted
        self.formats: list[bool] = []
        self.pgresult: Any = None

    def execute(self, text: str, given: Mapping[str, Any]) -> None:
        values = self.encoded(given)
        kept = kept_of(self.raw)
        prepared = self.is_to_be_prepared(kept)
        with self.raw.lock:
            if not prepared:
                self.run_once(values)
                return
            try:
                self.run_prepared(kept, values)
            except InvalidSqlStatementName:
                kept.lasts = False
                if not self.raw.autocommit:
                    raise
                self.run_once(values)

    def encoded(self, given: Mapping[str, Any]) -> list[bytes | None]:
        codec = self.raw.info.encoding  # UTF-8, unless the site has set client_encoding
        values = as_texts([given[name] for name in self.wanted.parameters])
        self.formats = [type(value) is Packed for value in values]  # 1: the server's own
        return [None if value is None else value.encode(codec) for value in values]

    def is_to_be_prepared(self, kept: Kept) -> bool:
        uses = kept.uses[self.wanted.name] = kept.uses.get(self.wanted.name, 0) + 1
        if uses >= PREPARED_FROM and kept.lasts is None:
            kept.lasts = is_direct(self.connection)
        return uses >= PREPARED_FROM and bool(kept.lasts)

    def run_once(self, values: list[bytes | None]) -> None:
        self.send_once(values)
        self.pgresult = self.answer()

    def send_once(self, values: list[bytes | None]) -> None:
        self.raw.pgconn.send_query_params(
            self.wanted.numbered, values, param_formats=self.formats, result_format=BINARY
        )

    def run_prepared(self, kept: Kept, values: list[bytes | None]) -> None:
        name = self.wanted.prepared_as
        if self.wanted.name not in kept.prepared:
            kept.prepared.add(self.wanted.name)  # before an interrupt hides that it went through
            try:
                self.raw.pgconn.send_prepare(name, self.wanted.numbered)
                self.answer()
            except Exception:
                kept.prepared.discard(self.wanted.name)
                raise
        self.raw.pgconn.send_query_prepared(
            name, values, param_formats=self.formats, result_format=BINARY
        )
        self.pgresult = self.answer()

    def answer(self) -> Any:
        return self.result_of(generators.execute)

    def result_of(self, fetch: Callable[[Any], Any]) -> Any:
        # Where there is a second one, it says why the first one's work couldn't be committed.
        *_, result = self.raw.wait(fetch(self.raw.pgconn))
        return self.checked(result)

    def checked(self, result: Any) -> Any:
        if result.status == FATAL:
            raise error_from_result(result, encoding=self.raw.info.encoding)
        return result

    def fetchall(self) -> list[tuple[Any, ...]]:
        transformer = Transformer(self.raw)
        transformer.set_pgresult(self.pgresult)
        return transformer.load_rows(0, self.pgresult.ntuples, tuple)

    def close(self) -> None:
        """Nothing is held open."""


class PairCursor(Cursor):
    """One that sends a second statement along with its own, each a transaction of its own."""

    def __init__(
        self, connection: Any, wanted: Statement, second: Statement, told: Mapping[str, Any]
    ) -> None:
        super().__init__(connection, wanted)
        self.second = second
        self.told = told
        self.followed = False
        self.rows: list[tuple[Any, ...]] = []

    def execute(self, text: str, given: Mapping[str, Any]) -> None:
        values = self.encoded(given)
        told = Cursor(self.connection, self.second).encoded(self.told)
        answers: list[Any] = []
        with self.raw.lock:
            try:
                self.raw.pgconn.enter_pipeline_mode()
                self.send_prepared(self.wanted, values)
                self.send_prepared(self.second, told)
                self.raw.wait(generators.send(self.raw.pgconn))
                self.raw.wait(both(self.raw.pgconn, answers))
                self.raw.pgconn.exit_pipeline_mode()
            except BaseException as error:
                self.keep_rows(answers)
                self.drop()
                if not (answers and isinstance(error, psycopg.Error)):
                    raise
            else:
                self.keep_rows(answers)
                self.followed = answers[1].status != FATAL
            try:
                self.checked(answers[0])
            except InvalidSqlStatementName:
                kept_of(self.raw).lasts = False
                self.run_once(values)
                self.rows = self.fetchall()

    def keep_rows(self, answers: Sequence[Any]) -> None:
        """What our own statement did stands whatever became of the second one."""
        if answers and answers[0].status != FATAL:
            self.pgresult = answers[0]
            self.rows = self.fetchall()

    def drop(self) -> None:
        """Close the connection, in the driver's pool, too.

        What is under way would be taken for another's answer.
        """
        self.raw.close()
        self.connection.close()

    def send_prepared(self, wanted: Statement, values: list[bytes | None]) -> None:
        self.raw.pgconn.send_query_prepared(wanted.prepared_as, values, result_format=BINARY)
        self.raw.pgconn.pipeline_sync()


def both(pgconn: Any, answers: list[Any]) -> Generator[Any, Any, None]:
    """Wait for two statements, each up to its sync, and put what they say last into *answers*.

    Where there is more than one thing, that is why the work couldn't be committed.
    """
    for _ in range(2):
        said = None
        # A statement's answers end with nothing; nothing once more is a lost connection.
        while answer := (yield from generators.fetch(pgconn)) or (
            yield from generators.fetch(pgconn)
        ):
            if answer.status == psycopg.pq.ExecStatus.PIPELINE_SYNC:
                break
            said = answer
        if said is None:
            raise psycopg.OperationalError("the connection is lost")
        answers.append(said)


class AheadCursor(Cursor):
    """One that sends its statement, and waits for the answer when that is asked for."""

    under_way = False

    def execute(self, text: str, given: Mapping[str, Any]) -> None:
        with self.raw.lock:
            self.send_once(self.encoded(given))
            self.under_way = True
            self.raw.wait(generators.send(self.raw.pgconn))

    def fetchall(self) -> list[tuple[Any, ...]]:
        with self.raw.lock:
            self.under_way = False
            self.pgresult = self.result_of(generators.fetch_many)
        return super().fetchall()

    def close(self) -> None:
        """Leave nothing under way to who uses the connection next."""
        if self.under_way:
            with suppress(psycopg.Error):
                self.fetchall()


def kept_of(raw: Any) -> Kept:
    known: Kept | None = vars(raw).get("leasequeue")
    if known is None:
        known = raw.leasequeue = Kept()
    return known


def texts(wanted: Statement, parameters: Mapping[str, Any]) -> dict[str, Text]:
    """What *wanted* is given, as PostgreSQL writes it."""
    values = as_texts([parameters[name] for name in wanted.parameters])
    return dict(zip(wanted.parameters, values, strict=True))


def as_texts(values: Sequence[Any]) -> list[Text]:
    return [v if v is None or type(v) is str else value_text(v) for v in values]


def value_text(value: Any) -> str | Packed:
    if isinstance(value, list):
        return "{" + ",".join([element_text(element) for element in value]) + "}"
    if isinstance(value, Packed):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def element_text(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return "NULL"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
