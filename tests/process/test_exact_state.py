"""State, windows and sinks that count each record once, with workers that are killed: exactly right."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from squall import ClusterError, Config, Job, LocalCluster, SqlSink, Topology, Tuple, UsageError, WindowedBolt
from tests.process import postgres
from tests.process import state_parts as parts
from tests.process import window_parts as windowed
from tests.process.postgres import Server
from tests.process.waiting import wait_for

TEXTS, KILLS = 1500, 4


def by_rows() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.Split(), parts.Count())


def by_batches() -> Topology:
    return parts.topology(parts.BatchedTexts(TEXTS), parts.SplitBatch(), parts.CountBatch())


def mixed() -> Topology:
    return parts.topology(parts.Texts(TEXTS, named=True), parts.SplitBatch(), parts.MoodyCount())


def acking_itself() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.SplitItself(), parts.CountBatch())


def asynchronous() -> Topology:
    return parts.topology(parts.BatchedTexts(TEXTS), parts.SplitAsync(), parts.Count())


def copied() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.Split(), parts.Count(), copies=["all"])


def killed(cluster: LocalCluster, worker: str) -> bool:
    """Kill a worker; return False if it is dead still."""
    try:
        cluster.inject("kill", worker)
    except ClusterError:
        return False
    return True


def has_restarted(job: Job, times: int) -> bool:
    restarts = job.stats().restarts
    return len(restarts) == times and all(one.ready_after_secs is not None for one in restarts)


@contextlib.contextmanager
def run_with_kills(
    topology: Topology, messages: int, seed: int, before_kill: Callable[[int], object] = lambda _: None
) -> Iterator[Job]:
    """Run a topology to its end, while random workers are killed."""
    rng = random.Random(seed)
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("exact", topology, Config(workers=2))
        for kill in range(1, KILLS + 1):
            enough = messages * kill // (KILLS + 2)
            wait_for(f"{enough} acks", lambda enough=enough: job.stats().acked >= enough)
            before_kill(kill)
            wait_for("a worker to kill", lambda: killed(cluster, f"node-1:{6700 + rng.randrange(2)}"))
            # Two deaths of one worker before it is back count as one.
            wait_for("its successor", lambda kill=kill: has_restarted(job, kill))
        report = job.wait_until_drained(timeout=100)
        assert len(report.restarts) == KILLS
        assert report.dead_letters == 0
        yield job


@pytest.mark.parametrize("make", [by_rows, by_batches, mixed, acking_itself, asynchronous, copied])
def test_each_record_counts_once(make: Callable[[], Topology], seed: int) -> None:
    expected = parts.expected(TEXTS)
    if make is copied:
        expected += expected
    with run_with_kills(make(), 2 * TEXTS, seed) as job:
        assert job.state("count") == expected
        assert Counter(job.state("total")["totals"]) == expected


def sliding(bolt: WindowedBolt) -> WindowedBolt:
    return bolt.with_sliding_window(secs=windowed.LENGTH_MS / 1000, slide_secs=windowed.SLIDE_MS / 1000)


def sessions(bolt: WindowedBolt) -> WindowedBolt:
    return bolt.with_session_window(gap_secs=windowed.GAP_MS / 1000)


@pytest.mark.parametrize("bolt", [windowed.Sums, windowed.Folded])
@pytest.mark.parametrize(("declare", "expected"), [
    (sliding, windowed.sliding_results), (sessions, windowed.session_results),
])
def test_each_window_is_right(
    bolt: type[WindowedBolt], declare: Callable[[WindowedBolt], WindowedBolt],
    expected: Callable[[int], Counter[str]], seed: int,
) -> None:
    made = declare(bolt()).with_key("user").with_timestamp_field("at").with_lag(secs=0.1)
    with run_with_kills(windowed.windows(TEXTS, made), 2 * TEXTS, seed) as job:
        assert job.state("keep") == expected(TEXTS)


def test_each_record_is_written_once(seed: int, tmp_path: Path) -> None:
    expected = Counter(windowed.event(number) for number in range(TEXTS))
    connect = functools.partial(windowed.connect, str(tmp_path / "db"))
    sink = SqlSink(connect, "INSERT INTO events VALUES (?, ?, ?)")
    with run_with_kills(windowed.sinks(TEXTS, tmp_path, sink, 1), 2 * TEXTS, seed):
        pass
    assert windowed.in_files(tmp_path) == expected + expected
    assert windowed.in_parquet(tmp_path) == expected + expected
    assert Counter(connect().execute("SELECT * FROM events")) == expected + expected


# ---- a database that has tasks at the same time, and goes away ----


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
