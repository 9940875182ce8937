"""A store whose files were altered by a bit, or whose writer was killed: as it was, and never an empty one."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest

from squall.scheduler.common.messages import Assignment, ExecutorRef, RestartRecord, SlotRef, TopologyRecord
from squall.scheduler.nimbus.store import DELETED_KEPT, Store, StoreError

FLIPS = 60


def record(name: str, number: int) -> TopologyRecord:
    return TopologyRecord(f"{name}-{number}-0a0b0c0d", name, "ACTIVE", {"workers": 2}, [], "ab" * 32, ["x"], 1.5)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    directory = tmp_path / "whole"
    directory.mkdir()
    with Store(directory / "nimbus.db") as store:
        for number, name in enumerate(("one", "two", "three"), 1):
            topology = record(name, number)
            store.put_topology(topology)
            workers = [SlotRef("node-1", 6700 + number)]
            store.put_assignment(Assignment(topology.id, 1, workers, [[ExecutorRef("lines", 1, 2)]]))
            store.add_restart(topology.id, RestartRecord("node-1:6700", 1, "killed by SIGKILL", "", 10.0, None))
        store.delete_topology(record("three", 3).id)
    return directory


def names(path: Path) -> list[str]:
    with Store(path) as store:
        return [stored.record.name for stored in store.topologies()]


@pytest.mark.parametrize("both", [False, True])
def test_a_flipped_bit_loses_no_topology_in_silence(whole: Path, tmp_path: Path, both: bool, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(FLIPS):
        copy = tmp_path / "copy"
        shutil.copytree(whole, copy)
        for name in ("nimbus.db", "nimbus.db.copy")[: 1 + both]:
            data = (whole / name).read_bytes()
            at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
            (copy / name).write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        # A StoreError of one line, or all.
        with contextlib.suppress(StoreError):
            assert len(names(copy / "nimbus.db")) == 2
        shutil.rmtree(copy)


def test_a_change_that_was_cut_short_is_undone(whole: Path, tmp_path: Path) -> None:
    """What `kill -9` leaves in the middle of a large change."""
    hot = tmp_path / "hot"
    with Store(whole / "nimbus.db") as store, store.transaction():
        for number in range(4, 40):
            topology = record(f"t{number}", number)
            store.put_topology(topology)
            # More than SQLite keeps in memory, so that it writes before the end.
            store.put_assignment(Assignment(topology.id, 1, [SlotRef("n" * 100_000, 1)], [[]]))
        shutil.copytree(whole, hot)
    assert (hot / "nimbus.db-journal").read_bytes()
    assert (hot / "nimbus.db").stat().st_size > 40_000, "nothing spilled"
    assert names(hot / "nimbus.db") == ["one", "two"]
    assert len(names(whole / "nimbus.db")) == 38


def test_deleted_ids_are_kept_and_bounded(tmp_path: Path) -> None:
    with Store(tmp_path / "nimbus.db") as store:
        with store.transaction():
            for number in range(DELETED_KEPT + 5):
                store.put_deleted(f"x-{number}")
        assert len(store.deleted()) == DELETED_KEPT
        assert f"x-{DELETED_KEPT + 4}" in store.deleted()
        assert "x-4" not in store.deleted()
