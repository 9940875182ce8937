"""`squall prepare` makes feeds that hold every line once, tell what they leave out, and are complete or not there."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from squall.cli.spark import prepare as prepare_command
from squall.engine.errors import UsageError
from squall.pipeline.feed.sources import open_feed
from squall.pipeline.prepare import Prepared, prepare
from squall.pipeline.read.lines import MAX_LINE_BYTES, MAX_RAW_BYTES
from tests.schemas import mistakes

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
    write(source / "early.txt", b"\0\n\n\n")
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
        "no newline.txt": [(1, "first")],
        "bad.txt": [(1, "good"), (3, "fine")],
        "nul.txt": [(1, "y" * 9000), (3, "after")],
        "early.txt": [(2, ""), (3, "")],
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
        "early.txt": (1, "NUL byte", b"\0"),
        "long.txt": (3, "longer than 1 MiB", b"x" * MAX_RAW_BYTES),
        "vanished.txt": (0, "cannot be read: No such file or directory", b""),
    }
    _check_manifest(odd_feed)


def _check_manifest(prepared: Prepared) -> None:
    rows = rows_of(prepared.feed)
    manifest = json.loads((prepared.feed / "_feed.json").read_text())
    assert manifest["format"] == 2
    assert [entry["partition"] for entry in manifest["partitions"]] == [0, 1, 2]
    for number, entry in enumerate(manifest["partitions"]):
        places = [(row[1], row[2], row[3]) for row in rows if row[0] == number]
        assert [offset for offset, _, _ in places] == list(range(entry["rows"]))
        assert [place[1:] for place in places] == sorted(place[1:] for place in places)
    assert manifest["rows"] == len(rows) == prepared.manifest.rows
    assert manifest["quarantined"] == 5
    assert manifest["quarantine_reasons"] == {
        "NUL byte": 2,
        "cannot be read: No such file or directory": 1,
        "longer than 1 MiB": 1,
        "not UTF-8": 1,
    }
    assert prepared.quarantine_shown == (
        "bad.txt:2: not UTF-8",
        "early.txt:1: NUL byte",
        "long.txt:3: longer than 1 MiB",
        "nul.txt:2: NUL byte",
        "vanished.txt: cannot be read: No such file or directory",
    )


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


def test_any_run_adds_exactly_what_is_new(spark: SparkSession, source: Path, tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    texts: dict[str, bytes] = {}
    rows, names = 0, (f"{number}.txt" for number in range(100))
    for _ in range(4):
        for name in randomness.sample(sorted(texts), len(texts) // 2):
            texts[name] += b"".join(b"%d\n" % randomness.randrange(10) for _ in range(randomness.randrange(5)))
        for _ in range(randomness.randrange(1, 4)):
            texts[next(names)] = b"".join(b"%d\n" % randomness.randrange(10) for _ in range(randomness.randrange(9)))
        for name, text in texts.items():
            write(source / name, text)
        wanted = sum(text.count(b"\n") for text in texts.values())
        if wanted:
            assert prepare(source, tmp_path / "feed", partitions=3).added_rows == wanted - rows
            rows = wanted
            found = {name: [text for _, text in sorted(lines)] for name, lines in texts_of(tmp_path / "feed").items()}
            assert found == {name: text.decode().split() for name, text in texts.items() if text}
            assert prepare(source, tmp_path / "feed").added_files == 0


def test_a_last_line_without_its_end_waits_for_it(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "a.log", b"a\nhal")
    said: list[str] = []
    prepare(source, tmp_path / "feed", progress=said.append)
    assert "the last line waits until it has an end: a.log" in said
    assert prepare(source, tmp_path / "feed").added_files == 0
    write(source / "a.log", b"a\nhalf\nb\n\0\n")
    assert prepare(source, tmp_path / "feed").added_rows == 2
    assert texts_of(tmp_path / "feed") == {"a.log": [(1, "a"), (2, "half"), (3, "b")]}


def test_an_input_without_a_line_of_text_leaves_nothing(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "bad", b"\xff\n")
    write(source / "empty", b"")
    refusal = r"has no line of text: 2 files read, 1 line quarantined \(1 not UTF-8\)$"
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
    with pytest.raises(UsageError, match="would replace its own input"):
        prepare(source, source)
    with pytest.raises(UsageError, match="would replace its own input"):
        prepare(source, tmp_path)
    with pytest.raises(UsageError, match=r"a\.txt exists and is no directory"):
        prepare(source, source / "a.txt")
    with pytest.raises(UsageError, match=r"feed .* cannot be written: (Not a directory|File exists)"):
        prepare(source, source / "a.txt" / "feed")
    assert not feed.exists()


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
    with pytest.raises(UsageError, match=r"was made with input .*/in put, and now it is .*/other; --overwrite"):
        prepare(other, feed)
    with pytest.raises(UsageError, match="was made with partitions 4, and now it is 3; --overwrite"):
        prepare(source, feed, partitions=3)
    with pytest.raises(UsageError, match=r"was made with glob not given, and now it is \*\.txt; --overwrite"):
        prepare(source, feed, pattern="*.txt")
    (sources,) = (feed / "sources").iterdir()
    sources.write_bytes(sources.read_bytes().replace(b"a.txt", b"b.txt"))
    with pytest.raises(UsageError, match=r"is damaged: sources/.*\.jsonl: .*its checksum is another one; .* anew"):
        prepare(source, feed)


def test_the_command_prints_one_json_document(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    write(source / "a.txt", b"one two\n\xff\n")
    write(source / "b.rst", b"three\n")
    arguments = [str(source), "--out", str(tmp_path / "feed"), "--glob", "*.txt", "--partitions", "2", "--json"]
    result = CliRunner().invoke(prepare_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert mistakes(document) == []
    assert (document["rows"], document["quarantined"], document["files"]) == (1, 1, 1)
    assert document["columns"] == {"path": "string", "line_no": "int", "text": "string"}
    assert document["quarantine_shown"] == ["a.txt:2: not UTF-8"]
    assert "starting Spark" in result.stderr
