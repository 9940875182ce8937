"""Records that Spark's readers pass over or read in another way are told, and `prepare` and `verify` read alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from squall.cli.spark import prepare as prepare_command
from squall.cli.verify import verify as verify_command
from squall.pipeline.prepare import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return tmp_path / "feed"


def texts(feed: Path, column: str) -> list[object]:
    return sorted(parquet.read_table(feed / "rows").column(column).to_pylist(), key=str)


def test_a_csv_record_that_is_not_utf8_is_quarantined(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.csv").write_bytes(b"id,name\n1,caf\xe9\n2,ok\n")
    made = prepare(source, feed, format_="csv")
    assert texts(feed, "name") == ["ok"]
    assert made.manifest.quarantined == 1


def test_a_malformed_json_record_adds_no_column(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.json").write_text('{"a": 1}\nbroken\n')
    assert list(prepare(source, feed, format_="json").manifest.schema) == ["a"]


def test_a_malformed_json_record_in_a_new_file_is_quarantined(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.json").write_text('{"a": 1}\n')
    prepare(source, feed, format_="json")
    (source / "b.json").write_text('{"a": 2}\nbroken\n')
    made = prepare(source, feed, format_="json")
    assert (texts(feed, "a"), made.manifest.quarantined) == ([1, 2], 1)


def test_an_empty_csv_file_does_not_stop_a_feed(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.csv").write_text("id,name\n1,one\n")
    prepare(source, feed, format_="csv")
    (source / "b.csv").touch()
    assert prepare(source, feed, format_="csv").manifest.rows == 1


def test_column_names_may_have_dots(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.csv").write_text("id,na.me\n1,one\n")
    prepare(source, feed, format_="csv")
    assert texts(feed, "na.me") == ["one"]
    (source.parent / "clean.py").write_text("def clean(frame):\n    return frame\n")
    again = prepare(source, source.parent / "again", format_="csv", clean=f"{source.parent / 'clean.py'}:clean")
    assert list(again.manifest.schema) == ["id", "na.me"]


def test_prepare_and_verify_read_csv_alike(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.csv").write_text('id,name\n1,"say ""hi"" now"\n2,""\n')
    prepare(source, feed, format_="csv")
    result = CliRunner().invoke(
        verify_command, [str(source / "a.csv"), str(feed), "--by", "id", "--compare", "name"]
    )
    assert result.exit_code == 0, result.output


def test_a_column_of_folders_is_not_lost(spark: SparkSession, source: Path, feed: Path) -> None:
    spark.range(3).selectExpr("id", "id % 2 AS day").write.partitionBy("day").parquet(str(source / "days"))
    assert "day" in prepare(source / "days", feed, format_="parquet").manifest.schema


def test_a_clean_function_that_exits_is_no_success(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.txt").write_text("a\n")
    clean = source.parent / "clean.py"
    clean.write_text("import sys\ndef clean(frame):\n    sys.exit(0)\n")
    result = CliRunner().invoke(
        prepare_command, [str(source), "--out", str(feed), "--clean", f"{clean}:clean"]
    )
    assert result.exit_code != 0
    assert not feed.exists()


def quarantined(feed: Path) -> list[tuple[str, bytes]]:
    return sorted((row["reason"], row["raw"]) for row in parquet.read_table(feed / "quarantine").to_pylist())


def test_lines_of_json_that_are_not_one_record_are_quarantined(spark: SparkSession, source: Path, feed: Path) -> None:
    lines = [
        b'{"a": "one", "n": 1}', b'{"a": "\\\\ud800 \\ud83d\\ude00", "n": NaN}', b'[{"a": "x"}, {"a": "y"}]', b"",
        b'{"a": "z"} ,',
        b'{"a": "two"} {"a": "three"}', b'{"a": "\xff"}', b'{"a": "\\ud800"}', b'[{"a": 1}, 2]', b'{"a":',
    ]
    (source / "a.json").write_bytes(b"\n".join(lines))
    prepare(source, feed, format_="json", schema="a string, n double")
    assert texts(feed, "a") == ["1", "\\ud800 \U0001f600", "one", "x", "y", "z"]
    assert quarantined(feed) == [
        ("half a character", lines[7]), ("malformed JSON", b"2"), ("malformed JSON", lines[9]),
        ("malformed JSON", lines[5]), ("not UTF-8", lines[6]),
    ]


def test_parquet_with_a_text_that_is_not_utf8_is_quarantined(spark: SparkSession, source: Path, feed: Path) -> None:
    frame = spark.sql("SELECT id, array(IF(id = 1, CAST(X'62FF' AS STRING), 'ok')) AS `na.me` FROM range(3)")
    frame.write.parquet(str(source / "rows"))
    prepare(source / "rows", feed, format_="parquet")
    assert texts(feed, "id") == [0, 2]
    assert [reason for reason, _ in quarantined(feed)] == ["na.me is not UTF-8"]


def test_verify_counts_every_record_of_a_json_line(spark: SparkSession, tmp_path: Path) -> None:
    left, right = tmp_path / "left.json", tmp_path / "right.json"
    left.write_text('{"k": 1} {"k": 2}\n')
    right.write_text('{"k": 1}\n')
    assert CliRunner().invoke(verify_command, [str(left), str(right), "--by", "k"]).exit_code != 0


def test_csv_in_a_folder_with_brackets_is_compared(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "d[1]"
    folder.mkdir()
    (folder / "a.csv").write_text("k,v\n1,2\n")
    result = CliRunner().invoke(verify_command, [str(folder), str(folder), "--by", "k"])
    assert result.exit_code == 0, result.exception
