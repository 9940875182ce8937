"""A wrong line in a topology is one error: the run stops at once, and nothing becomes a dead letter."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.process.cli import squall
from tests.process.standing_tools import directory
from tests.process.waiting import wait_for

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
    "field": ("pass", 'tup["m"]', "has no field 'm'; its fields are line, n"),
    "disk": ("pass", 'raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))', "No space left on device"),
    "ack": ('raise ValueError("no ack today")', "pass", "raised ValueError: no ack today in ack"),
}


@pytest.mark.parametrize(("wrong", "on_error"), [("disk", "crash"), ("ack", "crash"), ("field", "fail")])
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


@pytest.mark.nightly
def test_all_from_a_certain_one_on(tmp_path: Path) -> None:
    """Many get through, and then a bolt raises that takes batches, of which any tuple may be the cause."""
    file = tmp_path / "late.py"
    file.write_text(FILE.format(ack="pass", execute="pass") + BATCHES)
    done = squall("run", file, "--json", timeout=300)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert (report["dead_letters"], report["drained"]) == (0, False)
    assert report["acked"] > 0
    lines = done.stderr.strip().splitlines()
    assert re.search(r"late.py, line \d+, in execute_batch\) with tuple \(", lines[-1]), lines[-1]
    assert len(lines) < 80


def test_equal_errors_are_told_once_whatever_worker_and_tuple_they_name(tmp_path: Path) -> None:
    file = tmp_path / "keys.py"
    file.write_text(FILE.format(ack="pass", execute='{}[f"key {tup[1]}"]'))
    done = squall("run", file, "--workers", "2", timeout=300)
    assert done.returncode == 1, done.stderr
    assert re.search(r"keys.py, line \d+, in execute\) with tuple", done.stderr)
    # Two that happen at the same time may be told in full both.
    assert done.stderr.count("Traceback") <= 2
    assert done.stderr.count(" died: ") == 1
    assert done.stdout.count(" died ") == 1


AWAY = """
        import pathlib
        with pathlib.Path({path!r}).open("a") as tries:
            tries.write(".")
        if pathlib.Path({path!r}).stat().st_size < 9:
            raise ConnectionError("the database is away")
"""


def test_a_service_that_is_away_at_first_ends_no_run_and_buries_nothing(tmp_path: Path) -> None:
    """Neither while it is prepared nor while tuples are executed."""
    file = tmp_path / "away.py"
    prepare, execute = (AWAY.format(path=str(tmp_path / name)) for name in ("prepared", "executed"))
    text = FILE.format(ack="pass", execute=execute)
    file.write_text(text.replace("collector = collector", f"collector = collector{prepare}"))
    done = squall("run", file, "--workers", "2", timeout=300)
    assert done.returncode == 0, done.stderr
    assert "0 dead letters" in done.stdout
    assert done.stderr.count(" died: ") == 2


def test_a_standing_cluster_shows_what_stopped_a_topology_and_each_error_once(tmp_path: Path) -> None:
    lines = {"prepare": "self.collector = collector[0]", "execute": "undefined_name"}
    with directory() as cluster:
        cluster.up(slots=4)
        for method, line in lines.items():
            text = FILE.format(ack="pass", execute="undefined_name" if method == "execute" else "pass")
            file = tmp_path / f"{method}.py"
            file.write_text(text.replace("self.collector = collector", line) if method == "prepare" else text)
            cluster.ok("submit", file, "--name", method, "--workers", "2")
        for method, kind in (("prepare", "TypeError"), ("execute", "NameError")):
            wait_for("its end", lambda name=method: cluster.described(name)["why_stopped"])
            done = cluster.run("status", method)
            assert f"{method} is STOPPED" in done.stdout
            place = rf"{method}.py, line \d+, in {method}\)"
            assert re.search(rf"^stopped: .*raised {kind}: .*{place}", done.stdout, re.MULTILINE)
            deaths = cluster.described(method)["deaths"]
            assert [death["times"] for death in deaths] == [sum(death["times"] for death in deaths)]
            assert cluster.ok("logs", method).count("Traceback") <= 2
