"""Compares any two results by key, with Spark: `squall verify LEFT RIGHT --by KEY`.

Guarantees that every key of both sides is compared and falls under one `KINDS`, and that no more than the counts and
the first few differences of each kind leave Spark, whatever the size of the sides. Spark does it for small ones too: a
second engine would need every rule below a second time, and Java's start is 4 to 5 seconds.

::

    LEFT  ── key, values ──┐
                           ├─ group by key: rows and values of each side ─► kind ─┬─► counts
    RIGHT ── key, values ──┘                                                      └─► first examples

Keys are equal as Spark groups them: null equals null, NaN equals NaN, 0.0 equals -0.0. So are values; numbers may also
differ within a tolerance. Null equals nothing else, NaN nothing else, and an infinity no other number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.cells import cell, rank, same_near_gap
from squall.pipeline.column_pairs import Pair, pair_of
from squall.pipeline.comparison import EQUAL, KINDS, ColumnCheck, Comparison, Difference, Request
from squall.pipeline.nanoseconds import nanoseconds_as_long
from squall.pipeline.number_texts import shown_number
from squall.pipeline.session import spark_session
from squall.pipeline.side import JSON, Side, Table, find_side, read_side
from squall.pipeline.spark_errors import data_errors
from squall.pipeline.tolerance import Tolerance

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

#: Characters of a text, or bytes, that leave Spark for an example.
SHOWN_CHARS = 200
#: Called with one line about the present step.
Progress = Callable[[str], None]


@dataclass
class _Plan:
    """What was decided of both tables before the first job."""

    request: Request
    keys: list[Pair]
    values: list[Pair]
    ranks: tuple[bool, bool]
    """Of each side, whether it has rows of which only the last counts."""
    names: tuple[list[str], list[str]]


def compare(left: Path, right: Path, request: Request, *, progress: Progress = lambda line: None) -> Comparison:
    """Compare `right` with `left`, which has what is expected. What is wrong on disk is refused before Java starts."""
    sides = find_side(left), find_side(right)
    progress(f"{sides[0].kind} and {sides[1].kind}, starting Spark")
    with (
        spark_session("squall verify") as spark,
        nanoseconds_as_long(spark),
        data_errors(lambda trouble: f"{left} and {right} cannot be compared: {trouble}"),
    ):
        progress("reading both sides")
        tables = _tables(spark, sides, request)
        plan = _plan(sides, tables, request)
        grouped = _grouped(plan, sides, tables)
        progress("comparing every key")
        outcome = _count(plan, sides, grouped)
        if outcome.passed or not request.examples:
            return outcome
        progress("looking for examples of differences")
        return replace(outcome, examples=tuple(_examples(plan, grouped, outcome.keys)))


def _tables(spark: SparkSession, sides: tuple[Side, Side], request: Request) -> tuple[Table, Table]:
    from pyspark.sql.types import StringType, StructField, StructType

    found = [read_side(spark, side) for side in sides]
    named = [column for column in (*request.by, *(request.compare or ()), request.last) if column]
    full = next((table for table in found if table.types), None)
    if full is None:
        schema = StructType([StructField(name, StringType()) for name in dict.fromkeys(named)])
        full = Table(spark.createDataFrame([], schema), {field.name: field.dataType for field in schema})
    # JSON files without a row have no columns of their own.
    left, right = (
        table if table.types or side.kind != JSON else full._replace(frame=full.frame.limit(0))
        for side, table in zip(sides, found, strict=True)
    )
    return left, right


def _plan(sides: tuple[Side, Side], tables: tuple[Table, Table], request: Request) -> _Plan:
    names = tables[0].frame.columns, tables[1].frame.columns
    last = request.last
    for side, columns in zip(sides, names, strict=True):
        twice = next((name for name in columns if columns.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"{side.path} has two columns {twice!r}; allowed: different names")
        for name in (*request.by, *(request.compare or ())):
            if name not in columns:
                raise UsageError(f"{side.path} has no column {repr_of(name)}; allowed: {_listed(columns)}")
    if last is not None and last not in (*names[0], *names[1]):
        raise UsageError(f"--last is {repr_of(last)}, a column of neither side; allowed: {_listed(names[0])}")
    chosen = request.compare
    if chosen is None:
        chosen = tuple(name for name in names[0] if name not in (*request.by, last))
        others = tuple(name for name in names[1] if name not in (*request.by, last))
        if set(chosen) != set(others):
            lacking = min(set(chosen) ^ set(others))
            at = sides[1] if lacking in chosen else sides[0]
            raise UsageError(
                f"{at.path} has no column {lacking!r}, which the other side has; name the columns to compare with "
                "--compare, or use --keys-only"
            )
    loose = sides[0].is_loose, sides[1].is_loose

    def pair(name: str) -> Pair:
        left, right = tables
        return pair_of(
            name, (left.types[name], right.types[name]), loose, (left.is_raw(name), right.is_raw(name))
        )

    values = [pair(name) for name in chosen]
    for name in request.tolerances.columns:
        found = next((value for value in values if value.name == name), None)
        if found is None:
            raise UsageError(f"--tolerance is for column {name!r}, which is not compared; allowed: {_listed(chosen)}")
        if not (found.is_number or (found.is_text and all(loose))):
            raise UsageError(f"--tolerance is for column {name!r}, which holds no numbers: {found.type.simpleString()}")
    ranks = tuple(side.is_of_totals or last in columns for side, columns in zip(sides, names, strict=True))
    return _Plan(request, [pair(name) for name in request.by], values, (ranks[0], ranks[1]), names)


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _grouped(plan: _Plan, sides: tuple[Side, Side], tables: tuple[Table, Table]) -> DataFrame:
    """A row for each key: k0, k1 ...; of the left, the number of rows n0, and values v0 that stand for them; n1, v1."""
    from pyspark.sql import functions as f

    halves = [_half(plan, number, side, table) for number, (side, table) in enumerate(zip(sides, tables, strict=True))]
    other = [half.schema["v"].dataType for half in halves][::-1]
    keys = [name for name in halves[0].columns if name not in ("n", "v")]
    left = halves[0].select(*keys, "v", f.lit(None).cast(other[0]).alias("w"), "n", f.lit(0).alias("m"))
    right = halves[1].select(
        *keys, f.lit(None).cast(other[1]).alias("v"), f.col("v").alias("w"), f.lit(0).alias("n"), f.col("n").alias("m")
    )
    both = left.unionByName(right)
    # The largest of a struct is that with the largest first field: the rank, where there is one.
    measures = [f.sum("n").alias("n0"), f.sum("m").alias("n1"), f.max("v").alias("v0"), f.max("w").alias("v1")]
    if plan.request.repeats:
        measures += [f.min("v").alias("least0"), f.min("w").alias("least1")]
    return _judged(plan, both.groupBy(*keys).agg(*measures))


def _half(plan: _Plan, number: int, side: Side, table: Table) -> DataFrame:
    """A side with its keys, and its values as one struct. Columns go by position: a name may hold anything."""
    from pyspark.sql import functions as f

    names = plan.names[number]
    placed = table.frame.toDF(*(f"c{place}" for place in range(len(names))))

    def of(pair: Pair) -> tuple[Column, Column]:
        return cell(f.col(f"c{names.index(pair.name)}"), pair, number)

    columns = []
    for place, pair in enumerate(plan.keys):
        value, unread = of(pair)
        columns.append(value.alias(f"k{place}"))
        if any(pair.casts):
            # Texts that are no key of the other side's type must not be one key together.
            columns.append(unread.alias(f"u{place}"))
    # A struct needs a field.
    fields = [f.lit(True).alias("there")]
    for place, pair in enumerate(plan.values):
        value, unread = of(pair)
        fields += [value.alias(f"v{place}"), unread.alias(f"u{place}")]
    values = f.struct(*fields)
    if not plan.ranks[number]:
        return placed.select(*columns, f.lit(1).alias("n"), values.alias("v"))
    last = plan.request.last if plan.request.last in names else "count"
    raw = f.col(f"c{names.index(last or '')}")
    order = rank(raw) if side.is_loose and table.frame.schema[last].dataType.simpleString() == "string" else raw
    return _one_of_each_rank(placed.select(*columns, order.alias("rank"), values.alias("v")))


def _one_of_each_rank(ranked: DataFrame) -> DataFrame:
    """Of the rows with one key and rank, one, with their number, and whether they differ: of the last, that would leave
    it to chance which is compared."""
    from pyspark.sql import functions as f

    keys = [name for name in ranked.columns if name not in ("rank", "v")]
    each = ranked.groupBy(*keys, "rank").agg(f.count("*").alias("n"), f.max("v").alias("v"), f.min("v").alias("least"))
    differ = (~f.col("v").eqNullSafe(f.col("least"))).alias("differ")
    inner = [f.col(f"v.{name}") for name in ranked.select("v.*").columns]
    # Structs are ordered by their first field.
    return each.select(*keys, "n", f.struct("rank", differ, *inner).alias("v"))


def _judged(plan: _Plan, grouped: DataFrame) -> DataFrame:
    """Add the kind of each key, d0, d1 ... whether its values differ, and g0, g1 ... by how much, if numbers."""
    from pyspark.sql import functions as f

    differs, gaps = {}, {}
    for place, pair in enumerate(plan.values):
        left, right = f.col(f"v0.v{place}"), f.col(f"v1.v{place}")
        unread = f.col(f"v0.u{place}"), f.col(f"v1.u{place}")
        same, near, gap = same_near_gap(left, right, unread, pair, plan.request.tolerances.of(pair.name))
        differs[f"d{place}"] = ~(same | near)
        gaps[f"g{place}"] = gap
    duplicated = f.lit(False)
    for number in (0, 1):
        several = f.col(f"n{number}") > 1
        if plan.request.repeats:
            several &= ~f.col(f"least{number}").eqNullSafe(f.col(f"v{number}"))
        duplicated |= f.coalesce(f.col(f"v{number}.differ"), f.lit(False)) if plan.ranks[number] else several
    different = f.lit(False)
    for column in differs.values():
        different |= column
    kind = (
        f.when(f.col("n1") == 0, "missing").when(f.col("n0") == 0, "extra").when(duplicated, "duplicated")
        .when(different, "different").otherwise(EQUAL)
    )
    return grouped.withColumns({"kind": kind, **differs, **gaps})


def _count(plan: _Plan, sides: tuple[Side, Side], grouped: DataFrame) -> Comparison:
    from pyspark.sql import functions as f

    differs = [f.sum(f.col(f"d{place}").cast("long")).alias(f"d{place}") for place in range(len(plan.values))]
    gaps = [f.max(f"g{place}").alias(f"g{place}") for place in range(len(plan.values))]
    gaps += [
        f.count_if(f.col(f"d{place}") & f.isnull(f"g{place}")).alias(f"h{place}") for place in range(len(plan.values))
    ]
    counts = [f.count("*").alias("keys")]
    for number in (0, 1):
        counts += [
            f.sum(f"n{number}").alias(f"n{number}"),
            f.sum(f.greatest(f.col(f"n{number}") - 1, f.lit(0))).alias(f"more{number}"),
        ]
    found = {row.kind: row for row in grouped.groupBy("kind").agg(*counts, *differs, *gaps).collect()}

    def total(name: str) -> int:
        return sum(int(row[name]) for row in found.values())

    columns = {
        pair.name: _column_check(place, pair, plan.request.tolerances.of(pair.name), found)
        for place, pair in enumerate(plan.values)
    }
    keys = {kind: int(found[kind].keys) if kind in found else 0 for kind in (EQUAL, *KINDS)}
    return Comparison(sides, (total("n0"), total("n1")), (total("more0"), total("more1")), keys, columns)


def _column_check(place: int, pair: Pair, tolerance: Tolerance, found: dict[str, Row]) -> ColumnCheck:
    gaps = [found[kind][f"g{place}"] for kind in (EQUAL, "different") if kind in found]
    largest = max((gap for gap in gaps if gap is not None), default=None)
    if "different" not in found or not found["different"][f"d{place}"]:
        different = unmeasured = 0
    else:
        different, unmeasured = (int(found["different"][f"{name}{place}"]) for name in "dh")
        # The 0 of keys that are equal says nothing about those that are not.
        largest = largest or None
    has_tolerance = pair.is_number or pair.is_text
    may_be_measured = pair.is_number or (pair.is_text and bool(tolerance))
    return ColumnCheck(
        different, largest, tolerance if has_tolerance else Tolerance(), unmeasured if may_be_measured else 0
    )


def _examples(plan: _Plan, grouped: DataFrame, keys: dict[str, int]) -> list[Difference]:
    """The first differences of each kind, in order of key."""
    from pyspark.sql import functions as f

    order: list[Column] = []
    for place, pair in enumerate(plan.keys):
        key = f.col(f"k{place}")
        order += [key.try_cast("double"), key] if pair.is_exact and pair.is_number else [key]
        order += [f.col(f"u{place}")] if any(pair.casts) else []
    shown: dict[str, Column] = {"n0": f.col("n0"), "n1": f.col("n1")}
    for place, pair in enumerate(plan.keys):
        shown[f"k{place}"] = _shown(f.col(f"k{place}"), pair)
        if any(pair.casts):
            shown[f"u{place}"] = f.substring(f.col(f"u{place}"), 1, SHOWN_CHARS)
    for place, pair in enumerate(plan.values):
        shown[f"d{place}"] = f.col(f"d{place}")
        for number in (0, 1):
            # Of a column that is equal, nothing.
            value, unread = _shown(f.col(f"v{number}.v{place}"), pair), f.col(f"v{number}.u{place}")
            shown[f"v{number}_{place}"] = f.when(f.col(f"d{place}"), value)
            shown[f"u{number}_{place}"] = f.when(f.col(f"d{place}"), f.substring(unread, 1, SHOWN_CHARS))
    wanted = grouped.where(f.col("kind") != EQUAL)
    columns = [f.col("kind"), *(column.alias(name) for name, column in shown.items())]
    found: list[Difference] = []
    for kind in KINDS:
        if keys[kind]:
            first = wanted.where(f.col("kind") == kind).orderBy(*order).limit(plan.request.examples)
            found += [_difference(plan, row) for row in first.select(*columns).collect()]
    return found


def _shown(value: Column, pair: Pair) -> Column:
    """A value in the form in which it leaves Spark: never a long one, nor one that Python has no type for."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    if isinstance(pair.type, types.BinaryType):
        value = f.hex(f.substring(value, 1, SHOWN_CHARS))
    elif isinstance(pair.type, types.ArrayType | types.StructType):
        value = f.substring(f.to_json(value), 1, SHOWN_CHARS)
    elif not isinstance(pair.type, types.NumericType | types.BooleanType) or isinstance(pair.type, types.DecimalType):
        value = f.substring(value.cast("string"), 1, SHOWN_CHARS)
    return value


def _difference(plan: _Plan, row: Row) -> Difference:
    values = {}
    if row.kind == "different":
        for place, pair in enumerate(plan.values):
            if row[f"d{place}"]:
                left, right = (_either(row, f"v{number}_{place}", f"u{number}_{place}", pair) for number in (0, 1))
                values[pair.name] = left, right
    key = {pair.name: _either(row, f"k{place}", f"u{place}", pair) for place, pair in enumerate(plan.keys)}
    return Difference(row.kind, key, (int(row.n0), int(row.n1)), values)


def _either(row: Row, value: str, unread: str, pair: Pair) -> Any:
    """What was compared, or the text that is no such value."""
    if unread in row and row[unread] is not None:
        return row[unread]
    found = row[value]
    return shown_number(found) if pair.is_exact and pair.is_number and found is not None else found
