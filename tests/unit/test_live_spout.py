"""The inlet between a streaming query and a LiveSpout: a batch is done when all its rows are acked, whoever dies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from squall import LiveSpout, UsageError
from squall.engine.errors import ClusterError
from squall.pipeline.inlet import Batch, Inlet, InletClaims, InletSource
from tests.inlet_lab import OTHER, QUERY, Lab, put

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in let"


def finish(batch: Batch) -> None:
    batch.note_acked()
    batch.clear()


def test_a_batch_is_done_when_its_last_row_is_acked(path: Path) -> None:
    with Lab(path, "n") as lab:
        lab.go()
        batch = put(path, 0, range(30))
        lab.go()
        assert sorted(lab.bolt.seen) == list(range(30))
        assert batch.progress() == (0, 30)
        first = lab.bolt.kept.pop(0)
        lab.bolt.ack()
        lab.go()
        done, rows = batch.progress()
        assert 0 < done < rows == 30
        lab.bolt.collector.ack(first)
        lab.go()
        assert batch.progress() == (30, 30)
        finish(batch)
        assert sorted(os.listdir(path)) == ["_acked", "_claims", "_reader"]
        assert os.listdir(path / "_claims") == [name for name in os.listdir(path / "_claims") if name.endswith(".new")]
        later = put(path, 1, range(30, 40))
        lab.go()
        assert sorted(lab.bolt.seen) == list(range(40))
        assert later.progress() == (0, 10)


def test_after_a_death_of_everything_only_rows_that_were_not_acked_come_again(path: Path) -> None:
    with Lab(path, "n") as lab:
        put(path, 0, range(30))
        lab.go()
        lab.bolt.ack(12)
        lab.go()
    with Lab(path, "n") as lab:
        lab.go()
        assert len(lab.bolt.seen) == 18
        lab.bolt.ack()
        lab.go()
    assert Batch(Inlet(path), QUERY, 0).progress() == (30, 30)


def test_a_batch_that_was_acked_is_known_after_a_death_of_the_query(path: Path) -> None:
    with Lab(path, "n") as lab:
        finish_me = put(path, 3, range(10))
        lab.go()
        lab.bolt.ack()
        lab.go()
        # Killed when it had kept that the batch is acked, and nothing else.
        finish_me.note_acked()
        again = Batch(Inlet(path), QUERY, 3)
        assert again.is_acked
        again.clear()
        assert not again.path.exists()
        assert not Batch(Inlet(path), QUERY, 4).is_acked
        assert not Batch(Inlet(path), OTHER, 3).is_acked
        lab.go()
        assert lab.bolt.seen == list(range(10))


def test_what_a_killed_driver_left_is_removed_and_what_others_feed_is_not(path: Path) -> None:
    put(path, 0, range(10))
    other = put(path, 0, range(10, 20), OTHER)
    mine = Batch(Inlet(path), QUERY, 1)
    mine.new_draft().mkdir()
    draft = other.new_draft()
    draft.mkdir()
    mine.clear()
    assert sorted(os.listdir(path)) == sorted(["_acked", "_claims", f"{QUERY}-0000000000", other.path.name, draft.name])


@pytest.mark.parametrize("file_is_gone", [True, False])
def test_a_range_of_a_batch_that_was_removed_is_not_taken(path: Path, file_is_gone: bool) -> None:
    """A task that was busy learns of a batch late, when others have done it all."""
    with Lab(path, "n") as lab:
        batch = put(path, 0, range(10))
        lab.go()
        spout = lab.user("spout")
        (claim, other) = sorted(InletClaims(Inlet(path), 0).load())
        lab.bolt.ack()
        lab.go()
        late = InletClaims(Inlet(path), 1)
        if file_is_gone:
            finish(batch)
        made = late.make(claim._replace(task=1, position=0, life=5))
        assert made.position == made.stop
        assert late.make(other._replace(task=1, position=0, life=5)).position == other.stop
        assert spout is lab.user("spout")
        late.store(made)
    assert bool(InletClaims(Inlet(path), 0).load()) is not file_is_gone


def test_a_claim_made_for_a_file_that_is_gone_does_no_harm_later(path: Path) -> None:
    batch = put(path, 0, range(10))
    with Lab(path, "n") as lab:
        lab.go()
    # As if its task was killed after the claim, and before it saw that the file had gone.
    shutil.rmtree(batch.path)
    with Lab(path, "n") as lab:
        put(path, 1, range(5))
        lab.go()
        assert sorted(lab.bolt.seen) == list(range(5))


def test_a_file_that_goes_while_it_is_looked_for_is_no_error_and_none_is_remembered_for_ever(path: Path) -> None:
    batch = put(path, 0, range(10))
    gone = batch.path / "gone.parquet"
    gone.symlink_to(path / "nowhere")  # it is listed, and not there
    source = InletSource(path, ["n"])
    assert sum(part.rows for part in source.find()) == 10
    assert source.find() == []
    batch.path.rename(path.parent / "away")
    assert source.find() == []
    (path.parent / "away").rename(batch.path)
    assert sum(part.rows for part in source.find()) == 10


def test_columns_are_fixed(path: Path) -> None:
    Inlet(path).fix_columns("n bigint")
    Inlet(path).fix_columns("n bigint")
    with pytest.raises(UsageError, match=r"the query has the columns n int, but inlet .* has n bigint"):
        Inlet(path).fix_columns("n int")


def test_wrong_inlets_are_named(path: Path) -> None:
    path.mkdir()
    (path / "x.parquet").touch()
    for make in (Inlet, LiveSpout):
        with pytest.raises(UsageError, match=r"in let holds 'x\.parquet', which is not of an inlet"):
            make(path)
    with pytest.raises(UsageError, match=r"x\.parquet/_claims cannot be an inlet|cannot be an inlet: Not a directory"):
        Inlet(path / "x.parquet")
    (path / "x.parquet").unlink()
    batch = put(path, 0, range(5))
    (path / "_acked" / QUERY).write_text("many")
    with pytest.raises(ClusterError, match="holds no number; without it, a batch is fed again"):
        batch.clear()
    with pytest.raises(UsageError, match="has no column 'text'"):
        LiveSpout(path)
    with pytest.raises(UsageError, match="a query has the id 'x'"):
        Batch(Inlet(path), "x", 0)
    (batch.path / "0.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="is damaged"):
        LiveSpout(path, ["n"])


def test_a_batch_under_the_number_of_another_one_is_refused(path: Path) -> None:
    def at(number: int, planned_ms: int | None, query: str = QUERY) -> Batch:
        return Batch(Inlet(path), query, number, planned_ms)

    at(0, 1000).check()
    with pytest.raises(UsageError, match=r"begins with batch 1, and inlet .* has had none of it before: its check"):
        at(1, 1000).check()
    draft = at(0, 1000).new_draft()
    draft.mkdir()
    at(0, 1000).publish(draft)
    at(0, 1000).check()
    with pytest.raises(UsageError, match=r"was set back to batch 0, which inlet .* had before, with other rows"):
        at(0, 1001).check()
    at(0, 1000).note_acked()
    at(0, 1000).clear()
    at(0, 1000).check()
    assert at(0, 1000).is_acked
    with pytest.raises(UsageError, match=r"was set back to batch 0"):
        at(0, 1001).check()
    at(1, 1001).check()
    at(1, 1001).note_acked()
    with pytest.raises(UsageError, match=r"was set back to batch 0"):
        at(0, 1000).check()
    # Where the time is not known, as in what an earlier Squall has kept.
    at(1, None).check()
    at(1, None).note_acked()
    at(1, 1002).check()
    at(0, 1, OTHER).check()
