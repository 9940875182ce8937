"""A wrong line in a topology is one error: the run stops at once, and nothing becomes a dead letter."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.process.cli import squall
from tests.process.standing_tools import Standing
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


@pytest.mark.parametrize(("execute", "on_error", "told"), [
    ('tup["m"]', "fail", "has no field 'm'; its fields are line, n"),
    # A text that differs with each tuple.
    ('raise OSError(errno.ENOSPC, f"no room for {tup[1]}")', "crash", "no room for "),
])
def test_a_wrong_line_is_one_error(tmp_path: Path, execute: str, on_error: str, told: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(FILE.format(ack="pass", execute=execute))
    done = squall("run", file, "--workers", "2", "--set", f"on_error={on_error}", timeout=300)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("squall: ")
    assert told in lines[-1]
    number = next(n for n, line in enumerate(file.read_text().splitlines(), 1) if execute in line)
    assert re.search(f'{re.escape(str(file))}"?, line {number}, in execute.* with tuple \\(\'line ', lines[-1])
    assert "dead letter" not in done.stderr
    # Equal errors are told once, whatever worker and tuple they name; two at the same time may be told in full both.
    assert done.stderr.count("Traceback") <= 2
    assert done.stderr.count(" died: ") == done.stdout.count(" died ") == (on_error == "crash")


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


def test_a_standing_cluster_shows_what_stopped_a_topology_and_each_error_once(
    standing: Standing, tmp_path: Path
) -> None:
    good = FILE.format(ack="pass", execute="pass")
    for method, kind, text in (
        ("prepare", "TypeError", good.replace("self.collector = collector", "self.collector = collector[0]")),
        ("execute", "NameError", FILE.format(ack="pass", execute="undefined_name")),
        ("ack", "AttributeError", FILE.format(ack="message_id.wrong", execute="pass")),
    ):
        file = tmp_path / f"{method}.py"
        file.write_text(text)
        standing.ok("submit", file, "--name", method, "--workers", "2")
        wait_for("its end", lambda name=method: standing.described(name).why_stopped)
        done = standing.run("status", method)
        assert f"{method} is STOPPED" in done.stdout
        place = rf"{method}.py, line \d+, in {method}\)"
        assert re.search(rf"^stopped: .*raised {kind}: .*{place}", done.stdout, re.MULTILINE)
        deaths = standing.described(method).deaths
        assert [death.times for death in deaths] == [sum(death.times for death in deaths)]
        assert standing.ok("logs", method).count("Traceback") <= 2
        standing.ok("kill", method, "-w", "0")
