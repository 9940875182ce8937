"""`squall prepare` reads what Spark reads, cleans it by rules or a function, and quarantines what does not fit."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result

from squall import FeedSpout, TopologyBuilder
from squall.cli.spark import prepare as prepare_command
from squall.engine.errors import ClusterError, UsageError
from squall.pipeline.prepare import prepare
from squall.pipeline.rules import RuleMistakes
from squall.testing import complete_topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return tmp_path / "feed"


def emitted(feed: Path) -> list[tuple[Any, ...]]:
    """What a spout emits of a feed, in order of value."""
    builder = TopologyBuilder()
    builder.set_spout("rows", FeedSpout(feed), parallelism=2)
    return sorted(tuple(values) for values in complete_topology(builder.build())["rows"])


def quarantined(feed: Path) -> list[tuple[str, int, str, bytes]]:
    rows = parquet.read_table(feed / "quarantine").to_pylist()
    return sorted((row["path"], row["line_no"], row["reason"], row["raw"]) for row in rows)


def test_records_of_csv_that_are_malformed_are_quarantined(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a b{1}.csv").write_text('id,name\n1,one\n2,"two, too"\nx,three\n4\n')
    with gzip.open(source / "c.csv.gz", "wt") as file:
        file.write("id,name\n5,five\n")
    (source / "_SUCCESS").touch()
    made = prepare(source, feed, format_="csv", schema="id int, name string")
    assert emitted(feed) == [(1, "one"), (2, "two, too"), (5, "five")]
    assert quarantined(feed) == [
        ("a b{1}.csv", 0, "malformed CSV", b"4"), ("a b{1}.csv", 0, "malformed CSV", b"x,three"),
    ]
    assert made.manifest.schema == {"id": "int", "name": "string"}
    assert (made.manifest.files, made.manifest.fields) == (2, ("id", "name"))
    (source / "d.csv").write_text("name,id\nsix,6\n")
    with pytest.raises(UsageError, match=r"d\.csv has the name 'name' for column 1, and --schema has 'id'; allowed: "):
        prepare(source, feed, format_="csv", schema="id int, name string")
    (source / "d.csv").write_text("id,name\n6,six\n")
    assert prepare(source, feed, format_="csv", schema="id int, name string").added_rows == 1
    assert (6, "six") in emitted(feed)


def test_json_keeps_the_schema_it_began_with(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.json").write_text('{"a": 1, "b": {"c": [1, 2]}}\n{"a": 2}\n{"a": \n')
    prepare(source, feed, format_="json", columns=["a"])
    assert emitted(feed) == [(1,), (2,)]
    assert quarantined(feed) == [("a.json", 0, "malformed JSON", b'{"a": ')]
    (source / "b.json").write_text('{"a": 3}\n')
    prepare(source, feed, format_="json", columns=["a"])
    assert emitted(feed) == [(1,), (2,), (3,)]
    (source / "c.json").write_text('{"a": "four"}\n')
    changed = r"changed its schema: column 'a' is string in the new files, and bigint in those of the feed; --overwrite"
    with pytest.raises(UsageError, match=changed):
        prepare(source, feed, format_="json", columns=["a"])


def test_parquet_of_one_schema_is_read_and_others_are_refused(spark: SparkSession, source: Path, feed: Path) -> None:
    def write(name: str, **columns: Sequence[Any]) -> None:
        parquet.write_table(pyarrow.table(columns), source / name)

    write("a.parquet", key=["x", None], value=[1.5, 2.5], partition=[1, 2])
    with pytest.raises(UsageError, match="have a column 'partition', which is the feed's own"):
        prepare(source, feed, format_="parquet")
    prepare(source, feed, format_="parquet", columns=["value", "key"])
    assert emitted(feed) == [(1.5, "x"), (2.5, None)]
    write("b.parquet", key=["y"], value=["3.5"], partition=[1])
    changed = "changed its schema: column 'value' is string in the new files, and double in those of the feed"
    with pytest.raises(UsageError, match=changed):
        prepare(source, feed, format_="parquet", columns=["value", "key"])
    write("c.parquet", key=["y"], value=[3.5])
    differ = r"differ in their schema: column 'value' is double in .*/c\.parquet, and string in .*/b\.parquet"
    with pytest.raises(UsageError, match=differ):
        prepare(source, feed, format_="parquet", columns=["value", "key"])
    (source / "b.parquet").write_bytes(b"PAR1 is not enough")
    with pytest.raises(UsageError, match=r"/b\.parquet is no parquet file, or damaged: "):
        prepare(source, feed, format_="parquet", columns=["value", "key"])
    assert emitted(feed) == [(1.5, "x"), (2.5, None)]


def test_orc_is_read(spark: SparkSession, source: Path, feed: Path) -> None:
    from pyarrow import orc

    orc.write_table(pyarrow.table({"a": [1, 2], "b": ["x", "y"]}), source / "a.orc")
    prepare(source, feed, format_="orc")
    assert emitted(feed) == [(1, "x"), (2, "y")]


RULES = r"""
rules:
  - extract: '^(?P<host>\S+) (?P<status>\S+) (?P<size>.*)$'
  - drop: host = 'health'
  - cast: {status: int}
  - range: {status: [100, 599]}
    reason: no such status
  - derive: {inverse: 1 / (status - 404)}
  - trim: size
  - require: size
  - match: {size: '^[0-9]+$'}
  - one_of: {host: [a, b]}
  - rename: {size: bytes}
  - keep: status <> 500
  - refuse: status = 418
    reason: a teapot
  - columns: [host, status, bytes]
"""

LINES = {
    "a 200 7": ("a", 200, "7"), "b 301  8 ": ("b", 301, "8"), "health 200 1": None, "a 500 9": None,
    "nothing": "text does not match (rules.yaml:3)", "a x 1": "status is no int (rules.yaml:5)",
    "a 99 1": "no such status (rules.yaml:6)", "a 600 1": "no such status (rules.yaml:6)",
    "a 200 ": "size is missing (rules.yaml:10)", "a 200 x": "size does not match (rules.yaml:11)",
    "c 200 1": "host is none of a, b (rules.yaml:12)", "a 418 1": "a teapot (rules.yaml:15)",
}


def test_each_row_has_the_fate_that_the_rules_give_it(
    spark: SparkSession, source: Path, tmp_path: Path, feed: Path
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    (source / "a.txt").write_bytes("\n".join(LINES).encode() + b"\n\xff\n")
    made = prepare(source, feed, rules=tmp_path / "rules.yaml", partitions=2)
    assert emitted(feed) == sorted(fate for fate in LINES.values() if isinstance(fate, tuple))
    refused = [
        ("a.txt", number, fate, line.encode())
        for number, (line, fate) in enumerate(LINES.items(), 1) if isinstance(fate, str)
    ]
    assert quarantined(feed) == [*refused, ("a.txt", len(LINES) + 1, "not UTF-8", b"\xff")]
    manifest = made.manifest
    assert (manifest.rows, manifest.quarantined, manifest.dropped) == (2, 9, {"rules.yaml:14": 1, "rules.yaml:4": 1})
    assert sum(manifest.quarantine_reasons.values()) == 9
    (source / "b.txt").write_text("b 204 5\n")
    assert prepare(source, feed, rules=tmp_path / "rules.yaml").added_files == 1
    assert prepare(source, feed, rules=tmp_path / "rules.yaml").added_files == 0
    (tmp_path / "rules.yaml").write_text(RULES.replace("599", "598"))
    with pytest.raises(UsageError, match=r"was made with rules \w{64}, and now it is \w{64}; --overwrite"):
        prepare(source, feed, rules=tmp_path / "rules.yaml")


def test_mistakes_about_columns_and_sql_are_named_with_their_lines(
    spark: SparkSession, source: Path, tmp_path: Path, feed: Path
) -> None:
    # What a function returns is known to Spark alone; else columns are told before it starts.
    (tmp_path / "clean.py").write_text("def clean(rows):\n    return rows\n")
    (tmp_path / "rules.yaml").write_text(
        "rules:\n- trim: txt\n- derive: {n: lenght(text)}\n- drop: 'text ='\n- cast: {line_no: nit}\n"
        "- keep: lin_no > 1\n- range: {text: [1, 2]}\n- range: {line_no: [x, 2]}\n- rename: {path: text}\n"
        "- drop: line_no\n- derive: {TEXT: upper(text)}\n- rename: {path: Text}\n"
    )
    (source / "a.txt").write_text("text\n")
    with pytest.raises(RuleMistakes) as found:
        prepare(source, feed, rules=tmp_path / "rules.yaml", clean=f"{tmp_path}/clean.py:clean")
    said = [mistake.partition("rules.yaml:")[2] for mistake in found.value.mistakes]
    wanted = [
        "2: trim: there is no column 'txt'; did you mean 'text'?",
        "3: derive: Cannot resolve routine `lenght`",
        "4: drop: Syntax error at or near end of input.",
        '5: cast: Unsupported data type "NIT"',
        "6: keep: A column, variable, or function parameter with name `lin_no` cannot be resolved. Did you mean one of",
        "7: range: column 'text' is text, which has no such range; cast it first",
        "8: range: column 'line_no' is int, and 'x' is none",
        "9: rename: there is a column 'text' already",
        "10: drop: ",
        "11: derive: there is a column 'text', which is one with 'TEXT' to Spark; allowed: another name",
        "12: rename: there is a column 'text', which is one with 'Text' to Spark; allowed: another name",
    ]
    assert len(said) == len(wanted), said
    for line, begin in zip(said, wanted, strict=True):
        assert line.startswith(begin)
        assert "_squall_" not in line
    assert not feed.exists()


CLEAN = '''
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from beside import SHIFT

@f.udf("int")
def number(text):
    return None if text[0] == "#" else int(text) + SHIFT

def clean(rows: DataFrame) -> DataFrame:
    good = rows.where("text <> 'gone'").withColumn("_reason", f.when(f.col("text").startswith("#"), "a comment"))
    return good.withColumn("n", f.when(f.col("_reason").isNull(), number("text")))

def fails(rows):
    return rows.select(rows.no_such_column)

def nothing(rows):
    print(rows.columns)

def misspells(rows):
    return rows.selectExpr("lenght(text)")

def breaks_off(rows):
    return rows.where("text =")
'''


def test_a_function_cleans_and_its_errors_come_first(
    spark: SparkSession, source: Path, tmp_path: Path, feed: Path
) -> None:
    (tmp_path / "beside.py").write_text("SHIFT = 100\n")
    (tmp_path / "clean.py").write_text(CLEAN)
    (source / "a.txt").write_bytes(b"1\ngone\n# x\n\xff\n2\n")
    made = prepare(source, feed, clean=f"{tmp_path}/clean.py:clean")
    assert emitted(feed) == [("1", 101), ("2", 102)]
    assert quarantined(feed) == [("a.txt", 3, "a comment", b"# x"), ("a.txt", 4, "not UTF-8", b"\xff")]
    assert made.manifest.schema == {"path": "string", "line_no": "int", "text": "string", "n": "int"}

    def said(function: str, kind: type[Exception]) -> str:
        with pytest.raises(kind) as found:
            prepare(source, tmp_path / "other", clean=f"{tmp_path}/clean.py:{function}")
        return str(found.value).removeprefix(str(tmp_path))

    assert said("fails", UsageError).startswith("/clean.py:15: ")
    assert "no_such_column" in said("fails", UsageError)
    assert said("misspells", UsageError).startswith("/clean.py:21: Cannot resolve routine `lenght`")
    assert said("breaks_off", UsageError) == "/clean.py:24: Syntax error at or near end of input."
    assert said("nothing", ClusterError) == "/clean.py:nothing returned NoneType; allowed: a DataFrame"
    assert said("cleen", UsageError).endswith("which is not there; did you mean 'clean'?")
    (source / "b.txt").write_text("x\n")
    told = said("clean", ClusterError)
    assert told.startswith("Spark failed: ValueError: invalid literal for int() with base 10: 'x' (")
    assert told.endswith("clean.py, line 8, in number)")
    (tmp_path / "clean.py").write_text("1 / 0\n")
    assert said("clean", UsageError) == "/clean.py:1: ZeroDivisionError: division by zero"
    (tmp_path / "clean.py").write_text("def clean(:\n")
    assert said("clean", UsageError).startswith("/clean.py:1: SyntaxError: ")
    assert not (tmp_path / "other").exists()


def test_wrong_options_are_refused_before_spark_starts(source: Path, tmp_path: Path, feed: Path) -> None:
    def refused(**options: Any) -> str:
        with pytest.raises(UsageError) as found:
            prepare(source, feed, **options)
        return str(found.value)

    (source / "a.csv").write_text("a\n1\n")
    assert refused(format_="cvs") == "--format is 'cvs'; allowed: text, csv, json, parquet, orc; did you mean csv?"
    assert refused(schema="a int").startswith("--schema is given, but --format is text")
    assert refused(format_="csv", options={"MODE": "FAILFAST"}).startswith("--option MODE is set by prepare")
    assert refused(format_="csv", columns=["a", "a"]) == "--columns names one twice: a, a"
    assert refused(clean="clean.py") == "--clean is 'clean.py'; allowed: FILE:FUNCTION, such as clean.py:clean"
    assert refused(clean="none.py:f") == "cannot read --clean none.py: No such file or directory"
    assert "has no csv file" in refused(format_="csv", pattern="*.txt")


def test_columns_of_rules_are_checked_before_spark_starts(source: Path, tmp_path: Path, feed: Path) -> None:
    """Without the `spark` fixture: nothing of this needs a Java machine."""
    parquet.write_table(pyarrow.table({"id": [1], "name": ["x"]}), source / "a.parquet")
    (rules := tmp_path / "rules.yaml").write_text("rules:\n- trim: nam\n- require: [id, text]\n")
    for how in ({"format_": "parquet"}, {"format_": "csv", "columns": ["id", "name"]}):
        with pytest.raises(RuleMistakes) as found:
            prepare(source, feed, rules=rules, **how)
        assert [mistake.removeprefix(f"{rules}:") for mistake in found.value.mistakes] == [
            "2: trim: there is no column 'nam'; did you mean 'name'?",
            "3: require: there is no column 'text'; allowed: id, name",
        ]
    (source / "a.txt").write_text("x\n")
    rules.write_text("rules:\n- trim: txt\n- dorp: x\n")
    with pytest.raises(RuleMistakes, match=r"no column 'txt'; did you mean 'text'\?; .*:3: rule 'dorp' is unknown"):
        prepare(source, feed, pattern="*.txt", rules=rules)


def test_a_file_of_which_nothing_is_good_is_named(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.csv").write_text("id,day\n1,2020-01-02\n2,2020-01-03\n")
    how: dict[str, Any] = {"format_": "csv", "schema": "id int, day date", "options": {"dateFormat": "dd/MM/yyyy"}}
    hint = "malformed CSV; see --option dateFormat=dd/MM/yyyy, --schema)"
    with pytest.raises(UsageError, match=re.escape(f"no good row: 1 file read, 2 lines quarantined (2 {hint}")):
        prepare(source, feed, **how)
    (source / "b.csv").write_text("id,day\n1,02/01/2020\nx,02/01/2020\n")
    made = prepare(source, feed, **how)
    assert made.nothing_of == (f"nothing of a.csv: all its 2 rows are quarantined ({hint}",)
    how["options"] = {"timestampFormat": "YYYY-MM-dd"}
    with pytest.raises(UsageError, match=r"^--option timestampFormat is 'YYYY-MM-dd', with which Spark reads no "):
        prepare(source, tmp := source.parent / "other", **how)
    assert not tmp.exists()


def test_a_text_file_of_which_nothing_is_good_is_named(spark: SparkSession, source: Path, feed: Path) -> None:
    (source / "a.txt").write_bytes(b"\xe9\n\xe8\n")
    (source / "b.txt").write_bytes(b"\xe9\nb\n")
    wanted = ("nothing of a.txt: all its 2 rows are quarantined (not UTF-8)",)
    assert prepare(source, feed).nothing_of == wanted
    (source.parent / "rules.yaml").write_text("rules:\n- drop: text = 'b'\n- trim: text\n")
    (source / "c.txt").write_bytes(b"c\n")
    assert prepare(source, source.parent / "other", rules=source.parent / "rules.yaml").nothing_of == wanted


def command(*arguments: object) -> Result:
    return CliRunner().invoke(prepare_command, [str(argument) for argument in arguments], catch_exceptions=False)


def test_the_command_takes_options_and_prints_every_mistake(
    spark: SparkSession, source: Path, tmp_path: Path, feed: Path
) -> None:
    (source / "a.csv").write_text("1;x\n2;y\n3;z\n")
    (tmp_path / "rules.yaml").write_text("rules:\n- drop: id = 1\n- require: name\n")
    arguments = (source, "--out", feed, "--format", "csv", "--option", "sep=;", "--option", "header=false",
                 "--schema", "id int, name string", "--columns", "id,name", "--rules", tmp_path / "rules.yaml")
    shown = command(*arguments)
    assert shown.exit_code == 0
    assert "holds       2 rows of id, name\n" in shown.stdout
    assert "dropped     1 (1 rules.yaml:2)\n" in shown.stdout
    again = command(*arguments, "--json")
    assert json.loads(again.stdout)["added_rows"] == 0
    (tmp_path / "rules.yaml").write_text("rules:\n- dorp: id = 1\n- requires: name\n")
    wrong = command(*arguments)
    assert wrong.exit_code == 2
    assert [line.partition("rules.yaml:")[2] for line in wrong.stderr.splitlines() if "squall: " in line] == [
        "2: rule 'dorp' is unknown; did you mean 'drop'?", "3: rule 'requires' is unknown; did you mean 'require'?",
    ]


PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
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
    (commands,) = re.findall(r"^```\n(squall prepare logs .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (rules,) = re.findall(r"^```yaml\n# access\.yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    Path("access.yaml").write_text(rules)
    for folder in ("logs", "orders"):
        Path(folder).mkdir()
    Path("logs/a.log").write_text(LOG)
    Path("orders/a.csv").write_text("id;name\n1;one\n2;two\n")
    for line in commands.splitlines():
        shown = command(*shlex.split(line, comments=True)[2:])
        assert shown.exit_code == 0, shown.output
    assert [values[1:] for values in emitted(tmp_path / "feed")] == [
        ("10.0.0.1", "GET", "/index.html", 200, 2326), ("10.0.0.3", "GET", "/", 304, 0),
    ]
    assert [reason for _, _, reason, _ in quarantined(tmp_path / "feed")] == [
        "at is missing (access.yaml:7)", "not in the common log format (access.yaml:2)",
    ]
    assert emitted(tmp_path / "orders.feed") == [(1,), (2,)]
