"""A store whose files were cut, altered, removed or put back from an older copy: as it was, or refused; never less."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from squall.engine.errors import ClusterError
from squall.scheduler.common.messages import (
    Assignment,
    ComponentSummary,
    ExecutorRef,
    RestartRecord,
    SlotRef,
    TopologyRecord,
)
from squall.scheduler.nimbus.store import DELETED_KEPT, STORE_FILES, Store, StoreError
from squall.scheduler.nimbus.store_seal import Seal, SealDamaged, read_seal

FLIPS = 60


def record(name: str, number: int) -> TopologyRecord:
    components = [ComponentSummary("lines", "spout", 2, 1)]
    conf = {"workers": 2}
    return TopologyRecord(f"{name}-{number}-0a0b0c0d", name, "ACTIVE", conf, components, "ab" * 32, ["x"], 1.5)


def death(incarnation: int) -> RestartRecord:
    return RestartRecord("node-1:6700", incarnation, "killed by SIGKILL", "Traceback", 10.0 + incarnation, None)


def fill(store: Store) -> None:
    for number, name in enumerate(("one", "two", "three"), 1):
        topology = record(name, number)
        store.put_topology(topology)
        workers = [SlotRef("node-1", 6700 + number)]
        store.put_assignment(Assignment(topology.id, 1, workers, [[ExecutorRef("lines", 1, 2)]]))
        for incarnation in range(1, 4):
            store.add_restart(topology.id, death(incarnation))
    store.delete_topology(record("three", 3).id)
    store.set_status(record("two", 2).id, "KILLED", 3.0)


def content(path: Path) -> object:
    with Store(path) as store:
        topologies = store.topologies()
        deaths = [store.restarts(topology.record.id) for topology in topologies]
        return topologies, deaths, store.next_number(), store.deleted()


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def opened(directory: Path) -> tuple[object, str]:
    """What is in it, or the words it was refused with."""
    try:
        return content(directory / "nimbus.db"), ""
    except StoreError as error:
        return None, str(error)


def as_it_was_or_refused(directory: Path, before: object) -> None:
    there = files(directory)
    now, error = opened(directory)
    if not error:
        assert now == before
        return
    assert "nimbus.db" in error
    assert "\n" not in error
    assert {name: data for name, data in files(directory).items() if there.get(name) != data} == {}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    directory = tmp_path / "whole"
    directory.mkdir()
    with Store(directory / "nimbus.db") as store:
        fill(store)
    return directory


@pytest.mark.parametrize("name", ["nimbus.db", "nimbus.seal"])
def test_a_flipped_bit_is_no_other_store(whole: Path, tmp_path: Path, name: str, seed: int) -> None:
    before, rng = content(whole / "nimbus.db"), random.Random(seed)
    data = (whole / name).read_bytes()
    refused = 0
    for _ in range(FLIPS):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        copy = tmp_path / "copy"
        shutil.copytree(whole, copy)
        (copy / name).write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        as_it_was_or_refused(copy, before)
        refused += bool(opened(copy)[1])
        shutil.rmtree(copy)
    assert refused


def test_rows_that_decode_after_a_flip_are_refused(whole: Path) -> None:
    """As `quick_check` does not see: a letter of a name, in the middle of a record."""
    path = whole / "nimbus.db"
    data = path.read_bytes()
    assert b"killed by SIGKILL" in data
    for word, other in ((b"KILLED", b"ACTIVE"), (b"killed by SIGKILL", b"killed by SIGKISS")):
        path.write_bytes(data.replace(word, other))
        with pytest.raises(ClusterError, match=r"nimbus\.db is damaged"):
            Store(path)


@pytest.mark.parametrize("name", ["nimbus.db", "nimbus.db-journal", "nimbus.seal"])
@pytest.mark.parametrize("kept", [None, 0.0, 0.3, 0.99])
def test_a_cut_or_missing_file_is_no_other_store(whole: Path, name: str, kept: float | None) -> None:
    before, path = content(whole / "nimbus.db"), whole / name
    if kept is None:
        path.unlink()
    else:
        os.truncate(path, int(kept * path.stat().st_size))
    as_it_was_or_refused(whole, before)
    if name == "nimbus.db":
        with pytest.raises(StoreError, match="is damaged"):
            Store(path)


def test_every_altered_byte_of_a_seal_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "seal"
    written = Seal(7, "0" * 64).encode()
    for at in range(len(written)):
        path.write_bytes(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
        with pytest.raises(SealDamaged, match="seal is damaged"):
            read_seal(str(path))
    path.write_bytes(written)
    assert read_seal(str(path)) == Seal(7, "0" * 64)


@pytest.mark.parametrize(("generation", "digest", "before", "fits"), [
    (7, "now", "before", True), (7, "other", "before", False), (7, "other", "now", False),
    (8, "next", "now", True), (8, "next", "other", False), (9, "after", "now", False), (6, "now", "now", False),
])
def test_a_seal_fits_its_own_state_and_the_one_after(generation: int, digest: str, before: str, fits: bool) -> None:
    assert Seal(7, "now").fits(generation, digest, before) == fits


def test_an_older_state_of_the_file_is_refused(whole: Path) -> None:
    path = whole / "nimbus.db"
    older = path.read_bytes()
    with Store(path) as store:
        store.put_topology(record("four", 4))
        store.put_topology(record("five", 5))
    path.write_bytes(older)
    with pytest.raises(ClusterError, match=r"is damaged \(it is change \d+, the seal beside it is of change \d+\)"):
        Store(path)


def test_one_that_died_between_commit_and_seal_is_whole(whole: Path) -> None:
    path, seal = whole / "nimbus.db", whole / "nimbus.seal"
    older = seal.read_bytes()
    with Store(path) as store:
        store.put_topology(record("four", 4))
    seal.write_bytes(older)
    with Store(path) as store:
        assert [stored.record.name for stored in store.topologies()] == ["one", "two", "four"]
        store.put_topology(record("five", 5))
    Store(path).close()


def test_one_that_died_before_its_first_seal_is_whole(tmp_path: Path) -> None:
    path, seal = tmp_path / "nimbus.db", tmp_path / "nimbus.seal"
    with Store(path) as store:
        store.put_topology(record("one", 1))
    seal.rename(f"{seal}.new")
    with Store(path) as store:
        assert [stored.record.name for stored in store.topologies()] == ["one"]
        store.put_topology(record("two", 2))
    assert seal.exists()
    seal.unlink()
    with pytest.raises(StoreError, match=r"its seal .* is missing"):
        Store(path)


@pytest.mark.parametrize("prepared", [b"", Seal(1, "0" * 64).encode()])
def test_one_of_a_single_change_needs_its_seal_too(tmp_path: Path, prepared: bytes) -> None:
    path, seal = tmp_path / "nimbus.db", tmp_path / "nimbus.seal"
    with Store(path) as store:
        store.put_topology(record("one", 1))
    seal.unlink()
    if prepared:
        seal.with_name("nimbus.seal.new").write_bytes(prepared)
    with pytest.raises(StoreError, match=r"its seal .* is missing.* --believe"):
        Store(path)
    Store(path, believe=True).close()
    Store(path).close()


def test_the_journal_of_a_change_that_was_cut_short(whole: Path, tmp_path: Path, seed: int) -> None:
    """What `kill -9` leaves in the middle of a large change, whole and altered."""
    before, rng = content(whole / "nimbus.db"), random.Random(seed)
    hot = tmp_path / "hot"
    with Store(whole / "nimbus.db") as store, store.transaction():
        for number in range(4, 40):
            topology = record(f"t{number}", number)
            store.put_topology(topology)
            # More than SQLite keeps in memory, so that it writes before the end.
            store.put_assignment(Assignment(topology.id, 1, [SlotRef("n" * 100_000, 1)], [[]]))
        shutil.copytree(whole, hot)
    journal = (hot / "nimbus.db-journal").read_bytes()
    assert journal
    assert (hot / "nimbus.db").stat().st_size > 40_000, "nothing spilled"
    for flip in range(25):
        copy = tmp_path / "copy"
        shutil.copytree(hot, copy)
        if flip:
            at = rng.randrange(len(journal))
            (copy / "nimbus.db-journal").write_bytes(journal[:at] + bytes([journal[at] ^ 4]) + journal[at + 1 :])
        now, error = opened(copy)
        # A flip in the first page's version number makes it another version's file.
        assert (flip and ("is damaged" in error or "has version" in error)) or now == before
        shutil.rmtree(copy)


def test_one_without_a_column_or_table_is_damaged(whole: Path) -> None:
    """What a bit flipped in the schema's own rows looks like: the file is sound, our statements are not."""
    for change in ("ALTER TABLE topology RENAME COLUMN restarts_total TO sestarts_total", "DROP TABLE seal"):
        path = whole.with_name("altered") / "nimbus.db"
        shutil.copytree(whole, path.parent)
        with closing(sqlite3.connect(path)) as db:
            db.execute(change)
        with pytest.raises(StoreError, match="is damaged") as caught:
            Store(path)
        assert "squall repair" in str(caught.value)
        shutil.rmtree(path.parent)


def test_an_operator_may_believe_what_can_be_read(whole: Path) -> None:
    path = whole / "nimbus.db"
    before = content(path)
    (whole / "nimbus.seal").unlink()
    with pytest.raises(StoreError, match=r"its seal .* is missing"):
        Store(path)
    Store(path, believe=True).close()
    assert content(path) == before


def test_deleted_ids_are_kept_and_bounded(tmp_path: Path) -> None:
    with Store(tmp_path / "nimbus.db") as store:
        with store.transaction():
            for number in range(DELETED_KEPT + 5):
                store.put_deleted(f"x-{number}")
        assert len(store.deleted()) == DELETED_KEPT
        assert f"x-{DELETED_KEPT + 4}" in store.deleted()
        assert "x-4" not in store.deleted()


def test_what_a_store_has_on_disk_is_listed(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} <= set(STORE_FILES)
