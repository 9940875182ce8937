"""Tables that are read and written: by SQLite, and by a PostgreSQL server that is restarted."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from squall import Config, LocalCluster, TopologyBuilder, Tuple, UsageError
from squall.connect import SqlSink, SqlSource
from squall.testing import check_source
from tests.process.told import Told
from tests.process.waiting import wait_for
from tests.servers.once import kill_each_worker
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.xdist_group("postgres")  # one server for all

NO_CONTEXT: Any = None
FIELDS = ("id", "text")
LINES = "SELECT id, text FROM lines WHERE id > {} ORDER BY id LIMIT 100"


def database(path: Path) -> Callable[[], sqlite3.Connection]:
    return functools.partial(sqlite3.connect, path)


def put(connect: Callable[[], Any], begin: int, end: int, mark: str = "?") -> None:
    with contextlib.closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE IF NOT EXISTS lines (id BIGINT PRIMARY KEY, text TEXT)")
        rows = [(number, f"line {number}") for number in range(begin, end)]
        cursor.executemany(f"INSERT INTO lines VALUES ({mark}, {mark})", rows)
        connection.commit()


def found(connect: Callable[[], Any], query: str) -> list[Any]:
    with contextlib.closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(query)
        return list(cursor.fetchall())


def source_of(connect: Callable[[], Any], mark: str = "?", **options: Any) -> SqlSource:
    return SqlSource(connect, LINES.format(mark), FIELDS, position="id", begin=-1, **options)


@pytest.fixture
def connect(postgres_server: PostgresServer) -> Callable[[], Any]:
    """To an empty database."""
    postgres_server.start()
    return postgres_server.new_database()


def read(source: SqlSource) -> list[Any]:
    """All its records."""
    source.connect(NO_CONTEXT)
    try:
        return [record for records in source.read_from(None) for record in records or ()]
    finally:
        source.disconnect()


def test_a_table_of_sqlite(cluster: LocalCluster, tmp_path: Path) -> None:
    places = iter(range(9))

    def make(records: int) -> SqlSource:
        connect = database(tmp_path / f"{next(places)}.db")
        put(connect, 0, records)
        return source_of(connect, until_end=True)

    check_source(cluster, make, lambda values: int(values[0]), records=300)


def test_texts_are_positions_in_the_order_of_the_database(tmp_path: Path) -> None:
    connect, rows = database(tmp_path / "words.db"), [("a",), ("B",), ("c",)]
    with contextlib.closing(connect()) as connection:
        connection.execute("CREATE TABLE words (word TEXT COLLATE NOCASE PRIMARY KEY)")
        connection.executemany("INSERT INTO words VALUES (?)", rows)
        connection.commit()
    query = "SELECT word FROM words WHERE word > ? ORDER BY word LIMIT 2"
    assert read(SqlSource(connect, query, ("word",), position="word", begin="", until_end=True)) == [
        ("a", ("a",)), ("B", ("B",)), ("c", ("c",))]


def test_each_row_is_copied_once_by_a_server_that_is_restarted_and_workers_that_are_killed(
    postgres_server: PostgresServer, connect: Callable[[], Any], cluster: LocalCluster
) -> None:
    put(connect, 0, 2000, "%s")
    with contextlib.closing(connect()) as connection:
        connection.execute("CREATE TABLE copies (id BIGINT, text TEXT)")
        connection.commit()
    builder = TopologyBuilder()
    builder.set_spout("lines", source_of(connect, "%s", every_secs=0.05))
    copies = SqlSink(connect, "INSERT INTO copies VALUES (%s, %s)")
    builder.set_bolt("copies", copies, parallelism=2).fields_grouping("lines", "id")
    job, told = cluster.submit("copy", builder.build(), Config(workers=2)), Told(cluster)

    def copied(rows: int) -> None:
        wait_for(f"{rows} copies", lambda: found(connect, "SELECT count(*) FROM copies")[0][0] >= rows)

    copied(1)
    postgres_server.restart()
    copied(2000)
    put(connect, 2000, 4000, "%s")
    kill_each_worker(job, cluster)
    copied(4000)
    postgres_server.kill()
    for cut_off in (
        "SqlSource is cut off: ConnectionError: cannot read its database by 'SELECT id",
        "Unavailable: SqlSink does not reach its database: OperationalError: ",
    ):
        wait_for("a word of the cut", lambda cut_off=cut_off: told.has(cut_off))  # type: ignore[misc]
    postgres_server.start()
    put(connect, 4000, 4001, "%s")
    copied(4001)
    assert found(connect, "SELECT * FROM copies ORDER BY id") == found(connect, "SELECT * FROM lines ORDER BY id")


def test_no_transaction_is_open_between_two_polls(connect: Callable[[], Any]) -> None:
    put(connect, 0, 10, "%s")
    source = source_of(connect, "%s", every_secs=600)
    source.connect(NO_CONTEXT)
    polls = source.read_from(None)
    assert [len(rows or ()) for rows in itertools.islice(polls, 3)] == [10, 0, 0]
    assert ("idle",) in found(connect, "SELECT state FROM pg_stat_activity WHERE query LIKE 'ROLLBACK%'")
    source.disconnect()


@pytest.mark.parametrize(("query", "position", "why"), [
    ("SELECT id, text FROM lines WHERE id >= ? ORDER BY id LIMIT 10", "id", "position 9 after 9, by"),
    ("SELECT id, text FROM lines WHERE id > ? ORDER BY id DESC", "id", "position 18 after 19, by"),
    ("SELECT id, NULL FROM lines WHERE id > ? ORDER BY id", "text", "position None after -1, by"),
    ("SELECT id FROM lines WHERE id > ?", "id", "read 1 columns by .*: id, text"),
    ("SELECT id, text FROM line WHERE id > ?", "id", "cannot read its database by .*no such table: line"),
    ("SELECT id, words FROM lines WHERE id > ?", "id", "cannot read its database by .*no such column: words"),
    ("SELECT id, text FROM lines", "id", "cannot read its database by .*bindings"),
])
def test_a_query_that_is_wrong_is_told_with_what_is_wrong(
    tmp_path: Path, query: str, position: str, why: str
) -> None:
    put(database(tmp_path / "db"), 0, 20)
    source = SqlSource(database(tmp_path / "db"), query, FIELDS, position=position, begin=-1, until_end=True)
    with pytest.raises(UsageError, match=why):
        read(source)


def test_a_query_that_is_wrong_is_told_with_the_words_of_postgres(connect: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match=r'cannot read its database by .*UndefinedTable: relation "lines"'):
        read(source_of(connect, "%s"))


def test_a_database_that_is_not_there_is_away_and_no_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="unable to open database file"):
        read(source_of(database(tmp_path / "later" / "db")))


# ---- the sink by itself ----


@pytest.mark.parametrize("made", ["the table, too", "before"])
def test_what_the_database_does_for_an_earlier_life_is_waited_for(connect: Callable[[], Any], made: str) -> None:
    later, row = SqlSink(connect, "INSERT INTO events VALUES (%s, %s)"), (1, "line 1")
    later.store_id = "s"
    with contextlib.closing(connect()) as earlier:
        earlier.execute("CREATE TABLE events (id BIGINT, text TEXT)")
        earlier.commit()
        if made == "before":
            later.commit(0, [], None)
        else:
            earlier.execute("CREATE TABLE squall_commits (task VARCHAR(64) PRIMARY KEY, number BIGINT NOT NULL)")
            earlier.execute("INSERT INTO squall_commits VALUES ('s', 0)")
        earlier.execute("UPDATE squall_commits SET number = 1 WHERE task = 's'")
        earlier.execute("INSERT INTO events VALUES (%s, %s)", row)
        commit = threading.Thread(target=later.commit, args=(1, [Tuple(row, None, None)], None))
        commit.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_for("the later one to wait", lambda: found(connect, waits))
        earlier.commit()
    commit.join()
    later.cleanup()
    assert found(connect, "SELECT * FROM events") == [row]


def test_a_connection_that_commits_each_row_by_itself_is_refused(postgres_server: PostgresServer) -> None:
    by_itself = functools.partial(psycopg.connect, f"{postgres_server.address} dbname=postgres", autocommit=True)
    with pytest.raises(UsageError, match="got a connection with autocommit"):
        SqlSink(by_itself, "").commit(1, [], None)
