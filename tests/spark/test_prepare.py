"""`squall prepare` makes feeds that hold every line once, tell what they leave out, and are complete or not there."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest

from squall.engine.errors import UsageError
from squall.pipeline.feed.sources import open_feed
from squall.pipeline.prepare import prepare
from squall.pipeline.read.lines import MAX_LINE_BYTES, MAX_RAW_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

#: Text with everything that other programs take for the end of a line.
ODD = "a\u2028b\u2029c\x85d\x1ce\x0bf\x0cg\u00a0h\ri"


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def rows_of(feed: Path) -> list[tuple[int, int, str, int, str]]:
    return sorted(tuple(row.values()) for row in parquet.read_table(feed / "rows").to_pylist())


def texts_of(feed: Path) -> dict[str, list[tuple[int, str]]]:
    """By file, each with its number."""
    texts: dict[str, list[tuple[int, str]]] = {}
    for _, _, path, line_no, text in rows_of(feed):
        texts.setdefault(path, []).append((line_no, text))
    return {path: sorted(lines) for path, lines in texts.items()}


REASONS = {
    "bad.txt:2": "not UTF-8", "nul.txt:2": "NUL byte", "vanished.txt": "cannot be read: No such file or directory",
}


def test_every_line_comes_out_once_or_is_quarantined(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """What a line is, is in `tests/unit/test_lines.py`."""
    write(source / "bad.txt", b"good\n\xff\xfe" + b"\xff" * MAX_RAW_BYTES + b"\nfine\n")
    write(source / "nul.txt", b"y" * MAX_LINE_BYTES + b"\nnul \0 here\nafter\r\n\n")
    write(source / "odd.txt", ODD.encode() + b"\nlast")
    write(source / "sub dir" / "deep" / "ü n.txt", b"deep  down\n")
    os.symlink(source / "nowhere", source / "vanished.txt")
    prepared = prepare(source, tmp_path / "feed", partitions=3)
    assert texts_of(prepared.feed) == {
        "bad.txt": [(1, "good"), (3, "fine")],
        "nul.txt": [(1, "y" * MAX_LINE_BYTES), (3, "after"), (4, "")],
        "odd.txt": [(1, ODD)],
        "sub dir/deep/ü n.txt": [(1, "deep  down")],
    }
    table = parquet.read_table(prepared.feed / "quarantine")
    assert table.column_names == ["partition", "path", "line_no", "reason", "raw"]
    assert {row["path"]: (row["line_no"], row["reason"], row["raw"]) for row in table.to_pylist()} == {
        "bad.txt": (2, "not UTF-8", b"\xff\xfe" + b"\xff" * (MAX_RAW_BYTES - 2)),
        "nul.txt": (2, "NUL byte", b"nul \0 here"),
        "vanished.txt": (0, "cannot be read: No such file or directory", b""),
    }
    rows = rows_of(prepared.feed)
    manifest = json.loads((prepared.feed / "_feed.json").read_text())
    assert manifest["format"] == 2
    assert [entry["partition"] for entry in manifest["partitions"]] == [0, 1, 2]
    for number, entry in enumerate(manifest["partitions"]):
        places = [(row[1], row[2], row[3]) for row in rows if row[0] == number]
        assert [offset for offset, _, _ in places] == list(range(entry["rows"]))
        assert [place[1:] for place in places] == sorted(place[1:] for place in places)
    assert manifest["rows"] == len(rows) == prepared.manifest.rows
    assert manifest["quarantined"] == len(REASONS)
    assert manifest["quarantine_reasons"] == dict.fromkeys(REASONS.values(), 1)
    assert prepared.quarantine_shown == tuple(f"{place}: {reason}" for place, reason in REASONS.items())


def test_a_feed_is_made_anew_only_when_asked(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "a.txt", b"old\n")
    prepare(source, tmp_path / "feed")
    write(source / "a.txt", b"new\n")
    refusal = r"^1 file of .* changed after .* took in the rows: a\.txt; --overwrite"
    with pytest.raises(UsageError, match=refusal):
        prepare(source, tmp_path / "feed")
    assert texts_of(tmp_path / "feed") == {"a.txt": [(1, "old")]}
    prepare(source, tmp_path / "feed", overwrite=True)
    assert texts_of(tmp_path / "feed") == {"a.txt": [(1, "new")]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["feed", "in put"]


def test_a_second_run_fills_the_smaller_partition_and_tells_what_is_gone(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    feed = tmp_path / "feed"
    write(source / "a.txt", b"a1\na2\na3\n")
    write(source / "gone.txt", b"g\n")
    prepare(source, feed, partitions=2)
    os.utime(source / "a.txt", (1, 1))
    (source / "gone.txt").unlink()
    write(source / "b.txt", b"b1\n\xff\nb3\n")
    follower = open_feed(feed, ("text",), follow=True)
    assert sum(part.rows for part in follower.find()) == 4
    second = prepare(source, feed)
    assert (second.added_files, second.added_rows, second.vanished) == (1, 2, ("gone.txt",))
    assert [part.rows for part in follower.find()] == [2]
    assert [row[:2] for row in rows_of(feed)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    manifest = second.manifest
    assert (manifest.rows, manifest.files, manifest.quarantined) == (6, 3, 1)
    assert [(one.rows, one.quarantined) for one in manifest.increments] == [(4, 0), (2, 1)]
    there = {str(path.relative_to(feed)) for path in feed.rglob("*") if path.is_file()}
    assert there == {*manifest.file_names, "_feed.json"}


def test_any_run_adds_exactly_what_is_new_and_has_an_end(
    spark: SparkSession, source: Path, tmp_path: Path, seed: int
) -> None:
    randomness = random.Random(seed)
    texts: dict[str, str] = {}
    rows, waited = 0, False
    for run in range(4):
        for name in [*randomness.sample(sorted(texts), len(texts) // 2), *(f"{run}-{number}" for number in range(2))]:
            more = "".join(f"{randomness.randrange(10)}\n" for _ in range(randomness.randrange(1, 6)))
            texts[name] = texts.get(name, "") + (more + "half" * randomness.randrange(2))
            write(source / name, texts[name].encode())
        ended = {name: text.split("\n")[:-1] for name, text in texts.items()}
        wanted = sum(map(len, ended.values()))
        said: list[str] = []
        assert prepare(source, tmp_path / "feed", partitions=3, progress=said.append).added_rows == wanted - rows
        rows = wanted
        assert texts_of(tmp_path / "feed") == {name: [*enumerate(lines, 1)] for name, lines in ended.items()}
        waited |= any(line.startswith("the last line waits until it has an end: ") for line in said)
        assert prepare(source, tmp_path / "feed").added_files == 0
    assert waited


def test_an_input_without_a_line_of_text_leaves_nothing(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "bad", b"\xff\n")
    write(source / "empty", b"")
    refusal = r"has no line of text: 2 files read, 1 line quarantined \(1 not UTF-8\)$"
    with pytest.raises(UsageError, match=refusal):
        prepare(source, tmp_path / "feed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in put"]


def test_nothing_new_and_wrong_increments_need_no_spark(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    write(source / "a.txt", b"text\n")
    prepare(source, feed)
    told: list[str] = []
    again = prepare(source, feed, progress=told.append)
    assert (again.added_files, again.added_rows, again.manifest.rows) == (0, 0, 1)
    assert told[-1] == "nothing new among 1 file"
    other = tmp_path / "other"
    write(other / "a.txt", b"text\n")
    for made, how in (
        (r"input .*/in put, and now it is .*/other", {"source": other}),
        ("partitions 4, and now it is 3", {"partitions": 3}),
        (r"glob not given, and now it is \*\.txt", {"pattern": "*.txt"}),
    ):
        with pytest.raises(UsageError, match=f"was made with {made}; --overwrite"):
            prepare(**{"source": source, "feed": feed, **how})  # type: ignore[arg-type]
    (sources,) = (feed / "sources").iterdir()
    sources.write_bytes(sources.read_bytes().replace(b"a.txt", b"b.txt"))
    with pytest.raises(UsageError, match=r"is damaged: sources/.*\.jsonl: .*its checksum is another one; .* anew"):
        prepare(source, feed)
