"""Feeds are read from any offset, completely and in order, and are refused when they are not whole."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.feed.lines import Feed, Row
from squall.pipeline.feed.manifest import Increment, Manifest, PartFile, Partition, check_content, load_manifest
from squall.pipeline.feed.part_reader import CHUNK_ROWS
from squall.pipeline.prepare import prepare

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

#: More than a chunk and several row groups, in two files.
FILES = {"rows/a.parquet": 5000, "rows/b.parquet": 130}
ROWS = sum(FILES.values())
#: More brackets than Python's parser of JSON goes down.
DEEP = "[" * 100_000


def row(offset: int) -> Row:
    return offset, f"dir/{offset // 1000}.txt", offset % 1000 + 1, f"text {offset} \u2028 \U0001f600"


def write_part(path: Path, first: int, rows: int) -> None:
    columns = list(zip(*(row(offset) for offset in range(first, first + rows)), strict=True))
    schema = {"offset": "int64", "path": "string", "line_no": "int32", "text": "string"}
    arrays = [pyarrow.array(values, type_) for values, type_ in zip(columns, schema.values(), strict=True)]
    partition = pyarrow.array([1] * rows, pyarrow.int32())
    parquet.write_table(pyarrow.table([partition, *arrays], ["partition", *schema]), path, row_group_size=700)


def write_manifest(path: Path, **changes: object) -> None:
    files = tuple(PartFile(name, rows) for name, rows in FILES.items())
    manifest = Manifest("input", (Partition(0, 0), Partition(1, ROWS, files)), 1, 0, 0, 1)
    (path / "_feed.json").write_text(json.dumps(manifest.to_dict() | changes))


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    (tmp_path / "rows").mkdir()
    first = 0
    for name, rows in FILES.items():
        write_part(tmp_path / name, first, rows)
        first += rows
    write_manifest(tmp_path)
    return tmp_path


def test_partitions_and_rows(feed: Path) -> None:
    opened = Feed.open(str(feed))
    assert opened.partitions == [0, 1]
    assert opened.rows == opened.partition_rows(1) == ROWS
    assert list(opened.read(0)) == []


@pytest.mark.parametrize("start", [0, 1, 699, 700, 701, 4096, 4999, 5000, 5001, ROWS - 1, ROWS])
def test_reading_starts_at_any_offset(feed: Path, start: int) -> None:
    chunks = list(Feed.open(feed).read(1, start))
    assert [found for chunk in chunks for found in chunk] == [row(offset) for offset in range(start, ROWS)]
    assert all(0 < len(chunk) <= CHUNK_ROWS for chunk in chunks)


def test_a_feed_is_read_after_being_pickled_elsewhere(
    feed: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(feed.parent)
    pickled = pickle.dumps(Feed.open(feed.name))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert next(pickle.loads(pickled).read(1, ROWS - 1)) == [row(ROWS - 1)]


@pytest.mark.parametrize(
    ("partition", "start", "complaint"),
    [
        (2, 0, "has no partition 2; allowed: 0, 1"),
        (1, -1, f"start offset is -1 in partition 1 of .*; allowed: 0 to {ROWS}"),
        (1, ROWS + 1, f"start offset is {ROWS + 1} in partition"),
    ],
)
def test_what_is_not_there_is_refused_at_the_call(feed: Path, partition: int, start: int, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Feed.open(feed).read(partition, start)


def test_what_is_no_feed_is_refused(feed: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a feed: it does not exist; squall prepare makes one"):
        Feed.open(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"is not a feed: it has no _feed\.json"):
        Feed.open(tmp_path / "rows")
    with pytest.raises(UsageError, match=r"is not a feed: it has no _feed\.json"):
        Feed.open(tmp_path / "rows" / "a.parquet")
    write_manifest(tmp_path, format=1)
    with pytest.raises(UsageError, match=r"has format 1; this version of Squall reads format 2; .* makes it anew"):
        Feed.open(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 2}', '{"format": 2, "partitions": [1]}', "\xff", DEEP])
def test_what_is_no_manifest_is_refused(feed: Path, text: str) -> None:
    (feed / "_feed.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"_feed\.json(: | is not a manifest of a feed: \w+Error: )"):
        Feed.open(feed)


def test_damage_is_noticed(feed: Path) -> None:
    opened = Feed.open(feed)
    (feed / "rows/b.parquet").write_bytes(b"no parquet")
    with pytest.raises(UsageError, match=r"is damaged: rows/b\.parquet: "):
        list(opened.read(1))
    write_part(feed / "rows/b.parquet", 7, 130)
    with pytest.raises(UsageError, match=r"rows/b\.parquet has offset 7 where 5000 belongs"):
        list(opened.read(1))
    (feed / "rows/b.parquet").unlink()
    with pytest.raises(UsageError, match=r"was replaced while it was read: rows/b\.parquet is missing"):
        list(opened.read(1))
    with pytest.raises(UsageError, match=r"is damaged: rows/b\.parquet cannot be read: No such file"):
        Feed.open(feed)


def test_a_missing_reader_is_named(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'needs pyarrow: pip install "squall\[spark\]"'):
        Feed.open(feed)


def test_a_reader_that_is_dropped_halfway_leaves_no_file_open(feed: Path) -> None:
    """The leak check of every test looks for the descriptor."""
    reader = Feed.open(feed).read(1)
    next(reader)


@pytest.mark.parametrize("name", ["rows/a.parquet", "quarantine/a.parquet", "sources/a.jsonl"])
def test_every_file_of_a_feed_is_compared_with_the_manifest(tmp_path: Path, name: str) -> None:
    feed = tmp_path / "feed"
    files = {}
    for number, path in enumerate(("rows/a.parquet", "quarantine/a.parquet", "sources/a.jsonl")):
        (feed / path).parent.mkdir(parents=True)
        data = b"%d" % number * 100
        (feed / path).write_bytes(data)
        files[path] = PartFile(path, 1, len(data), hashlib.sha256(data).hexdigest())
    rows, quarantine, sources = files.values()
    increments, parts = (Increment(sources, 1, 1),), (Partition(0, 1, (rows,)),)
    manifest = Manifest("input", parts, 1, 1, 0, 1, increments=increments, quarantine=(quarantine,))
    (feed / "_feed.json").write_text(json.dumps(manifest.to_dict()))
    (tmp_path / "input").mkdir()
    check_content(feed, load_manifest(feed))
    Feed.open(feed)

    def said(call: Callable[[], object]) -> str:
        with pytest.raises(UsageError) as caught:
            call()
        return str(caught.value)

    path = feed / name
    path.write_bytes(b"x" * 100)
    assert f"{name} was changed after squall prepare wrote it: its SHA-256 is another" in said(
        lambda: check_content(feed, manifest)
    )
    for data, what in ((b"x" * 7, "has 7 bytes instead of 100"), (None, "cannot be read: No such file or directory")):
        path.unlink() if data is None else path.write_bytes(data)
        assert f"{name} {what}; squall prepare --overwrite" in said(lambda: Feed.open(feed))
        # The next run would add to a feed that is none.
        again = said(lambda: prepare(tmp_path / "input", feed, partitions=1))
        assert f"{name} {what}; squall prepare --overwrite" in again
