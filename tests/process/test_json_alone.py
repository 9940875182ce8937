"""`squall run --json`: stdout is one strict JSON document, whatever users' code prints and measures."""

from __future__ import annotations

import json
from pathlib import Path

from tests.process.cli import squall, start
from tests.schemas import mistakes

FILE = """
import atexit, os, sys
from squall import BasicBolt, Spout, TopologyBuilder
print("at import")
atexit.register(print, "at exit")

class One(Spout):
    outputs = ("n",)
    exhausted = False
    def open(self, conf, context, collector):
        self.collector = collector
    def next_tuple(self):
        if not self.exhausted:
            self.collector.emit((1,), message_id=1)
        self.exhausted = True
    def close(self):
        raise ValueError("h\\n\\x1b]0;T")

class Prints(BasicBolt):
    def prepare(self, conf, context):
        context.gauge("nan", lambda: float("nan"))
        context.gauge("inf", lambda: float("inf"))
    def execute(self, tup, collector):
        print("by print")
        sys.__stdout__.write("past sys.stdout\\n")
        os.write(1, b"past Python\\n")
    def cleanup(self):
        raise SystemExit(0)

def topology():
    builder = TopologyBuilder()
    builder.set_spout("one", One())
    builder.set_bolt("prints", Prints()).shuffle_grouping("one")
    return builder.build()

def leaves():
    print("in the function")
    sys.exit(0)
"""
LOCAL = ("at import", "at exit", "by print", "past sys.stdout", "past Python")


def test_prints_of_components_and_files_go_to_stderr_and_errors_at_the_end_are_told(tmp_path: Path) -> None:
    file = tmp_path / "prints.py"
    file.write_text(FILE)
    for local in (True, False):
        done = squall("run", file, "--json", *(["--local"] if local else ["--quiet"]))
        assert done.returncode == 1, done.stderr
        report = json.loads(done.stdout, parse_constant=lambda name: f"{name} is not JSON")
        assert list(report)[:2] == ["schema", "version"]
        assert mistakes(report) == []
        assert (report["acked"], report["drained"]) == (1, True)
        assert sorted(error.partition(f" ({file}, line ")[0] for error in report["close_errors"]) == [
            "one[2] raised ValueError: h in close", "prints[3] raised SystemExit: 0 in cleanup",
        ]
        assert f"one[2] raised ValueError: h in close ({file}, line " in done.stderr
        assert "\x1b" not in done.stderr
        assert report["metrics"]["prints"] == {"inf": {"3": None}, "nan": {"3": None}}
        for text in LOCAL if local else LOCAL[:2]:
            assert text in done.stderr


def test_a_refusal_leaves_stdout_empty(tmp_path: Path) -> None:
    file = tmp_path / "prints.py"
    file.write_text(FILE)
    done = squall("run", f"{file}:leaves", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"squall: {file}:leaves() ended by sys.exit(); it must return a Topology" in done.stderr


def test_a_report_that_nobody_reads_is_no_error() -> None:
    """As in `squall run ... | head -1`: the exit code stays that of the run."""
    with start("run", "examples/hello_world.py", "--quiet") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(timeout=120) == 0, said
    assert "squall:" not in said
    assert "Exception ignored" not in said
