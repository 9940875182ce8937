"""Tables that are read and written: by SQLite, and by a PostgreSQL server that is restarted."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from squall import BasicBolt, Config, Job, Topology, TopologyBuilder, UsageError, run
from squall.connect import SqlSink, SqlSource
from squall.testing import check_source
from squall.testing.fixtures import FixtureCluster
from tests.chaos.kills import has_restarted
from tests.process.state_parts import Count
from tests.process.waiting import wait_for
from tests.servers import postgres
from tests.servers.postgres import Server

NO_CONTEXT: Any = None
FIELDS = ("id", "text")
LINES = "SELECT id, text FROM lines WHERE id > {} ORDER BY id LIMIT 100"


class Adds(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        assert tup["text"] == f"line {tup['id']}"


def topology(source: SqlSource, bolt: Any) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", source)
    builder.set_bolt("bolt", bolt).shuffle_grouping("lines")
    return builder.build()


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


def told(cluster: FixtureCluster, job: Job) -> str:
    """What the workers have written."""
    return "".join(path.read_text() for path in cluster.run_dir.worker_logs(job.id).glob("*.log"))


def source_of(connect: Callable[[], Any], mark: str = "?", **options: Any) -> SqlSource:
    return SqlSource(connect, LINES.format(mark), FIELDS, position="id", begin=-1, **options)


@pytest.fixture
def server() -> Iterator[Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture
def connect(server: Server) -> Callable[[], Any]:
    return functools.partial(psycopg.connect, server.address)


def test_a_table_of_sqlite(squall_cluster: FixtureCluster, tmp_path: Path) -> None:
    places = iter(range(9))

    def make(records: int) -> SqlSource:
        connect = database(tmp_path / f"{next(places)}.db")
        put(connect, 0, records)
        return source_of(connect, until_end=True)

    check_source(squall_cluster, make, lambda values: int(values[0]))


def test_rows_with_texts_as_keys_count_once_though_their_worker_dies(
    squall_cluster: FixtureCluster, tmp_path: Path
) -> None:
    connect, rows = database(tmp_path / "words.db"), 3000
    with contextlib.closing(connect()) as connection:
        connection.execute("CREATE TABLE words (word TEXT PRIMARY KEY)")
        connection.executemany("INSERT INTO words VALUES (?)", [(f"w{number:04}",) for number in range(rows)])
        connection.commit()
    query = "SELECT word FROM words WHERE word > ? ORDER BY word LIMIT 100"
    builder = TopologyBuilder()
    builder.set_spout("words", SqlSource(connect, query, ("word",), position="word", begin="", until_end=True))
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("words", "word")
    job = squall_cluster.submit("words", builder.build(), Config(workers=1, max_spout_pending=50))
    for kill in range(1, 4):
        wait_for("records between two deaths", lambda kill=kill: job.stats().acked >= kill * rows // 5)
        squall_cluster.inject("kill", *job.stats().workers)
        wait_for("its successor", lambda kill=kill: has_restarted(job, kill))
    job.wait_until_drained(timeout=100)
    assert dict(job.state("count")) == {f"w{number:04}": 1 for number in range(rows)}


def test_each_row_is_copied_once_by_a_server_that_is_restarted(
    server: Server, connect: Callable[[], Any], squall_cluster: FixtureCluster
) -> None:
    put(connect, 0, 3000, "%s")
    with contextlib.closing(connect()) as connection:
        connection.execute("CREATE TABLE copies (id BIGINT, text TEXT)")
        connection.commit()
    sink = SqlSink(connect, "INSERT INTO copies VALUES (%s, %s)")
    job = squall_cluster.submit("copy", topology(source_of(connect, "%s", every_secs=0.05), sink), Config(workers=1))

    def copied(rows: int) -> None:
        wait_for(f"{rows} copies", lambda: found(connect, "SELECT count(*) FROM copies")[0][0] >= rows)

    copied(3000)
    server.restart()
    put(connect, 3000, 5000, "%s")
    squall_cluster.inject("kill", *job.stats().workers)
    copied(5000)
    squall_cluster.inject("kill", *job.stats().workers)
    put(connect, 5000, 5001, "%s")
    copied(5001)
    server.restart()
    put(connect, 5001, 5002, "%s")
    copied(5002)
    assert found(connect, "SELECT * FROM copies ORDER BY id") == found(connect, "SELECT * FROM lines ORDER BY id")
    cut_off = "SqlSource is cut off: ConnectionError: cannot read its database by 'SELECT id"
    wait_for("a word of the cut", lambda: cut_off in told(squall_cluster, job))


def test_no_transaction_is_open_between_two_polls(
    connect: Callable[[], Any], squall_cluster: FixtureCluster
) -> None:
    put(connect, 0, 10, "%s")
    job = squall_cluster.submit("polls", topology(source_of(connect, "%s", every_secs=600), Adds()))
    wait_for("every row", lambda: job.stats().acked == 10)
    query = "SELECT state FROM pg_stat_activity WHERE query LIKE 'ROLLBACK%'"
    wait_for("a connection that rests", lambda: ("idle",) in found(connect, query))


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
    source.connect(NO_CONTEXT)
    with pytest.raises(UsageError, match=why):
        list(source.read_from(None))
    source.disconnect()


def test_a_query_that_is_wrong_ends_the_worker(connect: Callable[[], Any]) -> None:
    with pytest.raises(Exception, match=r'cannot read its database by .*UndefinedTable: relation "lines"'):
        run(topology(source_of(connect, "%s"), Adds()))


def test_a_database_that_is_away_is_waited_for(squall_cluster: FixtureCluster, tmp_path: Path) -> None:
    path = tmp_path / "later" / "db"
    job = squall_cluster.submit("later", topology(source_of(database(path), until_end=True), Adds()))
    cut_off = "unable to open database file; it tries again"
    wait_for("a word of it", lambda: cut_off in told(squall_cluster, job))
    path.parent.mkdir()
    put(database(path.parent / "new"), 0, 20)
    (path.parent / "new").rename(path)
    job.wait_until_drained(timeout=90)
    assert job.stats().acked == 20


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(UsageError, match="connect 'db'; allowed: a function"):
        SqlSource("db", "", FIELDS, position="id")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"position 'at'; allowed: one of its fields, \('id', 'text'\)"):
        SqlSource(sqlite3.connect, "", FIELDS, position="at")
