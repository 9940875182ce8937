"""Rows of a feed that hold no text where their column says so are dead letters, and the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet as parquet

from tests.process.cli import squall

TOPOLOGY = """
from squall import BasicBolt, FeedSpout, TopologyBuilder


class Length(BasicBolt):
    outputs = ("length",)

    def execute(self, tup, collector):
        collector.emit((len(tup["text"]),))


def topology(args):
    builder = TopologyBuilder()
    builder.set_spout("lines", FeedSpout(args[0], with_origin=True), parallelism=2)
    builder.set_bolt("length", Length(), parallelism=2).shuffle_grouping("lines")
    return builder.build()
"""


def test_texts_that_are_not_utf8_are_dead_letters(tmp_path: Path) -> None:
    feed, run = tmp_path / "feed", tmp_path / "run"
    feed.mkdir()
    raw = pyarrow.array([b"caf\xe9" if row % 100 == 7 else b"ok" for row in range(1000)], pyarrow.binary())
    texts = pyarrow.Array.from_buffers(pyarrow.string(), len(raw), raw.buffers())
    parquet.write_table(pyarrow.table({"text": texts}), feed / "a.parquet")
    (tmp_path / "lengths.py").write_text(TOPOLOGY)
    done = squall("run", tmp_path / "lengths.py", "--workers", "2", "--dir", run, "--json", "--", feed)
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    figures = [report[name] for name in ("emitted", "acked", "dead_letters", "pending", "restarts")]
    assert figures == [1000, 990, 10, 0, []]
    listed = squall("dead-letters", "lengths", "--dir", run, "--json")
    letters = json.loads(listed.stdout)["letters"]
    assert {letter["message_id"] for letter in letters} == {f"('a.parquet', {row})" for row in range(7, 1000, 100)}
    for letter in letters:
        assert (letter["reason"], letter["component"]) == ("failed", "lines")
        assert "a.parquet has a text that is not UTF-8 in row " in letter["error"]
        assert letter["error"].endswith("column 'text': b'caf\\xe9'")
    replayed = squall("dead-letters", "lengths", "--dir", run, "--replay", "--json")
    assert (replayed.returncode, json.loads(replayed.stdout)["letters"]) == (0, [])
    assert replayed.stderr.count("cannot be given back: its spout gave it up, as no bolt could take it: feed ") == 10
    again = squall("run", tmp_path / "lengths.py", "--workers", "2", "--dir", run, "--json", "--", feed)
    assert (again.returncode, json.loads(again.stdout)["emitted"]) == (0, 0), again.stderr
