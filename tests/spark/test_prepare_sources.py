"""`squall prepare` reads what Spark reads, cleans it, and loses no record: it is in the feed or in the quarantine."""

from __future__ import annotations

import csv
import gzip
import random
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
import pyarrow
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner
from pyarrow import orc

from squall import FeedSpout, TopologyBuilder
from squall.cli.data.spark import prepare_command
from squall.engine.errors import ClusterError, SquallError, UsageError
from squall.pipeline.feed.manifest import load_manifest
from squall.pipeline.prepare import prepare
from squall.testing import complete_topology
from tests.docs.pages import Page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return tmp_path / "feed"


def emitted(feed: Path) -> list[tuple[Any, ...]]:
    """What a spout emits of a feed, in order of value."""
    builder = TopologyBuilder()
    builder.set_spout("rows", FeedSpout(feed), parallelism=2)
    return sorted((tuple(values) for values in complete_topology(builder.build())["rows"]), key=repr)


def quarantined(feed: Path) -> list[tuple[str, int, str, bytes]]:
    rows = parquet.read_table(feed / "quarantine").to_pylist()
    return sorted((row["path"], row["line_no"], row["reason"], row["raw"]) for row in rows)


def write(file: Path, table: pyarrow.Table) -> None:
    if file.suffix == ".orc":
        orc.write_table(table, file)
    else:
        parquet.write_table(table, file)


TEXTS = ["", "x", "two words", "a,b", 'say "hi"', "two\nlines", "caf\u00e9", "\u2028", "NULL", "'"]


def some_csv(path: Path, randomness: random.Random, count: int) -> None:
    """Records of which some are too short, have no number, or a byte that is no text."""
    rows = []
    for number in range(count):
        row = [str(number), randomness.choice(TEXTS), randomness.choice(["1.5", "-2e3"])]
        odd = randomness.random()
        rows.append(row[:2] if odd < 0.1 else ["x", *row[1:]] if odd < 0.2 else row)
    with path.open("w", newline="", encoding="latin-1", errors="backslashreplace") as file:
        csv.writer(file).writerows([["id", "name", "size"], *rows])


def test_each_record_of_csv_is_in_the_feed_or_refused(spark: SparkSession, source: Path, feed: Path, seed: int) -> None:
    """As pandas counts them, which reads by itself."""
    randomness = random.Random(seed)
    records: list[tuple[Any, ...]] = []
    for name in "abc":
        some_csv(source / f"{name}.csv", randomness, randomness.randrange(1, 60))
        read = pandas.read_csv(source / f"{name}.csv", dtype=str, encoding="latin-1", keep_default_na=False)
        records += read.itertuples(index=False, name=None)
    made = prepare(source, feed, format_="csv", schema="id int, name string, size string").manifest
    assert made.rows + made.quarantined == len(records)
    assert len(quarantined(feed)) == made.quarantined
    good = [row for row in records if row[0] != "x" and "\xe9" not in row[1] and row[2]]
    assert emitted(feed) == sorted(((int(number), name or None, size) for number, name, size in good), key=repr)


def test_what_the_reader_of_json_would_lose_is_refused(spark: SparkSession, source: Path, feed: Path) -> None:
    lines = [
        b'{"a": "one", "n": 1}', b'{"a": "\\\\ud800 \\ud83d\\ude00", "n": NaN}', b'[{"a": "x"}, {"a": "y"}]', b"",
        b'{"a": "z"} ,', b'{"a": 12345678901234567890123456789012345678901234567890}',
        b'{"a": "two"} {"a": "three"}', b'{"a": {"b": 1, "b": 2}}', b'{"a": "\\ud800"}', b'{"c": "\xff"}', b'{"a":',
    ]
    for day in (1, 2):
        (source / f"day={day}").mkdir()
    with gzip.open(source / "day=1" / "a.json.gz", "wb") as file:
        file.write(b"\n".join(lines))
    (source / "day=2" / "b.json").write_text('{"a": 0.1000}\n{"a": {"b": [1]}}')
    prepare(source, feed, format_="json", schema="a string, n double")
    long = "12345678901234567890123456789012345678901234567890"
    assert [(text, day) for text, _, day in emitted(feed)] == [
        ("0.1000", 2), (long, 1), ("\\ud800 \U0001f600", 1), ("one", 1), ("x", 1), ("y", 1), ("z", 1),
        ('{"b": [1]}', 2),
    ]
    name = "day=1/a.json.gz"
    assert quarantined(feed) == [
        (name, 7, "more than one value", lines[6]), (name, 8, "a key twice in an object", lines[7]),
        (name, 9, "half a character", lines[8]), (name, 10, "not UTF-8", lines[9]),
        (name, 11, "malformed JSON", lines[10]),
    ]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "line breaks", "json"])
def test_a_refused_record_says_its_line_and_the_value(
    spark: SparkSession, source: Path, feed: Path, seed: int, kind: str
) -> None:
    """Also of records that are there twice, and in whatever part of the file."""
    bad = {
        b"x,one,2026-11-22": "column id is no int: 'x'",
        b"7,one,22.11.": "column day is no date: '22.11.'",
        b"7,caf\xe9s,": "column name is not UTF-8: 'caf\ufffds'",
        b"7,one": "not as many values as columns",
    }
    good = b'7,"two\nlines",' if kind == "line breaks" else '7,"caf\u00e9s",\r'.encode()
    if kind == "json":
        bad = {
            b'{"id": "x", "day": null}': "column id is no int: 'x'",
            b'{"id": 1, "day": {"a": 1}}': """column day is no date: '{"a":1}'""",
            b'{"id": 1': "malformed JSON",
        }
        good = b'{"id": 1, "name": "caf\xc3\xa9"}\r'
    randomness = random.Random(seed)
    content, expected = b"id,name,day\n" * (kind != "json"), []
    for _ in range(3000):
        if randomness.random() < 0.01:
            line = randomness.choice(list(bad))
            expected.append(("a", content.count(b"\n") + 1, bad[line]))
        else:
            line = good
        content += line + b"\n"
    name = f"a.{kind}" if kind != "line breaks" else "a.csv"
    (source / name).write_bytes(gzip.compress(content) if kind == "csv.gz" else content)
    format_ = "json" if kind == "json" else "csv"
    made = prepare(source, feed, format_=format_, schema="id int, name string, day date").manifest
    assert [("a", line, reason) for _, line, reason, _ in quarantined(feed)] == expected
    assert len(made.quarantine_reasons) <= len(bad)
    assert made.rows == 3000 - len(expected)


def test_a_file_of_json_may_be_one_value(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.json").write_text('{"a": "one",\n"n": 1}\n')
    (source / "b.json").write_text('[{"a": "two"}\n, {"a": "three"}]')
    (source / "c.json").write_text('{"a": "lost"}\n{"a": "lost"}\n')
    prepare(source, feed, format_="json", schema="a string", options={"multiLine": "true"})
    assert emitted(feed) == [("one",), ("three",), ("two",)]
    assert [row[:3] for row in quarantined(feed)] == [("c.json", 0, "more than one value")]


def test_names_of_files_and_columns_may_be_odd(spark: SparkSession, source: Path, feed: Path) -> None:
    (folder := source / "k`ey=1").mkdir()
    (folder / "a b{1}.csv").write_text("id,na.me,`n`\n1,one,x\n2\n")
    made = prepare(source, feed, format_="csv")
    assert made.manifest.schema == {"id": "string", "na.me": "string", "`n`": "string", "k`ey": "int"}
    assert emitted(feed) == [("1", "one", "x", 1)]
    assert quarantined(feed) == [("k`ey=1/a b{1}.csv", 3, "not as many values as columns", b"2")]


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_files_of_one_schema_are_read_and_others_refused(
    spark: SparkSession, source: Path, feed: Path, format_: str
) -> None:
    wrong = pyarrow.array([b"\xff", b"ok"]).view(pyarrow.string())
    write(source / f"a.{format_}", pyarrow.table({"key": wrong, "value": [1.5, 2.5]}))
    prepare(source, feed, format_=format_)
    assert emitted(feed) == [("ok", 2.5)]
    assert [reason for _, _, reason, _ in quarantined(feed)] == ["column key is not UTF-8: '\ufffd'"]
    write(source / f"b.{format_}", pyarrow.table({"key": ["y"], "value": ["3.5"]}))
    with pytest.raises(UsageError, match="rows changed their schema: column 'value' is string, and double"):
        prepare(source, feed, format_=format_)
    write(source / f"c.{format_}", pyarrow.table({"key": ["y"], "value": [3.5]}))
    with pytest.raises(UsageError, match=r"column 'value' is double in .*/c\.\w+, and string in .*/b\.\w+"):
        prepare(source, feed, format_=format_)
    (source / f"b.{format_}").write_bytes(b"PAR1 is not enough")
    with pytest.raises(UsageError, match=rf"/b\.{format_} is no {format_} file, or damaged: "):
        prepare(source, feed, format_=format_)


@pytest.mark.parametrize("format_", ["text", "csv", "json"])
def test_few_small_files_fill_all_partitions(
    spark: SparkSession, source: Path, tmp_path: Path, feed: Path, format_: str
) -> None:
    for name in "abc":
        (source / f"{name}.txt").write_text("".join(f'{{"n": {number:8}}}\n' for number in range(3840)))
    (tmp_path / "all.sql").write_text("SELECT * FROM input")
    prepare(source, feed, format_=format_, sql=tmp_path / "all.sql")
    rows = [partition.rows for partition in load_manifest(feed).partitions]
    assert max(rows) < 2 * min(rows), rows


def test_sql_cleans_records_and_malformed_ones_stay_refused(
    spark: SparkSession, source: Path, tmp_path: Path, feed: Path
) -> None:
    (source / "a.csv").write_text("id,text\n1,one\n2,two\nx,y\n")
    (sql := tmp_path / "rows.sql").write_text("SELECT *, IF(id = 2, 'is two', NULL) AS _reason FROM input")
    how: dict[str, Any] = {"format_": "csv", "schema": "id int, text string", "sql": sql}
    prepare(source, feed, **how)
    assert emitted(feed) == [(1, "one")]
    assert quarantined(feed) == [
        ("a.csv", 0, "is two", b'{"id":2,"text":"two"}'), ("a.csv", 4, "column id is no int: 'x'", b"x,y"),
    ]
    sql.write_text("SELECT * FROM input")
    with pytest.raises(UsageError, match=r"was made with clean \w{64}, and now it is \w{64}; --overwrite"):
        prepare(source, feed, **how)


CLEAN = '''
from pyspark.sql import functions as f
from shift_of_ids import SHIFT

@f.udf("int")
def number(text):
    return None if text[0] == "#" else int(text) + SHIFT

def clean(rows):
    good = rows.where("text <> 'gone'").withColumn("_reason", f.when(f.col("text").startswith("#"), "a comment"))
    return good.withColumn("n", f.when(f.col("_reason").isNull(), number("text")))

def fails(rows):
    return rows.select(rows.no_such_column)

def nothing(rows):
    print(rows.columns)

def exits(rows):
    raise SystemExit(0)
'''


def test_a_function_cleans_and_its_errors_are_told_with_their_line(
    spark: SparkSession, source: Path, tmp_path: Path, feed: Path
) -> None:
    (tmp_path / "shift_of_ids.py").write_text("SHIFT = 100\n")
    (tmp_path / "clean.py").write_text(CLEAN)
    (source / "a.txt").write_bytes(b"1\ngone\n# x\n\xff\n2\n")
    prepare(source, feed, clean=f"{tmp_path}/clean.py:clean")
    assert emitted(feed) == [("1", 101), ("2", 102)]
    assert quarantined(feed) == [("a.txt", 3, "a comment", b"# x"), ("a.txt", 4, "not UTF-8", b"\xff")]

    def said(function: str) -> str:
        with pytest.raises(SquallError) as found:
            prepare(source, tmp_path / "other", clean=f"{tmp_path}/clean.py:{function}")
        assert not (tmp_path / "other").exists()
        return str(found.value).removeprefix(str(tmp_path))

    assert said("fails").startswith("/clean.py:14: ")
    assert said("nothing") == "/clean.py:nothing returned NoneType, and no DataFrame"
    assert said("exits").startswith("/clean.py:20: ")
    assert said("cleen").endswith("has no attribute 'cleen'")
    (source / "b.txt").write_text("x\n")
    told = said("clean")
    assert told.startswith("Spark failed: ValueError: invalid literal for int() with base 10: 'x' (")
    assert told.endswith("clean.py, line 7, in number)")
    (tmp_path / "clean.py").write_text("def clean(:\n")
    assert said("clean").startswith("/clean.py:1: SyntaxError: ")


#: What is given, and what is said of it.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"source": "empty"}, "has no text file$"),
    ({"pattern": "*.rst"}, r"has no text file matching \*\.rst$"),
    ({"format_": "csv", "pattern": "*.txt"}, "has no csv file"),
    ({"feed": "in put"}, "would replace its own input"),
    ({"feed": "."}, "would replace its own input"),
    ({"feed": "in put/a.csv"}, r"a\.csv exists and is no directory"),
    ({"feed": "in put/a.csv/feed"}, r"feed .* cannot be written: (Not a directory|File exists)"),
    ({"format_": "cvs"}, "^--format is 'cvs'; allowed: text, csv, json, parquet, orc$"),
    ({"schema": "a int"}, "^--schema is given, but --format is text"),
    ({"format_": "orc", "schema": "a int"}, "^--schema is given, but orc files have their own"),
    ({"format_": "csv", "options": {"MODE": "FAILFAST"}}, "^--option MODE is set by prepare; remove it$"),
    ({"clean": "clean.py"}, r"^--clean is 'clean\.py'; it takes FILE:FUNCTION, such as clean\.py:clean$"),
    ({"clean": "none.py:f"}, r"^cannot read none\.py: No such file or directory$"),
    ({"clean": "c.py:f", "sql": Path("s.sql")}, "^--sql and --clean exclude each other"),
]


@pytest.mark.parametrize(("how", "said"), REFUSED)
def test_wrong_use_is_refused_before_spark_starts(source: Path, tmp_path: Path, how: dict[str, Any], said: str) -> None:
    """Without the `spark` fixture: if one of these started a Java machine, the test would take seconds."""
    (source / "a.csv").write_text("a\n1\n")
    (tmp_path / "empty").mkdir()
    places = {name: tmp_path / how.get(name, given) for name, given in (("source", "in put"), ("feed", "feed"))}
    with pytest.raises(UsageError, match=said):
        prepare(**{**how, **places})
    assert not (tmp_path / "feed").exists()


#: What is wrong, and what Spark says of it.
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("name,id\nx,1\n", {"schema": "id int, name string"}, "Header: name, id Schema: id, name .* CSV file: .*/a.csv$"),
    ("a,b,c\n1,2,3\n", {"options": {"maxColumns": "2"}}, "Malformed CSV record: a,b,c"),
]


@pytest.mark.parametrize(("content", "how", "said"), REFUSALS)
def test_what_spark_refuses_is_told_in_one_line(
    spark: SparkSession, source: Path, feed: Path, content: str, how: dict[str, Any], said: str
) -> None:
    (source / "a.csv").write_text(content)
    with pytest.raises(ClusterError, match=said) as found:
        prepare(source, feed, format_="csv", **how)
    assert str(found.value).startswith("Spark failed: ")
    assert "\n" not in str(found.value)
    assert not feed.exists()


LOG = """\
10.0.0.1 - - [10/Oct/2025:13:55:36 +0200] "GET /index.html HTTP/1.1" 200 2326
10.0.0.2 - ann [10/Oct/2025:13:55:37 +0200] "GET /health HTTP/1.1" 200 -
10.0.0.3 - - [10/Oct/2025:13:55:38 +0200] "GET / HTTP/1.1" 304 -
10.0.0.4 - - [99/Oct/2025:13:55:38 +0200] "GET / HTTP/1.1" 200 1
rubbish
"""


def test_the_page_shows_how_to_prepare(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page("docs/spark.md")
    [commands] = [block for block in page.of("") if block.startswith("squall prepare logs ")]
    [sql] = page.of("sql")
    monkeypatch.chdir(tmp_path)
    Path("access.sql").write_text(sql)
    for folder in ("logs", "orders"):
        Path(folder).mkdir()
    Path("logs/a.log").write_bytes(LOG.encode() + b"\xff\n")
    Path("orders/a.csv").write_text("id;name\n1;one\n2;two\n")
    for line in commands.splitlines():
        shown = CliRunner().invoke(prepare_command, shlex.split(line, comments=True)[2:], catch_exceptions=False)
        assert shown.exit_code == 0, shown.output
        with open("logs/a.log", "a") as log:
            log.write(LOG.splitlines(keepends=True)[0])
    index = ("10.0.0.1", "GET", "/index.html", 200, 2326)
    assert [values[1:] for values in emitted(tmp_path / "feed")] == [index, index, ("10.0.0.3", "GET", "/", 304, 0)]
    assert quarantined(tmp_path / "feed") == [
        ("a.log", 4, "no such time", LOG.encode().splitlines()[3]),
        ("a.log", 5, "not in the common log format", b"rubbish"), ("a.log", 6, "not UTF-8", b"\xff"),
    ]
    assert emitted(tmp_path / "orders.feed") == [(1, "one"), (2, "two")]
