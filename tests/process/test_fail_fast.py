"""A wrong line in a topology is one error: the run stops at once, and nothing becomes a dead letter."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.process.cli import squall

FILE = """
import errno, os
from squall import Bolt, ReplayingSpout, TopologyBuilder

class Lines(ReplayingSpout):
    outputs = ("line", "n")
    def read(self):
        for n in range(2000):
            yield n, (f"line {{n}}", n)
    def ack(self, message_id):
        {ack}
        super().ack(message_id)

class Split(Bolt):
    outputs = ("word",)
    def prepare(self, conf, context, collector):
        self.collector = collector
    def execute(self, tup):
        {execute}
        self.collector.ack(tup)

builder = TopologyBuilder()
builder.set_spout("lines", Lines())
builder.set_bolt("split", Split(), 2).shuffle_grouping("lines")
topology = builder.build()
"""
WRONG = {
    "emit": ("pass", 'self.collector.emit((1,), "words", anchors=tup)', "write stream='words'"),
    "field": ("pass", 'tup["m"]', "has no field 'm'; its fields are line, n"),
    "disk": ("pass", 'raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))', "No space left on device"),
    "ack": ('raise ValueError("no ack today")', "pass", "raised ValueError: no ack today in ack"),
}


@pytest.mark.parametrize(("wrong", "on_error"), [*((wrong, "crash") for wrong in WRONG), ("field", "fail")])
def test_a_wrong_line_is_one_error(tmp_path: Path, wrong: str, on_error: str) -> None:
    ack, execute, told = WRONG[wrong]
    file = tmp_path / "wrong.py"
    file.write_text(FILE.format(ack=ack, execute=execute))
    done = squall("run", file, "--set", f"on_error={on_error}", timeout=300)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.strip().splitlines()
    assert told in lines[-1]
    text = execute if ack == "pass" else ack
    number = next(n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line)
    assert re.search(f'{re.escape(str(file))}"?, line {number}, in', lines[-1])
    assert wrong == "ack" or "with tuple ('line " in lines[-1]
    assert "dead letter" not in done.stderr
    assert len(lines) < 80


BATCHES = """
from squall import BatchBolt

class Late(BatchBolt):
    def execute_batch(self, batch, collector):
        assert max(batch["n"]) < 1000

builder = TopologyBuilder()
builder.set_spout("lines", Lines())
builder.set_bolt("late", Late()).shuffle_grouping("lines")
topology = builder.build()
"""


@pytest.mark.parametrize("settings", [("on_error=fail", "max_attempts=2"), ("on_error=crash",)])
def test_nearly_all_or_all_from_a_certain_one_on(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """A few get through, and each error has a text of its own; or a bolt raises that takes batches, of which any tuple
    may be the cause."""
    file = tmp_path / "late.py"
    wrong = FILE.format(ack="pass", execute='assert tup["n"] % 50 == 9, tup["n"]')
    file.write_text(wrong if len(settings) > 1 else wrong + BATCHES)
    options = [option for setting in settings for option in ("--set", setting)]
    done = squall("run", file, "--json", *options, timeout=300)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert (report["dead_letters"], report["drained"]) == (0, False)
    assert report["acked"] > 0
    lines = done.stderr.strip().splitlines()
    assert re.search(r"late.py, line \d+, in execute\w*\) with tuple \(", lines[-1]), lines[-1]
    assert len(lines) < 80


def test_a_bad_message_stops_nothing(tmp_path: Path) -> None:
    file = tmp_path / "poison.py"
    file.write_text(FILE.format(ack="pass", execute='assert tup["n"] % 999'))
    done = squall("run", file, "--set", "max_crashes=2", timeout=300)
    assert done.returncode == 3, done.stderr
    assert "3 dead letters" in done.stderr + done.stdout
    # Equal deaths are one line.
    assert len(re.findall(r"^worker \S+ died \d+ times, first at", done.stdout, re.MULTILINE)) <= 2
    assert done.stdout.count(" died ") <= 2
