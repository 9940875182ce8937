"""Records that Spark's readers pass over or read in another way are told, and `prepare` and `verify` read alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException

from squall.cli.spark import prepare as prepare_command
from squall.cli.verify import verify as verify_command
from squall.engine.errors import UsageError
from squall.pipeline.column_names import folded
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


def test_the_quarantine_has_the_bytes_of_csv_that_is_not_utf8(spark: SparkSession, source: Path, feed: Path) -> None:
    record = b'id,na`me,b\n1,caf\xe9,"x ""y"", \xff\n z"\n2,ok,\xc3\xa9\n\xfe,x,y\n3,\xe9,\n4,one,two,\xe8\n'
    (source / "a.csv").write_bytes(record)
    # What is there of a wrong byte is in files that are UTF-8, too, and is text.
    (source / "b.csv").write_text("id,na`me,b\n5,\ufffd,ok\n")
    (source / "c.csv").write_bytes(b"\xef\xbb\xbfid,na`me,b\n6,six,\xff\n7,seven,\xc3\xa9\n")
    prepare(source, feed, format_="csv", schema="id int, `na``me` string, b string")
    assert texts(feed, "b") == ["ok", "\xe9", "\xe9"]
    assert texts(feed, "na`me") == ["ok", "seven", "\ufffd"]
    assert quarantined(feed) == [
        ("malformed CSV", b"4,one,two,\xe8"), ("malformed CSV", b"\xfe,x,y"),
        ("not UTF-8", b'{"id":1,"na`me":"caf\xe9","b":"x \\"y\\", \xff\\n z"}'),
        ("not UTF-8", b'{"id":3,"na`me":"\xe9"}'),
        # Spark reads a file with a byte order mark as UTF-8, whatever it is told.
        ("not UTF-8", b'{"id":6,"na`me":"six","b":"\xef\xbf\xbd"}'),
    ]


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


ODD = "a`b.c d"
RULES = """
rules:
  - extract: '^(?<first>.)'
    from: "a`b.c d"
  - trim: "a`b.c d"
  - cast: {"`n`": int}
  - require: "a`b.c d"
  - range: {"`n`": [0, 5]}
  - one_of: {"a`b.c d": [x, y]}
  - match: {"a`b.c d": '^[xy]$'}
  - rename: {"`n`": m}
  - derive: {twice: "concat(`a``b.c d`, `a``b.c d`)"}
  - refuse: "`a``b.c d` = 'y'"
  - columns: [m, "a`b.c d", twice]
"""


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_column_names_may_have_backticks(spark: SparkSession, source: Path, feed: Path, format_: str) -> None:
    rows = {ODD: [" x ", "y", "x", "z"], "`n`": ["1", "2", "9", "3"]}
    table = pyarrow.table({**rows, "drop`ped": [1, 1, 1, 1]})
    folder = source / "k`ey=1"
    folder.mkdir()
    match format_:
        case "csv":
            pyarrow.csv.write_csv(table, folder / "a.csv")
        case "json":
            (folder / "a.json").write_text("\n".join(map(json.dumps, table.to_pylist())))
        case "parquet":
            parquet.write_table(table, folder / "a.parquet")
    (source.parent / "rules.yaml").write_text(RULES)
    made = prepare(source, feed, format_=format_, rules=source.parent / "rules.yaml", columns=[ODD, "`n`", "k`ey"])
    assert parquet.read_table(feed / "rows", columns=["m", ODD, "twice"]).to_pylist() == [
        {"m": 1, ODD: "x", "twice": "xx"}
    ]
    assert made.manifest.quarantined == 3
    # Another run of the same feed knows its columns again.
    (folder / f"b.{format_}").write_bytes((folder / f"a.{format_}").read_bytes())
    assert prepare(
        source, feed, format_=format_, rules=source.parent / "rules.yaml", columns=[ODD, "`n`", "k`ey"]
    ).added_rows == 1
    (source.parent / "clean.py").write_text("def clean(frame):\n    return frame\n")
    again = prepare(source, source.parent / "again", format_=format_, clean=f"{source.parent / 'clean.py'}:clean")
    assert set(again.manifest.schema) == {ODD, "`n`", "drop`ped", "k`ey"}
    sides = [str(source.parent / "again")] * 2
    for options in (("--by", f"{ODD},`n`,k`ey", "--keys-only", "--repeats-ok"),
                    ("--by", "partition,offset", "--last", "`n`", "--compare", f"{ODD},drop`ped")):
        result = CliRunner().invoke(verify_command, [*sides, *options])
        assert result.exit_code == 0, result.output or result.exception


def test_a_backtick_in_a_name_of_orc_is_refused(source: Path, feed: Path) -> None:
    """Spark takes it for the end of the name, and reads nulls."""
    for name, table in (("a", {"n": [1], "a`b": [1]}), ("b", {"s": [{"x`": 1}]})):
        pyarrow.orc.write_table(pyarrow.table(table), source / f"{name}.orc")
        with pytest.raises(UsageError, match=r"[ab]\.orc has a backtick in column '(a`b|s)', where Spark ends a name"):
            prepare(source, feed, format_="orc")
        (source / f"{name}.orc").unlink()


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
        b'{"a": "two"} {"a": "three"}', b'{"a": "\xff"}', b'{"a": "\\ud800"}', b'[{"a": 1}, 2]', b'{"a":', b'[1,2]',
        b'["{\\"a\\": 3}"]', b' [ "x", null]',
    ]
    (source / "a.json").write_bytes(b"\n".join(lines))
    prepare(source, feed, format_="json", schema="a string, n double")
    assert texts(feed, "a") == ["\\ud800 \U0001f600", "one", "x", "y", "z"]
    malformed = [("malformed JSON", lines[number]) for number in (5, 8, 9, 10, 11, 12)]
    assert quarantined(feed) == sorted([("half a character", lines[7]), ("not UTF-8", lines[6]), *malformed])


def test_files_of_json_that_are_not_one_value_are_quarantined(spark: SparkSession, source: Path, feed: Path) -> None:
    good = {"a": b'{"a": "one",\n"n": 1}\n', "b": b'[{"a": "two"}\n, {"a": "three"}]'}
    good["c"] = b'\xef\xbb\xbf{"a": "mark"}'
    good["d"] = '{"a": "\xe9"}'.encode("utf-16")
    malformed = [b'{"a": "lost"}\n{"a": "lost"}\n', b'{"a":', b'{"a": "x",\n"n": "no number"}']
    broken = b'{"a":\n"caf\xe9 \xff"}'
    for name, content in [*good.items(), *zip("xyzu", (*malformed, broken), strict=True)]:
        (source / f"{name}.json").write_bytes(content)
    how: dict[str, Any] = {"format_": "json", "schema": "a string, n int", "options": {"multiLine": "true"}}
    prepare(source, feed, **how)
    assert texts(feed, "a") == ["mark", "one", "three", "two", "\xe9"]
    wanted = [("not UTF-8", broken), *(("malformed JSON", content) for content in malformed)]
    assert quarantined(feed) == sorted(wanted)
    for name in good:
        (source / f"{name}.json").unlink()
    with pytest.raises(UsageError, match=r"no good row: 4 files read, 4 lines quarantined \(3 malformed JSON, "):
        prepare(source, source.parent / "other", **how)


EXACT = "a decimal(38,10), b string, m map<string, string>, s struct<n: string, l: array<string>>"


@pytest.mark.parametrize("is_array", [False, True])
def test_numbers_of_json_are_kept_as_they_stand(
    spark: SparkSession, source: Path, feed: Path, is_array: bool
) -> None:
    """As Spark writes them, they have gone through a double: 12345678901234568, 0.1 and "Infinity"."""
    records = [
        '{"a": 12345678901234567.89, "b": 0.1000, "m": {"k": 1E5}}', '{"b": {"x": [1.10, "2.20 \\\\\\" 3.30"]}}',
        '{"b": "4.50 \\"5.50", "s": {"n": 1e400, "l": [-1.50, "x", null]}}', '{"a": 1.5}',
    ]
    (source / "a.json").write_text(f"[{', '.join(records)}]" if is_array else "\n".join(records))
    prepare(source, feed, format_="json", schema=EXACT)
    rows = parquet.read_table(feed / "rows").select(["a", "b", "m", "s"]).to_pylist()
    assert [row["a"] and str(row["a"]) for row in rows] == ["12345678901234567.8900000000", None, None, "1.5000000000"]
    assert [row["b"] for row in rows] == ["0.1000", '{"x":[1.10,"2.20 \\\\\\" 3.30"]}', '4.50 "5.50', None]
    assert (rows[0]["m"], rows[2]["s"]) == ([("k", "1E5")], {"n": "1e400", "l": ["-1.50", "x", None]})


def test_a_key_of_json_without_a_name_is_not_lost(spark: SparkSession, source: Path, feed: Path) -> None:
    lines = [b'{"a": 1, "b": "{\\"\\":"}', b'{"": 2, "a": 1}', b'{"a": 3, "s": {"x": 1, "" : 2}}']
    (source / "a.json").write_bytes(b"\n".join(lines))
    prepare(source, feed, format_="json")
    assert (texts(feed, "a"), quarantined(feed)) == ([1], [("a key without a name", line) for line in lines[1:]])
    # Who names the columns has left the others out.
    assert prepare(source, source.parent / "named", format_="json", schema="a int").manifest.rows == 3
    (source / "b.json").write_bytes(b'{"a": 4}')
    how: dict[str, Any] = {"format_": "json", "options": {"multiLine": "true"}}
    (source / "a.json").write_bytes(lines[1])
    prepare(source, source.parent / "whole", **how)
    assert quarantined(source.parent / "whole") == [("a key without a name", lines[1])]


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_key_of_json_that_is_there_twice_is_told(
    spark: SparkSession, source: Path, feed: Path, is_whole: bool
) -> None:
    """Spark would take the last value, and say nothing of the first."""
    good = [b'{"a": 1, "s": {"a": NaN}, "l": [{"a": 1}, {"a": 1}]}', b'{"a": 2, "t": "\\"a\\": 1, \\"a\\": 2"}']
    twice = [b'{"a": 3, "b": 1, "a": 4}', b'{"a": 5, "l": [{"x": 1, "x": 1}]}']
    for number, line in enumerate([*good[: 1 if is_whole else 2], *twice]):
        (source / f"{number}.json").write_bytes(line)
    prepare(source, feed, format_="json", schema="a int", options={"multiLine": str(is_whole).lower()})
    assert texts(feed, "a") == ([1] if is_whole else [1, 2])
    assert quarantined(feed) == [("a key twice in an object", line) for line in twice]


def test_a_key_that_is_there_twice_is_no_column_twice(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.json").write_bytes(b'{"a": 1}\n{"a": 2, "a": 3, "b": 1}\n{"caf\xe9": 1}')
    made = prepare(source, feed, format_="json")
    assert (made.manifest.schema, texts(feed, "a")) == ({"a": "bigint"}, [1])
    assert made.manifest.quarantine_reasons == {"a key twice in an object": 1, "not UTF-8": 1}


def test_lines_of_json_may_begin_with_a_mark(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')
    prepare(source, feed, format_="json")
    assert texts(feed, "a") == [1, 2]


def test_half_a_character_in_a_file_of_json_is_quarantined(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.json").write_bytes(half := b'{"a":\n"x \\ud800 y"}')
    (source / "b.json").write_bytes(b'{"a":\n"\\ud83d\\ude00"}')
    prepare(source, feed, format_="json", options={"multiLine": "true"})
    assert (texts(feed, "a"), quarantined(feed)) == (["\U0001f600"], [("half a character", half)])


def test_names_are_one_as_spark_compares_them(spark: SparkSession) -> None:
    for first, second in ("aA", "k\u212a", "s\u017f", "\u03c3\u03c2", "\xb5\u03bc", "\u0131i", ("\xdf", "SS")):
        try:
            is_one = bool(spark.sql(f"SELECT `{second}` FROM VALUES (1) AS t(`{first}`)").columns)
        except AnalysisException:
            is_one = False
        assert (folded(first) == folded(second)) is is_one, (first, second)


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
