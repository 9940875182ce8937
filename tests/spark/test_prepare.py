"""`squall prepare` makes feeds that hold every line once, tell what they leave out, and are complete or not there."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from squall.cli.spark import prepare as prepare_command
from squall.engine.errors import UsageError
from squall.pipeline.corpus import MAX_LINE_BYTES, MAX_RAW_BYTES
from squall.pipeline.feed import Feed
from squall.pipeline.prepare import MAX_PARTITIONS, Prepared, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

#: Text with everything that other programs take for the end of a line.
ODD = "a\u2028b\u2029c\x85d\x1ce\x0bf\x0cg\u00a0h\ri"


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def rows_of(feed: Path) -> list[tuple[int, int, str, int, str]]:
    opened = Feed.open(feed)
    return [(partition, *row) for partition in opened.partitions for chunk in opened.read(partition) for row in chunk]


def texts_of(feed: Path) -> dict[str, list[tuple[int, str]]]:
    texts: dict[str, list[tuple[int, str]]] = {}
    for _, _, path, line_no, text in rows_of(feed):
        texts.setdefault(path, []).append((line_no, text))
    return texts


@pytest.fixture
def odd_feed(spark: SparkSession, source: Path, tmp_path: Path) -> Prepared:
    long = b"x" * MAX_LINE_BYTES
    write(source / "crlf.txt", b"a b\r\n\r\nc\r\n")
    write(source / "no newline.txt", b"first\nlast")
    write(source / "empty.txt", b"")
    write(source / "bad.txt", b"good\n\xff\xfe" + b"\xff" * MAX_RAW_BYTES + b"\nfine\n")
    write(source / "nul.txt", b"y" * 9000 + b"\nnul \0 here\nafter\n")
    write(source / "binary", b"\0\1\2\n")
    write(source / "long.txt", b"short\n" + long + b"\n" + long + b"x\nafter\n")
    write(source / "odd.txt", ODD.encode() + b"\n")
    write(source / "bom.txt", b"\xef\xbb\xbfmarked\n")
    write(source / "sub dir" / "deep" / "ü n.txt", b"deep  down\n")
    write(source / ".hidden", b"hidden\n")
    os.symlink(source / "nowhere", source / "vanished.txt")
    return prepare(source, tmp_path / "feed", partitions=3)


def test_every_line_comes_out_once_or_is_quarantined(odd_feed: Prepared) -> None:
    assert texts_of(odd_feed.feed) == {
        "crlf.txt": [(1, "a b"), (2, ""), (3, "c")],
        "no newline.txt": [(1, "first"), (2, "last")],
        "bad.txt": [(1, "good"), (3, "fine")],
        "nul.txt": [(1, "y" * 9000), (3, "after")],
        "long.txt": [(1, "short"), (2, "x" * MAX_LINE_BYTES), (4, "after")],
        "odd.txt": [(1, ODD)],
        "bom.txt": [(1, "marked")],
        "sub dir/deep/ü n.txt": [(1, "deep  down")],
    }
    table = parquet.read_table(odd_feed.feed / "quarantine")
    assert table.column_names == ["partition", "path", "line_no", "reason", "raw"]
    assert {row["path"]: (row["line_no"], row["reason"], row["raw"]) for row in table.to_pylist()} == {
        "bad.txt": (2, "not UTF-8", b"\xff\xfe" + b"\xff" * (MAX_RAW_BYTES - 2)),
        "nul.txt": (2, "NUL byte", b"nul \0 here"),
        "long.txt": (3, "longer than 1 MiB", b"x" * MAX_RAW_BYTES),
        "vanished.txt": (0, "cannot be read: No such file or directory", b""),
    }
    _check_manifest(odd_feed)


def _check_manifest(prepared: Prepared) -> None:
    rows = rows_of(prepared.feed)
    manifest = json.loads((prepared.feed / "_feed.json").read_text())
    assert manifest["format"] == 1
    assert [entry["partition"] for entry in manifest["partitions"]] == [0, 1, 2]
    assert [entry["rows"] for entry in manifest["partitions"]] == [sum(row[0] == p for row in rows) for p in range(3)]
    assert manifest["rows"] == len(rows) == prepared.manifest.rows
    assert manifest["words"] == sum(len(row[4].split()) for row in rows)
    assert manifest["bytes"] == sum(len(row[4].encode()) for row in rows)
    assert manifest["skipped_binary"] == 1
    assert prepared.skipped_shown == ("binary",)
    assert manifest["quarantined"] == 4
    assert manifest["quarantine_reasons"] == {
        "NUL byte": 1,
        "cannot be read: No such file or directory": 1,
        "longer than 1 MiB": 1,
        "not UTF-8": 1,
    }
    assert prepared.quarantine_shown == (
        "bad.txt:2: not UTF-8",
        "long.txt:3: longer than 1 MiB",
        "nul.txt:2: NUL byte",
        "vanished.txt: cannot be read: No such file or directory",
    )


def test_partitions_are_contiguous_sorted_and_in_files_of_their_own(odd_feed: Prepared) -> None:
    seen: dict[int, list[tuple[int, str, int]]] = {}
    for path in (odd_feed.feed / "lines").glob("*.parquet"):
        table = parquet.read_table(path)
        assert table.column_names == ["partition", "offset", "path", "line_no", "text"]
        assert [str(field.type) for field in table.schema] == ["int32", "int64", "string", "int32", "string"]
        rows = table.to_pylist()
        assert len({row["partition"] for row in rows}) == 1
        assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
        places = [(row["offset"], row["path"], row["line_no"]) for row in rows]
        seen.setdefault(rows[0]["partition"], []).extend(places)
    assert len(seen) == 3
    for places in seen.values():
        ordered = sorted(places)
        assert [offset for offset, _, _ in ordered] == list(range(len(ordered)))
        assert [(path, line_no) for _, path, line_no in ordered] == sorted(place[1:] for place in ordered)


def test_the_same_input_gives_the_same_rows(spark: SparkSession, source: Path, tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    files = {f"{name:02d}.txt": b"line of words\n" * randomness.randrange(50) for name in range(20)}
    for name, data in files.items():
        write(source / name, data)
    prepare(source, tmp_path / "one")
    shutil.rmtree(source)
    for name in randomness.sample(list(files), len(files)):
        write(source / name, files[name])
    prepare(source, tmp_path / "two")
    assert rows_of(tmp_path / "one") == rows_of(tmp_path / "two")


def test_a_feed_is_replaced_only_when_asked(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "a.txt", b"old\n")
    prepare(source, tmp_path / "feed")
    write(source / "a.txt", b"new\n")
    with pytest.raises(UsageError, match=r"holds a feed of 1 lines already; --overwrite replaces it"):
        prepare(source, tmp_path / "feed")
    assert texts_of(tmp_path / "feed") == {"a.txt": [(1, "old")]}
    prepare(source, tmp_path / "feed", overwrite=True)
    assert texts_of(tmp_path / "feed") == {"a.txt": [(1, "new")]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["feed", "in put"]


def test_a_feed_inside_its_input_is_not_read_again(spark: SparkSession, source: Path) -> None:
    write(source / "a.txt", b"text\n")
    prepare(source, source / "feed")
    prepare(source, source / "feed", overwrite=True)
    assert texts_of(source / "feed") == {"a.txt": [(1, "text")]}


def test_one_file_and_fewer_files_than_partitions(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "only.txt", b"a\nb\n")
    prepare(source / "only.txt", tmp_path / "feed")
    feed = Feed.open(tmp_path / "feed")
    assert feed.partitions == [0, 1, 2, 3]
    assert [feed.partition_rows(partition) for partition in feed.partitions] == [2, 0, 0, 0]
    assert texts_of(tmp_path / "feed") == {"only.txt": [(1, "a"), (2, "b")]}


def test_an_input_without_a_line_of_text_leaves_nothing(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "bad", b"\xff\n")
    write(source / "empty", b"")
    write(source / "binary", b"\0")
    refusal = r"has no line of text: 2 files read, 1 line quarantined, 1 binary file skipped"
    with pytest.raises(UsageError, match=refusal):
        prepare(source, tmp_path / "feed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in put"]


def test_what_can_be_refused_is_refused_before_spark_starts(source: Path, tmp_path: Path) -> None:
    """Without the `spark` fixture: if one of these started a Java machine, the test would take seconds."""
    feed = tmp_path / "feed"
    with pytest.raises(UsageError, match="has no text file"):
        prepare(source, feed)
    write(source / "a.txt", b"text\n")
    with pytest.raises(UsageError, match=r"has no text file matching \*\.rst"):
        prepare(source, feed, pattern="*.rst")
    with pytest.raises(UsageError, match="No such file"):
        prepare(tmp_path / "missing", feed)
    for partitions in (0, MAX_PARTITIONS + 1):
        with pytest.raises(UsageError, match=f"partitions is {partitions}; allowed: 1 to 1024"):
            prepare(source, feed, partitions=partitions)
    with pytest.raises(UsageError, match="would replace its own input"):
        prepare(source, source)
    with pytest.raises(UsageError, match="would replace its own input"):
        prepare(source, tmp_path)
    with pytest.raises(UsageError, match=r"a\.txt exists and is no directory"):
        prepare(source, source / "a.txt")
    with pytest.raises(UsageError, match=r"feed .* cannot be written: (Not a directory|File exists)"):
        prepare(source, source / "a.txt" / "feed")
    assert not feed.exists()


def test_the_command_prints_one_json_document(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "a.txt", b"one two\n\xff\n")
    write(source / "b.rst", b"three\n")
    arguments = [str(source), "--out", str(tmp_path / "feed"), "--glob", "*.txt", "--partitions", "2", "--json"]
    result = CliRunner().invoke(prepare_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert (document["rows"], document["words"], document["quarantined"], document["files"]) == (1, 2, 1, 1)
    assert document["quarantine_shown"] == ["a.txt:2: not UTF-8"]
    assert "starting Spark" in result.stderr


def test_the_command_tells_people_what_is_in_the_feed(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "a.txt", b"one two\n" + b"\xff\n" * 12)
    result = CliRunner().invoke(prepare_command, [str(source), "--out", str(tmp_path / "feed")], catch_exceptions=False)
    assert "holds       1 line, 2 words, 7 bytes\n" in result.stdout
    assert "quarantined 12 (12 not UTF-8)\n            a.txt:2: not UTF-8\n" in result.stdout
    assert f"            and 2 more in {tmp_path}/feed/quarantine\n" in result.stdout


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    arguments = ["prepare", str(tmp_path / "missing"), "--out", str(tmp_path / "feed")]
    result = subprocess.run(
        [sys.executable, "-m", "squall", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 2
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("[")]
    assert lines == [f"squall: cannot read input {tmp_path}/missing: No such file or directory"]
