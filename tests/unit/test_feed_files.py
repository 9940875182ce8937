"""The files of a feed: rows from any place on, in order, and a refusal of what is not as it was written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.engine.errors import UsageError
from squall.pipeline.feed.manifest import (
    Increment,
    Manifest,
    PartFile,
    Partition,
    check_files,
    load_manifest,
)
from squall.pipeline.feed.part_reader import CHUNK_ROWS, PartReader
from squall.pipeline.prepare import prepare

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

#: More than a chunk and several row groups.
ROWS = 5130
#: More brackets than Python's parser of JSON goes down.
DEEP = "[" * 100_000
TEXTS = [f"text {row} \u2028 \U0001f600" for row in range(ROWS)]


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("feed") / "a.parquet"
    parquet.write_table(pyarrow.table({"n": range(ROWS), "text": TEXTS}), path, row_group_size=700)
    return path


RANGES = st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(sorted), min_size=1, max_size=5)


@settings(max_examples=30, deadline=None)
@given(ranges=RANGES)
def test_any_ranges_are_read_one_after_the_other(part: Path, ranges: list[list[int]]) -> None:
    reader = PartReader(part.parent, part.name, ["text", "n"])
    try:
        for start, stop in ranges:
            chunks: list[list[Any]] = list(reader.read(start, stop))
            assert all(0 < len(numbers) <= CHUNK_ROWS for _, numbers in chunks)
            assert [number for _, numbers in chunks for number in numbers] == list(range(start, stop))
            assert [text for texts, _ in chunks for text in texts] == TEXTS[start:stop]
    finally:
        reader.close()


def write(feed: Path, manifest: Manifest, **changes: object) -> None:
    (feed / "_feed.json").write_text(json.dumps(manifest.to_dict() | changes))


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = PartFile("rows/a.parquet", 2, 7, "ab")
    manifest = Manifest(
        "in\udcff", (Partition(0, 0), Partition(1, 2, (file,))), 3, quarantine_reasons={"x": 3},
        schema={"a": "int"}, recipe={"options": {"sep": ";"}}, increments=(Increment(file, 2, 3),), quarantine=(file,),
    )
    write(tmp_path, manifest)
    assert load_manifest(tmp_path) == manifest
    assert (manifest.rows, manifest.to_dict()["rows"]) == (2, 2)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 2}', '{"format": 2, "partitions": [1]}', "\xff", DEEP])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "_feed.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"_feed\.json is not a manifest of a feed: \w+Error: "):
        load_manifest(tmp_path)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    return str(caught.value)


NAMES = ("rows/a.parquet", "quarantine/a.parquet", "sources/a.jsonl")


@pytest.mark.parametrize("name", NAMES)
def test_every_file_of_a_feed_is_compared_with_the_manifest(tmp_path: Path, name: str) -> None:
    feed = tmp_path / "feed"
    files = []
    for path in NAMES:
        (feed / path).parent.mkdir(parents=True)
        (feed / path).write_bytes(bytes(100))
        files.append(PartFile(path, 1, 100, hashlib.sha256(bytes(100)).hexdigest()))
    rows, quarantine, sources = files
    parts = (Partition(0, 1, (rows,)),)
    manifest = Manifest("input", parts, increments=(Increment(sources, 1, 1),), quarantine=(quarantine,))
    write(feed, manifest)
    (tmp_path / "input").mkdir()
    check_files(feed, manifest, whole=True)
    path = feed / name
    path.write_bytes(b"x" * 100)
    changed = f"{name} was changed after squall prepare wrote it: its SHA-256 is another"
    assert changed in refused(lambda: check_files(feed, manifest, whole=True))
    for data, what in ((b"x" * 7, "has 7 bytes instead of 100"), (None, "cannot be read: No such file or directory")):
        path.unlink() if data is None else path.write_bytes(data)
        # The next run would add to a feed that is none.
        again = refused(lambda: prepare(tmp_path / "input", feed, partitions=1))
        assert f"{name} {what}; squall prepare --overwrite" in again
