"""What `squall prepare` says of input that Spark refuses: one line, the user's things, no class of Java's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

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
