"""Every file of a run directory, one at a time: a bit flipped, cut, removed, while Nimbus is down.

The next Nimbus goes on as before, or refuses in one line; nothing else is removed or altered, and nothing is stopped.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall import SquallError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import AssignNode, RegisterSupervisor, TopologyRecord
from squall.scheduler.nimbus.store import Store
from tests.unit.run_dirs import add_topology, files_of, nimbus_in

STORE = ("nimbus.db", "nimbus.db-journal", "nimbus.db.copy")
OTHERS = (
    "key", "lock", "starting", "boards/one-1-0a0b0c0d", "boards/two-2-0a0b0c0d", "n/node-1.sock",
    "n/node-1-6700.worker", "s/node-1-6700-2", "logs/nimbus.log", "logs/one-1-0a0b0c0d/node-1-6700.log",
    "logs/history-node-1.jsonl",
    "state/one/numbers-0/position", "state/one/dead-letters.jsonl", "state/one/.attempts/numbers-0",
    "failures/one-1-0a0b0c0d/slot-0", "metrics/one-1-0a0b0c0d/0-2.json",
)
MAY_BE_MADE_ANEW = ("lock", *STORE, "nimbus.db.damaged", "nimbus.db-journal.damaged")


@pytest.fixture
def whole() -> Iterator[RunDir]:
    run_dir = RunDir.create()
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1, os.getpid())
        add_topology(run_dir, store, "two", 2)
    for name in OTHERS:
        path = run_dir.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(b"what somebody keeps in " + name.encode())
    assert one.id == "one-1-0a0b0c0d"
    yield run_dir
    run_dir.remove()


def damages(data: bytes, rng: random.Random) -> Iterator[bytes | None]:
    """None: the file is removed."""
    yield None
    yield b""
    yield data[: len(data) // 2]
    for _ in range(2):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        yield data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def started(path: Path) -> tuple[list[TopologyRecord], list[str], AssignNode] | str:
    """What a Nimbus that starts there knows, and wants of the node; or the line it refuses with."""
    try:
        with nimbus_in(path) as service:
            service.nimbus.register_supervisor(RegisterSupervisor("node-1", [6700, 6701], 1, HOLDS), 0.0)
            cluster = service.nimbus.cluster()
            return cluster.topologies, cluster.unknown, service.nimbus.assign_node("node-1")
    except SquallError as error:
        return str(error)


HOLDS = {6700: "one-1-0a0b0c0d", 6701: "two-2-0a0b0c0d"}


def check_each(whole: RunDir, names: list[str], seed: int) -> list[str]:
    """Damages each in each way; the lines of refusals."""
    rng, refusals = random.Random(seed), []
    kept = whole.path.with_name("kept")
    shutil.copytree(whole.path, kept, ignore=shutil.ignore_patterns("creator"))
    try:
        before = started(whole.path)
        assert isinstance(before, tuple)
        assert [each.name for each in before[0]] == ["one", "two"]
        for name in names:
            data = (kept / name).read_bytes()
            for damaged in damages(data, rng) if data else [None]:
                _put_back(whole.path, kept)
                path = whole.path / name
                path.unlink() if damaged is None else path.write_bytes(damaged)
                there = files_of(whole.path)
                now = started(whole.path)
                for other, content in files_of(whole.path).items():
                    there_before = there.pop(other, None)
                    altered = other not in (*MAY_BE_MADE_ANEW, name) and there_before != content
                    assert not altered, (name, damaged, other)
                assert set(there) <= {*MAY_BE_MADE_ANEW}, (name, damaged, there.keys())
                if isinstance(now, str):
                    assert "\n" not in now
                    assert str(whole.path) in now
                    refusals.append(f"{name}: {now}")
                else:
                    assert now == before, (name, damaged)
    finally:
        shutil.rmtree(kept)
    return refusals


def _put_back(path: Path, kept: Path) -> None:
    for file in path.rglob("*"):
        if file.is_file() and file.name != "creator":
            file.unlink()
    shutil.copytree(kept, path, dirs_exist_ok=True)


def test_files_beside_the_store(whole: RunDir, seed: int) -> None:
    refusals = check_each(whole, list(OTHERS), seed)
    # A key that is gone is made anew by `squall up`; one that was cut is named.
    assert {line.partition(":")[0] for line in refusals} == {"key"}


def test_a_store_that_is_gone_with_its_copy_is_no_empty_one(whole: RunDir) -> None:
    for name in STORE:
        (whole.path / name).unlink(missing_ok=True)
    there = files_of(whole.path)
    refusal = started(whole.path)
    assert isinstance(refusal, str)
    assert "nimbus.db is missing, though there is" in refusal
    assert files_of(whole.path) | {"lock": b""} == there | {"lock": b""}
