"""What Spark does in a run of prepare: from files to an increment of a feed.

::

    text ─► lines ─┬──────────────────────────────┐
                   └─► Parquet ─┐                 ├─► one task for each partition ─┬─ good ────► FEED/rows
    csv, json, parquet, orc ────┴─► SQL, function ┘                                └─ refused ─► FEED/quarantine

Guarantees that mistakes in SQL, columns and the cleaning function are told before the first row of the feed is written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from squall.pipeline.feed.manifest import PLACE_COLUMNS, Manifest
from squall.pipeline.read.clean import clean, with_refused
from squall.pipeline.read.files import InputFile
from squall.pipeline.read.frame import check_columns, columns_of, read_frame, spark_path
from squall.pipeline.read.json_lines import can_check, check_records, is_document, tree_of
from squall.pipeline.read.recipe import Recipe
from squall.pipeline.write.increment import places, with_schema
from squall.pipeline.write.jobs import LINE_COLUMNS, write_frame, write_lines
from squall.pipeline.write.staging import LINES_NAME
from squall.pipeline.write.written import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINE_SCHEMA = {"path": "string", "line_no": "int", "text": "string"}
#: Columns that say where a line is from: rows have them, spouts emit them only if asked.
_PLACE_OF_LINE = LINE_COLUMNS[:2]


class Done(NamedTuple):
    """The outcome of a job, and the manifest before it, with the schema of its rows."""

    base: Manifest
    written: list[Written]


def run_job(
    spark: SparkSession, recipe: Recipe, base: Manifest, root: str, files: Sequence[InputFile], staging: Path
) -> Done:
    # Tasks may have another working directory.
    root = os.path.abspath(root)
    if recipe.is_plain:
        base = with_schema(base, _LINE_SCHEMA, "", LINE_COLUMNS[2:])
        return Done(base, write_lines(spark, root, files, places(base, str(staging))))
    lines = staging / LINES_NAME
    lines.mkdir()
    try:
        if recipe.is_text:
            return _write_clean_lines(spark, recipe, base, root, files, staging)
        return _write_records(spark, recipe, base, root, files, staging)
    finally:
        shutil.rmtree(lines)


def _write_clean_lines(
    spark: SparkSession, recipe: Recipe, base: Manifest, root: str, files: Sequence[InputFile], staging: Path
) -> Done:
    lines = staging / LINES_NAME
    read = write_lines(spark, root, files, places(base, str(lines)))
    rows = [spark_path(str(lines / one.rows.name)) for one in read if one.rows]
    refused = _only_refused(read, lines, staging)
    if not rows or recipe.cleaner is None:
        return Done(base, refused)
    cleaned = clean(spark.read.parquet(*rows).select(*LINE_COLUMNS), recipe.cleaner)
    columns = columns_of(cleaned)
    check_columns(columns, PLACE_COLUMNS)
    schema = {field.name: field.dataType.simpleString() for field in cleaned.schema if field.name in columns}
    base = with_schema(base, schema, "", [name for name in columns if name not in _PLACE_OF_LINE])
    return Done(base, [*refused, *write_frame(cleaned, root, places(base, str(staging)))])


def _write_records(
    spark: SparkSession, recipe: Recipe, base: Manifest, root: str, files: Sequence[InputFile], staging: Path
) -> Done:
    lines = staging / LINES_NAME
    refused: list[Written] = []
    root = root if os.path.isdir(root) else os.path.dirname(root)
    tree, locations = root, [file.location for file in files]
    if recipe.format == "json" and can_check(recipe.options):
        found = check_records(spark, root, files, places(base, str(lines)), by_line=not is_document(recipe.options))
        refused = _only_refused(found, lines, staging)
        if copied := [location for one in found for location in one.copied]:
            tree, locations = tree_of(root, files, copied, str(lines))
    frame, source_schema = read_frame(
        spark, recipe.format, tree, locations, recipe.options, recipe.schema, base.source_schema
    )
    if recipe.cleaner:
        frame = with_refused(clean(frame, recipe.cleaner), frame)
    columns = columns_of(frame)
    check_columns(columns, PLACE_COLUMNS)
    schema = {field.name: field.dataType.simpleString() for field in frame.schema if field.name in columns}
    base = with_schema(base, schema, source_schema, columns)
    return Done(base, [*refused, *write_frame(frame, tree, places(base, str(staging)))])


def _only_refused(written: list[Written], lines: Path, staging: Path) -> list[Written]:
    """What a first pass has refused becomes part of the increment; its rows do not."""
    for one in written:
        if one.quarantine:
            (lines / one.quarantine.name).rename(staging / one.quarantine.name)
        one.rows, one.words, one.bytes = None, 0, 0
    return written
