"""What Spark does in a run of prepare: from files to an increment of a feed.

Guarantees that mistakes in rules, columns and the cleaning function are told before the first row is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from squall.engine.errors import UsageError
from squall.pipeline.cleaning import FATE, INTERNALS, clean_by_rules, columns_of, quoted
from squall.pipeline.corpus import InputFile
from squall.pipeline.folders import folder_columns
from squall.pipeline.increment import with_schema
from squall.pipeline.manifest import Manifest
from squall.pipeline.recipe import Recipe
from squall.pipeline.spark_errors import InputTrouble, data_errors
from squall.pipeline.spark_input import check_names, read_frame, why_refused
from squall.pipeline.table_job import text_frame, write_frame
from squall.pipeline.text_job import LINE_COLUMNS, write_lines
from squall.pipeline.written import Place, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LINE_SCHEMA = {"path": "string", "line_no": "int", "text": "string"}
#: Columns that say where a line is from: rows have them, spouts emit them only if asked.
_PLACE_OF_LINE = LINE_COLUMNS[:2]
#: What Spark says of CSV with more columns than its option allows.
_TOO_WIDE = re.compile(r"Index (\d+) out of bounds for length \1")


class Done(NamedTuple):
    """The outcome of a job, and the manifest before it, with the schema of its rows."""

    base: Manifest
    written: list[Written]


def run_job(
    spark: SparkSession, recipe: Recipe, base: Manifest, root: str, files: Sequence[InputFile], places: Sequence[Place]
) -> Done:
    # Tasks may have another working directory.
    root = os.path.abspath(root)
    if recipe.is_plain:
        base = with_schema(base, _LINE_SCHEMA, "", LINE_COLUMNS[2:])
        return Done(base, write_lines(spark, root, files, places))
    with data_errors(partial(_told, root)):
        return _write_rows(spark, recipe, base, root, files, places)


def _write_rows(
    spark: SparkSession, recipe: Recipe, base: Manifest, root: str, files: Sequence[InputFile], places: Sequence[Place]
) -> Done:
    source_schema = ""
    if recipe.is_text:
        frame = text_frame(spark, root, files, len(places))
    else:
        frame, source_schema = read_frame(
            spark, recipe.format, root, files, recipe.options, recipe.schema, recipe.columns, base.source_schema
        )
    if recipe.clean:
        frame = _called(recipe, frame)
    if recipe.rules:
        frame = clean_by_rules(frame, recipe.rules)
    columns = columns_of(frame)
    check_names(columns)
    fields = [name for name in columns if not (recipe.is_text and name in _PLACE_OF_LINE)]
    if not fields:
        raise UsageError("the rows have no column left; a feed needs one at least")
    types = {field.name: field.dataType for field in frame.schema}
    schema = {name: types[name].simpleString() for name in columns}
    grown = with_schema(base, schema, source_schema, fields)

    def told(trouble: InputTrouble) -> str:
        wanted_by = "--schema" if recipe.schema else "the feed" if base.increments else "another file"
        folders = folder_columns(root, files)
        why = why_refused(spark, recipe.format, trouble, recipe.options, source_schema, wanted_by, folders)
        return why or _told(root, trouble)

    with data_errors(told):
        return Done(grown, write_frame(frame, root, places))


def _told(root: str, trouble: InputTrouble) -> str:
    if wide := _TOO_WIDE.fullmatch(trouble.why):
        most = int(wide[1])
        return f"{trouble.file or root} has more than {most:,} columns; allowed: so many, or --option maxColumns=NUMBER"
    return f"{trouble.file} cannot be read: {trouble.why}" if trouble.file else f"input {root}: {trouble.why}"


def _called(recipe: Recipe, frame: DataFrame) -> DataFrame:
    """The frame after the cleaning function, which sees good rows only. The others are read a second time."""
    from pyspark.sql import functions as f

    assert recipe.clean
    cleaned = recipe.clean(frame.where(f.col(FATE).isNull()))
    ended = frame.where(f.col(FATE).isNotNull())
    own = [f.lit(None).cast(cleaned.schema[name].dataType).alias(name) for name in columns_of(cleaned)]
    return cleaned.unionByName(ended.select(*own, *(quoted(name) for name in INTERNALS)))
