"""The store of Nimbus: durable, checked, and written only for a change; damaged by a bit, or cut short by a kill, it is
as it was, and never an empty one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from squall import ClusterError, UsageError
from squall.engine.api.plan import ExecutorPlan
from squall.ipc.rundir import RunDir
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import (
    Assignment,
    ComponentSummary,
    NamedTopology,
    RegisterSupervisor,
    RestartRecord,
    SlotRef,
    TopologyRecord,
)
from squall.scheduler.nimbus.books import DELETED_KEPT, StoreError
from squall.scheduler.nimbus.store import SCHEMA_VERSION, STORE_FILES, Store
from squall.scheduler.nimbus.topology_life import RESTARTS_KEPT
from tests.effects import dies_at, effects_of
from tests.unit.full_disk import no_room
from tests.unit.run_dirs import LimitedStore, add_topology, nimbus_in


def record(name: str, number: int = 1) -> TopologyRecord:
    components = [ComponentSummary("lines", "spout", 2, 1)]
    conf = {"workers": 2, "max_attempts": None, "extra": {"a.b": [1, 2.5]}}
    return TopologyRecord(f"{name}-{number}-0a0b0c0d", name, "ACTIVE", conf, components, "ab" * 32, ["lib"], 1.5)


def assignment(topology: TopologyRecord, version: int = 1) -> Assignment:
    return Assignment(topology.id, version, [SlotRef("node-1", 6700)], [[ExecutorPlan("lines", 1, 2)]])


def death(incarnation: int, ready_after_secs: float | None = None) -> RestartRecord:
    return RestartRecord("node-1:6700", incarnation, "killed by SIGKILL", "", 10.0 + incarnation, ready_after_secs)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nimbus.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


def names(path: Path) -> list[str]:
    with Store(path) as store:
        return [stored.record.name for stored in store.topologies()]


def test_delete_forgets_everything_but_the_number(store: Store) -> None:
    one = record("one")
    store.put_topology(one)
    store.put_assignment(assignment(one))
    store.add_restart(one.id, death(1))
    assert store.next_number() == 2
    store.delete_topology(one.id)
    assert store.topologies() == []
    assert store.next_number() == 2
    store.put_topology(one)
    assert store.topologies() == [(one, None, [], 0)]


def test_a_death_is_counted_once_and_updated(store: Store) -> None:
    one = record("one")
    store.put_topology(one)
    store.add_restart(one.id, death(1))
    store.add_restart(one.id, death(2))
    store.add_restart(one.id, death(1, ready_after_secs=0.02))
    assert store.topologies() == [(one, None, [death(1, 0.02), death(2)], 2)]


def test_deaths_are_bounded_and_all_counted(store: Store) -> None:
    one = record("one")
    store.put_topology(one)
    with store.transaction():
        for incarnation in range(1, RESTARTS_KEPT + 6):
            store.add_restart(one.id, death(incarnation))
    [(_, _, kept, total)] = store.topologies()
    assert [each.incarnation for each in kept] == list(range(6, RESTARTS_KEPT + 6))
    assert total == RESTARTS_KEPT + 5


def test_a_transaction_is_all_or_nothing(store: Store) -> None:
    def change() -> None:
        with store.transaction():
            store.put_assignment(assignment(record("one")))
            store.put_topology(record("two", 2))
            raise ClusterError("no")

    store.put_topology(record("one"))
    with pytest.raises(ClusterError, match="no"):
        change()
    assert store.topologies() == [(record("one"), None, [], 0)]
    store.put_topology(record("three", 2))
    assert store.next_number() == 3


def test_a_full_disk_is_one_clear_error_and_changes_nothing(path: Path) -> None:
    big = msgspec.structs.replace(record("two", 2), sys_path=["x" * 100_000])
    with LimitedStore(path) as store:
        store.put_topology(record("one"))
        store.limit_growth(True)
        with pytest.raises(ClusterError, match=r"nimbus\.db: .* full$"), store.transaction():
            store.put_topology(big)
        assert [stored.record for stored in store.topologies()] == [record("one")]
        store.limit_growth(False)
        store.put_topology(big)


def test_a_store_without_room_is_not_there(path: Path) -> None:
    with no_room(), pytest.raises(ClusterError):
        Store(path)
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("known", [0, 1])
def test_a_store_whose_writer_dies_again_and_again_at_the_same_effect_is_whole(tmp_path: Path, known: int) -> None:
    def submit(path: Path, number: int) -> None:
        with Store(path) as store:
            store.put_topology(record(f"t{number}", number))

    def begun(name: object) -> Path:
        path = tmp_path / str(name) / "nimbus.db"
        path.parent.mkdir()
        if known:
            submit(path, 1)
        return path

    for nth, effect in enumerate(effects_of(partial(submit, begun("whole"), 2)), 1):
        print(f"dies at {nth}, {effect}")
        path = begun(nth)
        returned = [f"t{number}" for number in (2, 3, 4) if not dies_at(nth, partial(submit, path, number))]
        found = names(path)
        assert found[:known] == ["t1"][:known]
        assert set(returned) <= set(found[known:]) <= {"t2", "t3", "t4"}
        assert {file.name for file in path.parent.iterdir()} <= {*STORE_FILES}


def foreign(whole: bytes) -> bytes:
    """What another program keeps in SQLite."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE theirs (x)")
        return db.serialize()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "noise": lambda whole: os.urandom(len(whole)), "empty": lambda whole: b"", "foreign": foreign,
    "bytes": lambda whole: whole[:4096] + b"\xff" * (len(whole) - 4096), "cut": lambda whole: whole[: len(whole) // 2],
}


@pytest.mark.parametrize("damage", [*DAMAGES, "lost"])
def test_a_damaged_store_goes_on_from_its_copy_or_is_refused(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(path) as store:
        store.put_topology(record("one"))
        store.put_topology(record("two", 2))
        store.add_restart(record("one").id, death(1))
        store.delete_topology(record("two", 2).id)
    whole = path.read_bytes()

    def spoil(spoilt: Path) -> None:
        spoilt.unlink() if damage == "lost" else spoilt.write_bytes(DAMAGES[damage](whole))

    spoil(path)
    with Store(path) as store:
        assert [stored.record for stored in store.topologies()] == [record("one")]
        assert store.deleted() == {record("two", 2).id}
        assert store.next_number() == 3
    assert "goes on in its place" in caplog.text
    if damage != "lost":
        assert path.with_name("nimbus.db.damaged").exists()
        spoil(path)
        spoil(path.with_name("nimbus.db.copy"))
        with pytest.raises(ClusterError, match=r"nimbus\.db is damaged .*; nothing was stopped or removed: put back"):
            Store(path)


def test_another_version_is_refused(path: Path) -> None:
    Store(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(ClusterError, match=f"has version {SCHEMA_VERSION + 1}, this Squall reads {SCHEMA_VERSION}"):
        Store(path)


FLIPS = 60


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The directory of a store that has had three topologies."""
    directory = tmp_path / "whole"
    directory.mkdir()
    with Store(directory / "nimbus.db") as store:
        for number, name in enumerate(("one", "two", "three"), 1):
            store.put_topology(record(name, number))
            store.put_assignment(assignment(record(name, number)))
            store.add_restart(record(name, number).id, death(1))
        store.delete_topology(record("three", 3).id)
    return directory


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

    class Copied(Store):
        def _run(self, sql: str, *values: object) -> sqlite3.Cursor:
            if sql == "COMMIT":
                shutil.copytree(whole, hot)
            return super()._run(sql, *values)

    with Copied(whole / "nimbus.db") as store, store.transaction():
        for number in range(4, 40):
            # More than SQLite keeps in memory, so that it writes before the end.
            store.put_topology(msgspec.structs.replace(record(f"t{number}", number), sys_path=["x" * 100_000]))
    assert (hot / "nimbus.db-journal").read_bytes()
    assert (hot / "nimbus.db").stat().st_size > 40_000, "nothing spilled"
    assert names(hot / "nimbus.db") == ["one", "two"]
    assert len(names(whole / "nimbus.db")) == 38


def test_deleted_ids_are_kept_and_bounded(store: Store) -> None:
    with store.transaction():
        for number in range(DELETED_KEPT + 5):
            store.put_deleted(f"x-{number}")
    assert store.deleted() == {f"x-{number}" for number in range(5, DELETED_KEPT + 5)}


# ---- code store ----


def test_code_is_found_by_its_digest(tmp_path: Path) -> None:
    codes = CodeStore(tmp_path)
    digest = codes.put(b"code")
    assert digest == hashlib.sha256(b"code").hexdigest()
    assert codes.put(b"code") == digest
    assert codes.get(digest) == b"code"
    assert digest in codes
    assert "0" * 64 not in codes
    assert os.listdir(tmp_path) == [digest]
    assert (tmp_path / digest).stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_store_is_not_swept(tmp_path: Path) -> None:
    (tmp_path / "code").symlink_to(tmp_path)
    with pytest.raises(ClusterError, match="cannot lock code store"):
        CodeStore(tmp_path / "code").keep_only(())
    assert (tmp_path / "code").is_symlink()


def test_damaged_code_is_refused_until_it_is_put_again(tmp_path: Path) -> None:
    codes = CodeStore(tmp_path)
    digest = codes.put(b"code")
    (tmp_path / digest).write_bytes(b"cod")
    with pytest.raises(ClusterError, match="damaged"):
        codes.get(digest)
    codes.put(b"code")
    assert codes.get(digest) == b"code"


@pytest.mark.parametrize("name", ["", "../key", "A" * 64, "a" * 64 + "\n"])
def test_names_that_are_no_digest_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="64 hex digits"):
        CodeStore(tmp_path).get(name)


def test_a_supervisor_that_registers_is_no_change(run_dir: RunDir) -> None:
    with Store(run_dir.nimbus_db) as store:
        one = add_topology(run_dir, store, "one", 1)
    with nimbus_in(run_dir.path) as service:
        before = run_dir.nimbus_db.read_bytes()
        wanted = service.call("register_supervisor", RegisterSupervisor("node-1", [6700], 1, {6700: one.id}))
        assert list(wanted.slots) == [6700]
        assert run_dir.nimbus_db.read_bytes() == before
        service.call("deactivate", NamedTopology("one"))
        assert run_dir.nimbus_db.read_bytes() != before
