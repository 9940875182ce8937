"""Sinks that write once: several in one directory, and rows that cannot be written."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from squall import Config, ExactSink, FileSink, SqlSink, Topology
from squall.engine.core.executor import TaskCrashed
from squall.testing import FixedSpout, SimulatedCluster
from tests.unit.wired import wired

ROWS = [(f"w{number}", number) for number in range(40)]


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE IF NOT EXISTS counts (word PRIMARY KEY, count)")
    return db


def written_by(*sinks: ExactSink, rows: Any = ROWS) -> Topology:
    bolts = {f"sink-{number}": (sink, 1, "global rows") for number, sink in enumerate(sinks)}
    return wired(rows=(FixedSpout(("word", "count"), rows), 1), **bolts).build()


def test_sinks_of_files_write_into_one_directory_beside_what_is_there(tmp_path: Path) -> None:
    for _ in range(2):
        with SimulatedCluster(written_by(FileSink(tmp_path), FileSink(tmp_path))) as cluster:
            cluster.run()
    written = [list(map(json.loads, path.read_text().splitlines())) for path in tmp_path.iterdir()]
    assert [Counter((row["word"], row["count"]) for row in rows) for rows in written] == [Counter(ROWS)] * 4


@pytest.mark.parametrize("pending", [1, 1000])
def test_a_row_that_a_database_refuses_fails_alone(tmp_path: Path, pending: int) -> None:
    bad = [("too long", 1 << 80), ("w7", 7)]  # the second is there already
    sink = SqlSink(partial(connect, tmp_path / "db"), "INSERT INTO counts VALUES (?, ?)")
    config = Config(max_attempts=2, max_spout_pending=pending)
    with SimulatedCluster(written_by(sink, rows=[*ROWS[:20], *bad, *ROWS[20:]]), config) as cluster:
        cluster.run()
        assert cluster.report().dead_letters == 2
    assert connect(tmp_path / "db").execute("SELECT * FROM counts ORDER BY count").fetchall() == ROWS


def test_a_row_that_is_no_json_fails_alone_and_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    wrong = [("\ud800", 1), ("c", 10**5000)]
    rows = [("a", float("nan")), ("b", {(1, 2): b"x"}), *wrong, ("d", {1}), ("e", {1: "a", "1": 1j})]
    with SimulatedCluster(written_by(FileSink(tmp_path), rows=rows), Config(max_attempts=1)) as cluster:
        cluster.run()
        told = [re.findall(r"write (.*?):", str(letter[-1])) for letter in cluster.dead_letters]
    assert told == [[r"('\ud800', 1)"], ["('c', <int of 16,610 bits>)"]]
    [written] = [path.read_text() for path in tmp_path.iterdir()]
    assert re.findall('"count":(.*)}', written) == ["null", '{"(1, 2)":"eA=="}', "[1]", '{"1":"a","1":"1j"}']


@pytest.mark.parametrize(("opens", "refused"), [
    (partial(sqlite3.connect, ":memory:", isolation_level=None), "connection with autocommit"),
    (partial(sqlite3.connect, ":memory:"), "no such table"),
], ids=["each row commits", "wrong statement"])
def test_a_wrong_connection_or_statement_is_no_fault_of_its_rows(opens: Any, refused: str) -> None:
    with (
        SimulatedCluster(written_by(SqlSink(opens, "INSERT INTO counts VALUES (?, ?)"))) as cluster,
        pytest.raises(TaskCrashed, match=refused),
    ):
        cluster.run()
