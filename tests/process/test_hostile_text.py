"""A topology whose values, ids, exceptions and prints are hostile to terminals, seen by the commands that show them."""

from __future__ import annotations

from pathlib import Path

from tests.process.cli import squall
from tests.process.standing_tools import Finished, Standing
from tests.process.waiting import wait_for
from tests.unit.test_user_text import dangerous

FILE = r'''
from squall import BasicBolt, Spout, TopologyBuilder

HOSTILE = "\x1b]0;owned\x07[bold]x\nforged line\r\u202e\u2028\x9b2J"
print(HOSTILE)

class Source(Spout):
    outputs = ("word",)
    exhausted = False

    def open(self, conf, context, collector):
        self.collector, self.left = collector, [f"{number}{HOSTILE}" for number in range(4)]

    def next_tuple(self):
        if self.left:
            word = self.left.pop()
            self.collector.emit((word,), message_id=word)
        self.exhausted = not self.left

class Bolt(BasicBolt):
    def prepare(self, conf, context):
        self.counter = context.counter("seen")

    def execute(self, tup, collector):
        print(tup[0])
        raise Exception(HOSTILE + tup[0])

def topology():
    builder = TopologyBuilder()
    builder.set_spout("source", Source())
    builder.set_bolt("bolt", Bolt()).shuffle_grouping("source")
    return builder.build()
'''


def check(done: Finished, code: int = 0, shows: str = "[bold]x") -> None:
    """What the file prints while it is imported in a process of its own is its own, and not in `done`."""
    for stream in (done.stdout, done.stderr):
        assert dangerous(stream, but="\n\t") == []
    assert not any(line.startswith("forged") for line in (done.stdout + done.stderr).splitlines())
    assert done.returncode == code, done.stderr
    assert shows in done.stdout + done.stderr


def test_the_commands_of_a_standing_cluster(standing: Standing, tmp_path: Path) -> None:
    file = tmp_path / "hostile.py"
    file.write_text(FILE)
    submitted = standing.run("submit", file, "--name", "hostile", "--set", "max_attempts=1")
    check(submitted, shows="hostile runs on 1 worker")
    wait_for("the dead letters", lambda: standing.described("hostile").dead_letters == 4)
    check(standing.run("status", "hostile"), shows="\\x1b]0;owned\\x07[bold]x")
    check(standing.run("status", "hostile", "--json"), shows="owned")
    check(standing.run("logs", "hostile"), shows="] forged line")
    check(standing.run("list"), shows="hostile")
    check(standing.run("dead-letters", "hostile", "--dir", standing.path))
    file.write_text(FILE + "raise ValueError(HOSTILE)\n")
    refused = standing.run("submit", file, "--name", "\x1b[2Jno")
    check(refused, 2, "\\x1b[2Jno")
    refused = standing.run("--debug", "submit", file, "--name", "no")
    check(refused, 2, "importing it raised ValueError: \\x1b]0;owned\\x07[bold]x")


BEYOND = r"""
from squall import Config, FailedTuple, TopologyBuilder, bolt, spout

@spout("n")
def numbers():
    return range(30)

@bolt
def print_it(tup):
    print("\u00fc", "\udcff")
    if tup["n"] < 25:
        raise FailedTuple("never")

def topology():
    builder = TopologyBuilder(Config(max_attempts=1))
    builder.set_spout("numbers", numbers)
    builder.set_bolt("print_\u00fc", print_it).shuffle_grouping("numbers")
    return builder.build()
"""


def test_what_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    file = tmp_path / "beyond.py"
    file.write_text(BEYOND)
    done = squall("run", file, PYTHONIOENCODING="ascii")
    assert done.returncode == 3, done.stderr
    assert r"print_\xfc" in done.stdout
    assert r"\xfc \udcff" in done.stderr
