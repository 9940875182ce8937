"""A topology in the place of another, while the command, Nimbus, or another operator does something else."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.cli import command, environment
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

SECRET = "s3cret-of-the-new-one"
FILE = """
    import os
    import time
    from pathlib import Path
    from squall import Bolt, TopologyBuilder, spout

    @spout("n")
    def numbers(start):
        while True:
            time.sleep(0.001)
            yield start
            start += 1

    class Write(Bolt):
        # It keeps what it gets, and its worker can be stopped meanwhile.
        def prepare(self, conf, context, collector):
            self.collector, self.kept = collector, []

        def execute(self, tup):
            if not tup.is_tick:
                self.kept.append(tup)
            while self.kept and not Path(GATE).exists():
                kept = self.kept.pop(0)
                with open(OUT, "a") as file:
                    print(VERSION, kept["n"], len(os.environ.get("TOKEN", "")), file=file)
                self.collector.ack(kept)

    def topology():
        builder = TopologyBuilder()
        builder.set_spout("numbers", numbers).set_config(max_spout_pending=5)
        builder.set_bolt("write", Write()).shuffle_grouping("numbers").set_config(tick_tuple_freq_secs=0.005)
        return builder.build()
"""


class Held:
    """A topology file whose bolt writes down what it gets, and waits as long as there is a gate."""

    def __init__(self, folder: Path) -> None:
        self.path, self.out, self.gate = folder / "app.py", folder / "out", folder / "gate"

    def write(self, version: str) -> Path:
        text = textwrap.dedent(FILE).replace("GATE", repr(str(self.gate))).replace("OUT", repr(str(self.out)))
        self.path.write_text(text.replace("VERSION", repr(version)))
        return self.path

    def lines(self, version: str) -> list[tuple[int, int]]:
        """(number, length of the secret)."""
        rows = [line.split() for line in self.out.read_text().splitlines()] if self.out.exists() else []
        return [(int(number), int(length)) for found, number, length in rows if found == version]


@pytest.fixture
def held(standing: Standing, tmp_path: Path) -> Iterator[Held]:
    """It runs, and its bolt has a message that it does not finish."""
    made = Held(tmp_path)
    standing.ok("submit", made.write("old"), "--name", "held", "--fresh")
    wait_for("its work", lambda: len(made.lines("old")) > 50)
    made.gate.touch()
    wait_for("a message that waits", lambda: standing.described("held")["pending"] == 5)
    yield made
    made.gate.unlink(missing_ok=True)


def replacing(standing: Standing, *arguments: str | Path) -> subprocess.Popen[str]:
    """The command, on its own."""
    full = command("submit", *arguments, "--name", "held", "--replace", "--dir", standing.path)
    return subprocess.Popen(full, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def successor(standing: Standing) -> Any:
    [row] = standing.json("list")["topologies"]
    return row["replaced_by"]


def test_client_and_nimbus_may_die_in_the_middle(standing: Standing, held: Held) -> None:
    with replacing(standing, held.write("new"), "-w", "300", "--env", f"TOKEN={SECRET}") as client:
        promised = wait_for("the drain", lambda: successor(standing))
        client.kill()
    shown = standing.json("status", "held")
    assert (shown["status"], shown["replaced_by"]["id"]) == ("KILLED", promised)
    said = f"held is being replaced by {promised}, which begins when it has drained"
    assert said in standing.ok("status", "held").splitlines()
    for command_line in (("list",), ("status",)):
        assert f"held is being replaced by {promised}, which begins" in standing.ok(*command_line)

    nimbus = standing.nimbus()
    nimbus.kill()
    wait_for("the next Nimbus", lambda: standing.nimbus().pid != nimbus.pid)
    assert successor(standing) == promised
    for path in standing.path.iterdir():
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    assert not held.lines("new")

    held.gate.unlink()
    wait_for("the new one's work", lambda: len(held.lines("new")) > 20)
    assert standing.json("status", "held")["id"] == promised
    old, new = held.lines("old"), held.lines("new")
    assert [number for number, _ in old] == list(range(len(old)))
    assert [number for number, _ in new] == list(range(len(old), len(old) + len(new))), "the state was kept"
    assert {length for _, length in old} == {0}
    assert {length for _, length in new} == {len(SECRET)}


def test_a_later_one_wins_and_a_kill_ends_all(standing: Standing, held: Held) -> None:
    with replacing(standing, held.write("new"), "-w", "300") as first:
        earlier = wait_for("the first", lambda: successor(standing))
        with replacing(standing, held.write("newer"), "-w", "300", "--fresh") as second:
            later = wait_for("the second", lambda: successor(standing) if successor(standing) != earlier else None)
            _, said = first.communicate(timeout=60)
            assert first.returncode == 1
            assert said == f"squall: topology {earlier} is not there: {later} was submitted in its place meanwhile\n"
            assert f"held is being replaced by {later}," in standing.ok("status", "held")
            refused = standing.refused(2, "deactivate", "held")
            assert refused == f"topology 'held' gives way to {later}: try again when that is there"
            done = standing.run("kill", "held", "-w", "0")
            assert (done.returncode, f"{later}, which was to take its place, is dropped\n" in done.stderr) == (0, True)
            _, said = second.communicate(timeout=60)
    assert second.returncode == 1
    assert said == f"squall: topology {later} is not there: held was killed meanwhile\n"
    assert standing.json("list")["topologies"] == []
    assert list(standing.run_dir.code.iterdir()) == []
