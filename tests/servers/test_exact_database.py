"""A sink into a database that has tasks at the same time and goes away: each record is in it once."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from squall import SqlSink, Tuple, UsageError
from tests.chaos.kills import TEXTS, run_with_kills
from tests.process import window_parts as windowed
from tests.process.waiting import wait_for
from tests.servers import postgres
from tests.servers.postgres import Server


@pytest.fixture
def server() -> Iterator[Server]:
    with postgres.running() as server:
        with psycopg.connect(server.address) as connection:
            connection.execute("CREATE TABLE events (person TEXT, at FLOAT8, number INT)")
        connection.close()
        yield server


def sink_of(server: Server) -> SqlSink:
    return SqlSink(functools.partial(psycopg.connect, server.address), "INSERT INTO events VALUES (%s, %s, %s)")


def found(server: Server, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(psycopg.connect(server.address)) as connection:
        return connection.execute(query).fetchall()


def test_each_record_is_in_a_database_once_that_was_restarted(
    server: Server, seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = Counter(windowed.event(number) for number in range(TEXTS))
    topology = windowed.sinks(TEXTS, tmp_path, sink_of(server), 2)
    with run_with_kills(topology, 2 * TEXTS, seed, before_kill=lambda _: server.restart()):
        pass
    assert "Unavailable: SqlSink does not reach its database: OperationalError: " in capfd.readouterr().err
    assert windowed.in_files(tmp_path) == expected + expected
    assert windowed.in_parquet(tmp_path) == expected + expected
    assert Counter(found(server, "SELECT * FROM events")) == expected + expected


@pytest.mark.parametrize("made", ["the table, too", "before"])
def test_what_the_database_does_for_an_earlier_life_is_waited_for(server: Server, made: str) -> None:
    later = sink_of(server)
    later.store_id = "s"
    row = windowed.event(0)
    with contextlib.closing(psycopg.connect(server.address)) as earlier:
        if made == "before":
            later.commit(0, [], None)
        else:
            earlier.execute("CREATE TABLE squall_commits (task VARCHAR(64) PRIMARY KEY, number BIGINT NOT NULL)")
            earlier.execute("INSERT INTO squall_commits VALUES ('s', 0)")
        earlier.execute("UPDATE squall_commits SET number = 1 WHERE task = 's'")
        earlier.execute("INSERT INTO events VALUES (%s, %s, %s)", row)
        commit = threading.Thread(target=later.commit, args=(1, [Tuple(row, None, None)], None))
        commit.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_for("the later one to wait", lambda: found(server, waits))
        earlier.commit()
    commit.join()
    later.cleanup()
    assert found(server, "SELECT * FROM events") == [row]


def test_a_connection_that_commits_each_row_by_itself_is_refused(server: Server) -> None:
    with pytest.raises(UsageError, match="got a connection with autocommit"):
        SqlSink(functools.partial(psycopg.connect, server.address, autocommit=True), "").commit(1, [], None)
