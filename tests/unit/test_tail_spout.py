"""A TailSpout emits every line of a log once, in order, however the log is rotated and whoever dies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall import Config, TailSpout, UsageError
from squall.testing import SimulatedCluster
from tests.unit.rig import Does, keeps
from tests.unit.wired import wired


class Lab:
    """One life of the spout's worker."""

    def __init__(self, log: Path, quiet_secs: float = 2) -> None:
        builder = wired(tail=(TailSpout(log, quiet_secs=quiet_secs), 2), holds=(Does(keeps), 1, "global tail"))
        self.cluster = SimulatedCluster(
            builder.build(), Config(max_spout_pending=None), state_root=log.parent / "state"
        )
        self.bolt: Does = self.cluster.user("holds", 0)
        self.go()

    def go(self, secs: float = 0.3) -> None:
        for _ in range(round(secs / 0.15)):
            self.cluster.advance(0.15)

    def lines(self) -> list[str]:
        return [text for text, *_ in self.bolt.own]

    def ids(self) -> dict[str, object]:
        """The message ids of the lines that are held."""
        spout: TailSpout = self.cluster.user("tail", 0)
        return dict(zip((tup["text"] for tup in self.bolt.kept), spout.unacked, strict=True))

    def ack(self, count: int = 1_000_000) -> None:
        for tup in self.bolt.kept[:count]:
            self.bolt.collector.ack(tup)
        del self.bolt.kept[:count]

    def die(self) -> None:
        self.cluster.kill(0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "access.log"


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def rename(log: Path) -> None:
    for number in range(8, 0, -1):
        old = log.with_name(f"{log.name}.{number}")
        if old.exists():
            old.rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))


def test_rotations_while_nothing_runs(log: Path) -> None:
    write(log, *(f"0 {number}" for number in range(10)))
    lab = Lab(log)
    lab.ack(4)
    lab.go()
    before = lab.ids()
    lab.die()
    for life in (1, 2, 3):
        rename(log)
        write(log, f"{life} first", f"{life} last")
    after = Lab(log)
    after.go(5)
    assert after.lines() == [f"0 {n}" for n in range(4, 10)] + [f"{n} {w}" for n in "123" for w in ("first", "last")]
    assert before.items() <= after.ids().items()
    after.ack()
    after.go()
    after.die()
    assert Lab(log).lines() == []


def test_a_file_that_is_gone_is_told(log: Path) -> None:
    write(log, "one")
    Lab(log).die()
    log.unlink()
    write(log, "two")
    lab = Lab(log)
    lab.go(2.5)
    assert lab.lines() == ["two"]
    assert " is gone" in str(lab.cluster.errors)


def test_dates_as_names(log: Path) -> None:
    for name in ("-20261122", "-20261121", ".2026-11-20", ""):
        write(log.with_name(log.name + name), name)
    lab = Lab(log)
    lab.go(3)
    assert lab.lines() == [".2026-11-20", "-20261121", "-20261122", ""]


def test_quiet_secs_are_waited_for(log: Path) -> None:
    write(log, "one")
    lab = Lab(log, quiet_secs=6)
    rename(log)
    write(log, "two")
    lab.go(5)
    assert lab.lines() == ["one"]
    lab.go(2)
    assert lab.lines() == ["one", "two"]


def test_a_line_of_megabytes_is_cut(log: Path) -> None:
    log.write_bytes(b"x" * (2**20 + 5) + b"\nnext\n")
    lab = Lab(log)
    lab.go()
    assert [len(line) for line in lab.lines()] == [2**20, 5, 4]


def test_wrong_arguments(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "access.log", tmp_path):
        with pytest.raises(UsageError, match="is no text file, or in no directory"):
            TailSpout(path)
    with pytest.raises(UsageError, match="quiet_secs is -1"):
        TailSpout(tmp_path / "access.log", quiet_secs=-1)


def test_only_whole_lines_of_the_log_and_its_rotated_files(log: Path) -> None:
    for name in ("access.log.bak", "access.log.1.gz", "access.log.x1", "other.log.1", "access.logs.1"):
        write(log.with_name(name), "not mine")
    os.mkfifo(log.with_name("access.log.4"))
    lab = Lab(log)
    assert lab.lines() == []
    log.write_text("one\ntw")
    lab.go()
    assert lab.lines() == ["one"]
    write(log, "o", "", "thr\ree\r")
    lab.go()
    assert lab.lines() == ["one", "two", "", "thr\ree"]


def test_a_log_is_caught_up_when_its_lines_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a\n")
    lab = Lab(log)
    spout: TailSpout = lab.cluster.user("tail", 0)
    [(message_id, _)] = spout.kept.values()
    assert spout.partitions() == {message_id[:1]: True}
    assert lab.cluster.user("tail", 1).partitions() == {}
    lab.die()
