"""What `squall prepare` says of input that Spark refuses: one line, the user's things, no class of Java's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyarrow import orc, parquet

from squall.engine.errors import UsageError
from squall.pipeline.prepare import prepare
from squall.pipeline.reader_options import OPTIONS, OURS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = re.compile(r"\b(?:org|com|java|scala)\.\w+|Exception|SQLSTATE|\[[A-Z_.]+\]")


def refused(source: Path, **how: Any) -> str:
    """What is said, from the input's name on. Nothing of a feed is left."""
    feed = source.parent / "feed"
    with pytest.raises(UsageError) as found:
        prepare(source, feed, **how)
    assert not feed.exists()
    said = str(found.value)
    assert "\n" not in said
    assert not JAVA.search(said), said
    return said.replace(f"{source}/", "").replace(str(source), "INPUT")


IN_ORDER = "allowed: the columns ['id', 'name'], in this order, not "


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("name,id", f"b.csv has the name 'name' for column 1, and another file has 'id'; {IN_ORDER}['name', 'id']"),
        ("ID,nam", f"b.csv has the name 'nam' for column 2, and another file has 'name'; {IN_ORDER}['ID', 'nam']"),
        ("id", f"b.csv has 1 column, and another file has 2; {IN_ORDER}['id']"),
        ("id,name,c", f"b.csv has 3 columns, and another file has 2; {IN_ORDER}['id', 'name', 'c']"),
    ],
)
def test_a_csv_file_with_another_header_is_named(spark: SparkSession, source: Path, header: str, said: str) -> None:
    (source / "a.csv").write_text("id,name\n1,x\n")
    (source / "b.csv").write_text(f"{header}\n2,y,z\n")
    assert refused(source, format_="csv", options={"SEP": ","}) == said


def test_a_csv_file_is_compared_with_the_schema_and_the_feed(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    (source / "a.csv").write_text("name;id\nx;1\n")
    how: dict[str, Any] = {"format_": "csv", "options": {"sep": ";"}}
    given = "a.csv has the name 'name' for column 1, and --schema has 'id'; allowed: "
    assert refused(source, **how, schema="id int, name string").startswith(given)
    prepare(source, tmp_path / "other", **how)
    (source / "b.csv").write_text("id;name\n1;x\n")
    (source / "c.csv").write_text("name;id\nx;1\n")
    with pytest.raises(UsageError, match=r"b\.csv has the name 'id' for column 1, and the feed has 'name'; allowed: "):
        prepare(source, tmp_path / "other", **how)


@pytest.mark.parametrize("header", ["id,ID", "id,id"])
def test_columns_of_csv_that_are_one_to_spark_are_named(spark: SparkSession, source: Path, header: str) -> None:
    (source / "a[1].csv").write_text(f"{header}\n1,2\n")
    first, second = header.split(",")
    assert refused(source, format_="csv") == (
        f"a[1].csv has the columns {first!r} and {second!r}, which are one to Spark; allowed: names that differ in "
        "more than case (--option enforceSchema=true with a --schema takes columns by their place)"
    )
    made = prepare(
        source, source.parent / "feed", format_="csv", schema="a int, b int", options={"enforceSchema": "true"}
    )
    assert (made.manifest.rows, list(made.manifest.schema)) == (1, ["a", "b"])


def test_a_column_of_csv_without_a_name_is_told(spark: SparkSession, source: Path) -> None:
    (source / "a.csv").write_text("id,\n1,2\n")
    assert refused(source, format_="csv").startswith("a.csv has no name for column 2; allowed: a name for each (")


def test_a_value_that_sql_cannot_take_is_a_mistake_of_the_rules(spark: SparkSession, source: Path) -> None:
    (source / "a.txt").write_text("0\n")
    (source.parent / "rules.yaml").write_text("rules:\n- derive: {n: 1 / int(text)}\n")
    said = refused(source, rules=source.parent / "rules.yaml")
    assert said.startswith("input INPUT: Division by zero. Use `try_divide`")


#: Of writers, or with another meaning than rows in columns.
NOT_TAKEN = {
    "csv": {"codec", "compression", "escapeQuotes", "extension", "quoteAll", "singleVariantColumn"},
    "json": {
        "compression", "explodeEmbeddedArray", "ignoreNullFields", "pretty", "singleVariantColumn", "sortKeys",
        "useUnsafeRow", "writeNonAsciiCharacterAsCodePoint",
    },
    "parquet": {"compression", "parquet.compression"},
    "orc": {"compression", "orc.compress"},
}


def test_the_options_are_those_of_this_spark(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    catalyst, sources = jvm.org.apache.spark.sql.catalyst, jvm.org.apache.spark.sql.execution.datasources
    known = {
        "csv": catalyst.csv.CSVOptions, "json": catalyst.json.JSONOptions, "parquet": sources.parquet.ParquetOptions,
        "orc": sources.orc.OrcOptions,
    }
    for format_, options in known.items():
        there = set(options.getAllOptions().mkString(" ").split())
        assert there - set(OURS) - NOT_TAKEN[format_] == set(OPTIONS[format_])


TABLE = {"i": [1], "t": ["x"], "d": [1.5], "a": [[1]], "r": [{"x": 1}]}
DIFFER = "allowed: names that differ in more than case"
WIDER = "allowed: the type of the file, or a wider one (--rules can cast)"


@pytest.mark.parametrize("format_", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("i string", f"a.{{}} has column 'i' as bigint, and --schema as string; {WIDER}"),
        ("d double, i int", f"a.{{}} has column 'i' as bigint, and --schema as int; {WIDER}"),
        ("t bigint", f"a.{{}} has column 't' as string, and --schema as bigint; {WIDER}"),
        ("a array<string>", f"a.{{}} has column 'a' as array<bigint>, and --schema as array<string>; {WIDER}"),
        ("r struct<y: int>", f"a.{{}} has column 'r' as struct<x:bigint>, and --schema as struct<y:int>; {WIDER}"),
        ("i bigint, tt string", "--schema names 'tt', which a.{} does not have; did you mean 't'?"),
        ("i int, I int", "--schema has the columns 'i' and 'I', which are one to Spark; " + DIFFER),
    ],
)
def test_a_type_that_the_file_does_not_have_is_named(
    spark: SparkSession, source: Path, format_: str, schema: str, said: str
) -> None:
    write(source / f"a.{format_}", pyarrow.table(TABLE))
    assert refused(source, format_=format_, schema=schema) == said.format(format_)


@pytest.mark.parametrize("coding", ["UTF-16", "UTF-32"])
def test_csv_of_wide_characters_is_named_or_read(spark: SparkSession, source: Path, coding: str) -> None:
    (source / "a.csv").write_bytes("id,name\n1,é\n".encode(coding))
    allowed = f"allowed: UTF-8, or --option encoding={coding}"
    assert refused(source, format_="csv") == f"a.csv begins as {coding} does; {allowed}"
    made = prepare(source, source.parent / "feed", format_="csv", options={"encoding": coding})
    assert (made.manifest.rows, list(made.manifest.schema)) == (1, ["id", "name"])


@pytest.mark.parametrize("format_", ["csv", "json"])
@pytest.mark.parametrize("type_", ["interval", "struct<at: interval>", "interval year to month"])
def test_a_type_that_no_feed_can_hold_is_refused(spark: SparkSession, source: Path, format_: str, type_: str) -> None:
    (source / f"a.{format_}").write_text("1\n")
    said = refused(source, format_=format_, schema=f"n int, i {type_}")
    assert said == "--schema has column 'i' as an interval of months, which no feed can hold"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("c char(3)", "as char(3), which Spark's readers do not check; allowed: string, and a rule that matches its "),
        ("c varchar(9)", "as varchar(9), which Spark's readers do not check; allowed: string"),
        ("c void", "as void, which no feed can hold; allowed: another type, such as string"),
        ("c variant", "as variant, which no feed can hold"),
        ("c map<string, int>", "as map<string,int>, which no value of CSV is; allowed: a simple type, such as string"),
        ("c int NOT NULL", "NOT NULL, which Spark's readers do not check; allowed: the column without it, and a rule "),
    ],
)
def test_a_type_that_readers_do_not_take_is_refused(
    spark: SparkSession, source: Path, schema: str, said: str
) -> None:
    (source / "a.csv").write_text("n,c\n1,x\n")
    assert refused(source, format_="csv", schema=f"n int, {schema}").startswith(f"--schema has column 'c' {said}")


def test_a_quote_that_nothing_closes_is_told(spark: SparkSession, source: Path) -> None:
    """Spark would read one record, whose last value is the rest of the file."""
    (source / "a.csv").write_text('id,name\n1,"x\n2,y\n3,z\n')
    said = refused(source, format_="csv", columns=["id"])
    assert said.startswith("a.csv has a quote in line 2 that nothing closes; allowed: a closing quote, --option quote=")
    made = prepare(source, source.parent / "feed", format_="csv", options={"multiLine": "false"})
    assert made.manifest.rows == 3


def test_more_columns_than_are_allowed_are_told(spark: SparkSession, source: Path) -> None:
    (source / "a.csv").write_text("a,b,c\n1,2,3\n")
    said = refused(source, format_="csv", options={"maxColumns": "2"})
    assert said == "a.csv has more than 2 columns; allowed: so many, or --option maxColumns=NUMBER"


def test_a_header_in_another_encoding_is_told(spark: SparkSession, source: Path) -> None:
    (source / "a.csv").write_bytes(b"id,caf\xe9\n1,\xe9\n")
    said = refused(source, format_="csv")
    assert said.startswith("a.csv has a header that is not UTF-8, b'id,caf\\xe9'; allowed: UTF-8, or its encoding")
    made = prepare(source, source.parent / "feed", format_="csv", options={"encoding": "ISO-8859-1"})
    assert list(made.manifest.schema) == ["id", "caf\xe9"]


@pytest.mark.parametrize("format_", ["csv", "json", "parquet", "orc"])
def test_a_folder_hides_no_column(spark: SparkSession, source: Path, format_: str) -> None:
    (folder := source / "ID=1").mkdir()
    match format_:
        case "csv":
            (folder / "a.csv").write_text("id,a\n7,2\n")
        case "json":
            (folder / "a.json").write_text('{"id": 7, "a": 2}\n')
        case _:
            write(folder / f"a.{format_}", pyarrow.table({"id": [7], "a": [2]}))
    hides = "INPUT has folders of a column 'ID', which would hide column 'id' of the files in them; allowed: another"
    assert refused(source, format_=format_).startswith(hides)


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_a_folder_may_have_any_other_name(spark: SparkSession, source: Path, format_: str) -> None:
    """Also that of the only column of text, as which files are searched for flaws."""
    content = b"id,a\n7,\xff\n8,2\n" if format_ == "csv" else b'{"a": 2}\n{"a": "\xff"}'
    for day in (1, 2):
        (folder := source / f"day={day}" / "value=01").mkdir(parents=True)
        (folder / f"a.{format_}").write_bytes(content)
    how = {"schema": "a int, value string"} if format_ == "json" else {}
    made = prepare(source, source.parent / "feed", format_=format_, **how)
    assert (made.manifest.rows, made.manifest.quarantine_reasons) == (2, {"not UTF-8": 2})
    values = parquet.read_table(source.parent / "feed" / "rows").column("value").to_pylist()
    assert values == (["01", "01"] if format_ == "json" else [1, 1])
    (source / "day=2" / "value=01" / f"a.{format_}").write_text("id,b\n7,2\n")
    if format_ == "csv":
        with pytest.raises(UsageError, match="has the name 'b' for column 2, and another file has 'a'; allowed: "):
            prepare(source, source.parent / "other", format_=format_)


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_a_wider_type_is_read(spark: SparkSession, source: Path, tmp_path: Path, format_: str) -> None:
    small = pyarrow.table({"I": pyarrow.array([1], pyarrow.int32()), "f": pyarrow.array([1.5], pyarrow.float32())})
    write(source / f"a.{format_}", small)
    made = prepare(source, tmp_path / "feed", format_=format_, schema="i bigint, f double")
    assert (made.manifest.schema, made.manifest.rows) == ({"i": "bigint", "f": "double"}, 1)


TWINS = f"which are one to Spark; {DIFFER}"


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_columns_that_differ_only_in_case_are_named(source: Path, format_: str) -> None:
    file = source / f"a.{format_}"
    write(file, pyarrow.table({"id": [1], "ID": [2]}))
    assert refused(source, format_=format_) == f"{file.name} has the columns 'id' and 'ID', {TWINS}"
    write(file, pyarrow.table({"s": [[{"id": 1, "Id": 2}]]}))
    assert refused(source, format_=format_) == f"{file.name} has the columns 'id' and 'Id' inside 's', {TWINS}"


def test_a_column_of_orc_without_a_name_is_told(source: Path) -> None:
    write(source / "a.orc", pyarrow.table({"": [1]}))
    without = "a.orc has a column without a name, which Spark cannot read in ORC; allowed: a name for each"
    assert refused(source, format_="orc") == without


def test_columns_of_json_that_differ_only_in_case_are_named(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    (source / "a.json").write_text('{"id": 1}\n')
    (source / "b c.json").write_text('{"ID": 2, "id": 3}\n')
    said = refused(source, format_="json")
    assert said.endswith(f" or another file has the columns 'ID' and 'id', {TWINS}, or a --schema with one of them")
    assert spark.conf.get("spark.sql.caseSensitive") == "false"
    assert prepare(source, tmp_path / "feed", format_="json", schema="id int").manifest.rows == 2


def write(file: Path, table: pyarrow.Table) -> None:
    if file.suffix == ".orc":
        orc.write_table(table, file)
    else:
        parquet.write_table(table, file)
