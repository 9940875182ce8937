"""FeedSpout: every row of every kind of feed, after each death those that were not acked; what is wrong is named."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from squall import Config, FeedSpout, UsageError
from squall.engine.core.executor import TaskCrashed
from squall.pipeline.feed.feed_spout import Claims
from squall.pipeline.feed.manifest import Manifest, PartFile, Partition
from squall.pipeline.feed.shares import Claim
from squall.testing.simulated import SimulatedCluster
from tests.unit.rig import Does, chain, keeps

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NUMBERS = range(100)


def write(path: Path, numbers: Sequence[int] = NUMBERS, **columns: Any) -> Path:
    """A Parquet file, with an atomic rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [f"line {number} \u2028" for number in numbers]
    table = pyarrow.table({"text": texts, "n": list(numbers), **columns})
    parquet.write_table(table, path.with_name("_new"), row_group_size=30)
    return path.with_name("_new").rename(path)


def prepared(path: Path, *parts: Sequence[int]) -> Path:
    """A feed of one partition, as `squall prepare` writes it."""
    files = []
    for index, numbers in enumerate(parts):
        file = write(path / f"lines/{index}.parquet", numbers)
        files.append(PartFile(f"lines/{index}.parquet", len(numbers), file.stat().st_size))
    rows = sum(map(len, parts))
    manifest = Manifest("input", (Partition(0, 0), Partition(1, rows, tuple(files))))
    (path / "_new").write_text(json.dumps(manifest.to_dict()))
    (path / "_new").rename(path / "_feed.json")
    return path


class Lab(SimulatedCluster):
    """A spout and a bolt; what is on disk outlives it."""

    def __init__(self, spout: FeedSpout, root: Path, **settings: Any) -> None:
        settings = {"max_spout_pending": 1000, "message_timeout_secs": 3600, **settings}
        topology = chain(spout, Does(keeps))
        super().__init__(topology.build(), Config(**settings), state_root=root, record=False)

    def __enter__(self) -> Lab:
        return self

    @property
    def spout(self) -> FeedSpout:
        found: FeedSpout = self.user("spout")
        return found

    @property
    def seen(self) -> list[Any]:
        found: list[Any] = self.user("bolt-1").own
        return found

    @property
    def numbers(self) -> list[int]:
        """Of the only column."""
        return [number for number, in self.seen]

    def ack(self, count: int | None = None) -> None:
        """Ack the first of the tuples that the bolt keeps, and let time pass."""
        bolt = self.user("bolt-1")
        for tup in bolt.kept[:count]:
            bolt.collector.ack(tup)
        del bolt.kept[:count]
        self.go()

    def go(self, secs: float = 1.0) -> None:
        """Let time pass, so that positions are stored and new parts looked for."""
        self.advance(secs)
        self.settle()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return tmp_path / "feed"


@pytest.mark.parametrize("acked", [0, 1, 50, 99, 100])
def test_after_a_death_exactly_the_rows_that_were_not_acked_come_again(feed: Path, root: Path, acked: int) -> None:
    prepared(feed, range(40), range(40, 100))
    spout = FeedSpout(feed, ["n", "text"], range_rows=30)
    rows = [(number, f"line {number} \u2028") for number in NUMBERS]
    with Lab(spout, root) as lab:
        lab.go()
        assert lab.seen == rows
        assert list(lab.spout.unacked) == [(1, number) for number in NUMBERS]
        lab.ack(acked)
        lab.kill(0)
        lab.restart(0)
        lab.go()
        assert (lab.seen, lab.spout.exhausted) == (rows[acked:], acked == len(rows))
        lab.ack()
        assert lab.drained
    with Lab(spout, root) as lab:
        lab.go()
        assert (lab.seen, lab.drained) == ([], True)


def test_a_directory_of_parquet_files_is_a_feed_that_may_grow(feed: Path, root: Path) -> None:
    write(feed / "b.parquet", range(3))
    write(feed / "day=1/a.parquet", range(3, 5))
    (feed / "_tmp").mkdir()
    for name in ("_tmp/x.parquet", ".x.parquet", "x.txt"):
        (feed / name).write_text("not looked at")
    with Lab(FeedSpout(feed, ["n"], follow=True), root) as lab:
        lab.go()
        assert lab.numbers == [0, 1, 2, 3, 4]
        assert [*lab.spout.unacked] == [
            ("b.parquet", 0), ("b.parquet", 1), ("b.parquet", 2), ("day=1/a.parquet", 0), ("day=1/a.parquet", 1),
        ]
        write(feed / "a.parquet", [5])
        lab.go()
        assert lab.numbers == [0, 1, 2, 3, 4, 5]


def entry(path: Path, action: str = "add") -> str:
    return json.dumps({"path": path.as_uri(), "size": 1, "isDir": False, "action": action})


def test_of_a_streaming_querys_files_only_those_in_its_log_count(tmp_path: Path, root: Path) -> None:
    feed = tmp_path / "with space"
    log = feed / "_spark_metadata"
    log.mkdir(parents=True)
    files = [write(feed / f"part {number}.parquet", [number]) for number in range(6)]
    (log / ".2.tmp").write_text("half")

    def commit(name: str, *entries: str) -> None:
        (log / name).write_text("\n".join(["v1", *entries]))

    for batch in (0, 1):
        commit(str(batch), entry(files[batch]))
    with Lab(FeedSpout(feed, ["n"], follow=True), root) as lab:
        lab.go()
        assert lab.numbers == [0, 1]
        commit("2.compact", *map(entry, files[:3]))
        commit("3", entry(files[3]), entry(files[4]), entry(files[4], "delete"))
        for batch in (0, 1):
            (log / str(batch)).unlink()
        lab.go()
        assert lab.numbers == [0, 1, 2, 3]
        assert not lab.spout.exhausted
        lab.ack()
    with Lab(FeedSpout(feed.rename(tmp_path / "moved"), ["n"]), root) as lab:
        lab.go()
        assert (lab.seen, lab.drained) == ([], True)


def test_text_files_are_a_feed(tmp_path: Path, root: Path) -> None:
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    texts[0].write_bytes("\n".join(f"{number}" for number in NUMBERS).encode())
    texts[1].write_bytes(b"x\r\n\xff\n\n")
    with Lab(FeedSpout(texts, ["text", "partition", "offset", "line_no"], range_rows=30), root) as lab:
        lab.go()
        rows = [(str(number), 0, number, number + 1) for number in NUMBERS]
        expected = [*rows, ("x", 1, 0, 1), ("\ufffd", 1, 1, 2), ("", 1, 2, 3)]
        assert sorted(lab.seen, key=lambda row: row[1:]) == expected


def test_a_full_disk_holds_back_positions_and_not_rows(
    feed: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with Lab(FeedSpout(prepared(feed, NUMBERS), ["n"]), root) as lab:
        with monkeypatch.context() as patch:
            patch.setattr(Claims, "store", full)
            lab.go()
            lab.ack(50)
            assert len(lab.errors) == 1
            assert "cannot store how far it is" in lab.errors[0][2]
            assert "No space left on device" in lab.errors[0][2]
        lab.go(10)
        lab.ack(1)
        assert [claim.position for claim in Claims(root / "spout-shared", 0).load()] == [51]


# ---- wrong input ----


def refused(*arguments: Any, **named: Any) -> str:
    with pytest.raises(UsageError) as caught:
        FeedSpout(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_feed_is_refused(tmp_path: Path, feed: Path) -> None:
    assert "missing is not a feed: it does not exist; squall prepare makes one" in refused(tmp_path / "missing")
    file = write(tmp_path / "x" / "a.parquet")
    assert "a.parquet is a file, not a feed" in refused(file)
    (tmp_path / "empty").mkdir()
    nothing = "empty is not a feed: it has no _feed.json, no _spark_metadata and no Parquet file"
    assert nothing in refused(tmp_path / "empty")
    FeedSpout(tmp_path / "empty", ["n"], follow=True)
    assert "input file /missing.txt does not exist" in refused(["/missing.txt"])
    assert "cannot follow text files" in refused([file], follow=True)
    (tmp_path / "x" / "_feed.json").write_text('{"format": 99}')
    assert "has format 99; this version of Squall reads format 2" in refused(tmp_path / "x")


def test_a_damaged_file_is_named_before_anything_starts(feed: Path) -> None:
    prepared(feed, range(40), range(40, 100))
    write(feed / "lines/1.parquet", range(41, 100))
    assert refused(feed).endswith("is damaged: lines/1.parquet has 59 rows instead of 60")
    write(feed / "lines/1.parquet", range(40, 100), more=["x"] * 60)
    assert re.search(r"is damaged: lines/1\.parquet has \d+ bytes instead of \d+$", refused(feed))
    (feed / "lines/1.parquet").write_bytes(b"PAR1 half of it")
    assert "feed is damaged: lines/1.parquet: " in refused(feed)
    (feed / "lines/1.parquet").unlink()
    assert "lines/1.parquet is missing" in refused(feed)


def test_a_missing_column_and_a_changed_schema_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    assert refused(tmp_path, ["word"]).endswith("has no column 'word' in a.parquet; allowed: text, n")
    write(tmp_path / "b.parquet", range(2), more=["x", "y"])
    FeedSpout(tmp_path, ["n"])
    parquet.write_table(pyarrow.table({"n": ["1", "2"]}), tmp_path / "c.parquet")
    wrong = "changed its schema: column 'n' is string in c.parquet, but int64 in a.parquet"
    assert refused(tmp_path, ["n"]).endswith(wrong)


def write_times(feed: Path, times: Any, **form: Any) -> None:
    feed.mkdir()
    table = pyarrow.table({"at": pyarrow.array(times, pyarrow.timestamp("us"))})
    parquet.write_table(table, feed / "a.parquet", **form)


def test_a_timestamp_of_the_old_form_is_a_datetime(feed: Path, root: Path) -> None:
    """INT96, as Spark writes it by default: in nanoseconds by its form, in microseconds by what is in it."""
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    write_times(feed, [at], use_deprecated_int96_timestamps=True)
    with Lab(FeedSpout(feed, ["at"]), root) as lab:
        lab.go()
        assert (lab.seen, type(lab.seen[0][0])) == ([(at,)], datetime.datetime)


def test_a_feed_that_was_replaced_is_not_taken_for_the_same(feed: Path, root: Path) -> None:
    write(feed / "a.parquet")
    with Lab(FeedSpout(feed, ["n"]), root) as lab:
        lab.go()
        lab.ack(7)
    (feed / "a.parquet").rename(feed / "b.parquet")
    with pytest.raises(TaskCrashed, match=r"was replaced: a\.parquet is gone, of which rows 7 to 99 are not done"):
        Lab(FeedSpout(feed, ["n"]), root)


@pytest.mark.parametrize(
    "text", ["{}", "00000000000000000007 00000000\n{}", "00000000000000000007 b3c51bfc\n{}", "\xff\n", "x" * 99]
)
def test_a_claim_that_cannot_be_read_is_named(feed: Path, root: Path, text: str) -> None:
    prepared(feed, NUMBERS)
    with Lab(FeedSpout(feed, ["n"]), root) as lab:
        lab.go()
    (claim,) = (root / "spout-shared").glob("*.claim")
    claim.write_text(text, encoding="latin-1")
    with pytest.raises(TaskCrashed, match=rf"{claim} is no claim of a range of a feed: ") as caught:
        Lab(FeedSpout(feed, ["n"]), root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", bytes(99)], ids=["empty", "zeros"])
def test_a_claim_that_a_power_loss_has_left_without_content_is_none(tmp_path: Path, data: bytes) -> None:
    claims = Claims(tmp_path, 0)
    wanted = claims.make(Claim("a", 0, 3, 0, 1))
    (claim,) = tmp_path.glob("*.claim")
    claim.unlink()
    claim.write_bytes(data)
    assert claims.load() == []
    assert claims.make(wanted) == wanted
    assert claims.load() == [wanted]


def test_a_draft_left_by_a_killed_process_of_the_same_number_is_not_written_to(tmp_path: Path) -> None:
    """Killed after the link, it leaves a draft that is the claim's own file."""
    claims = Claims(tmp_path, 0)
    claims.make(Claim("a", 0, 3, 0, 0))
    (claim,) = tmp_path.glob("*.claim")
    (draft,) = tmp_path.glob("*.new")
    draft.unlink()
    draft.hardlink_to(claim)
    claims.make(Claim("a", 3, 6, 0, 3))
    assert [(found.start, found.stop) for found in claims.load()] == [(0, 3), (3, 6)]


def test_a_value_that_python_cannot_hold_is_named(feed: Path, root: Path) -> None:
    write_times(feed, [0, 2**62])
    lab = Lab(FeedSpout(feed, ["at"]), root)
    with pytest.raises(TaskCrashed, match=r"UsageError: feed .*/feed is damaged: a\.parquet: date value out of range"):
        lab.settle()
    lab.close()


@pytest.mark.parametrize("follow", [False, True])
def test_a_task_names_the_partitions_that_it_has_not_read_and_those_that_may_grow(
    feed: Path, root: Path, follow: bool
) -> None:
    prepared(feed, range(100))
    with Lab(FeedSpout(feed, ["n"], follow=follow), root, max_spout_pending=50) as lab:
        lab.go()
        assert lab.spout.partitions()[1,] is False
        lab.ack()
        assert lab.spout.partitions().get((1,)) is (True if follow else None)
