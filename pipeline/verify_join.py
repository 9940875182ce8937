"""The full outer join of two results by key, and what it says of each key and column.

Columns go by position, as a name may hold anything: of each side (0, 1) its keys `k0_0`, `k1_0` ..., its number of rows
`n_0`, and as `v_0` the values that stand for them, a struct of `v0`, `v1` ... Imports PySpark; runs in the caller's
session.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, Row, Window, types
from pyspark.sql import functions as f

from squall.pipeline.verify import DIGITS, EQUAL, KINDS, ColumnCheck, Comparison, Difference, Request, Side, Tolerance

#: Characters of a text, or bytes, that leave Spark for an example.
SHOWN_CHARS = 200
Types = tuple[types.DataType, types.DataType]


class Join:
    """The join, not computed yet."""

    def __init__(self, frames: tuple[DataFrame, DataFrame], request: Request) -> None:
        """The request names the columns to compare."""
        self._request = request
        self._values = request.compare or ()
        self._types: dict[str, Types] = {
            name: (frames[0].schema[name].dataType, frames[1].schema[name].dataType)
            for name in (*request.by, *self._values)
        }
        self._digits = {
            field.name for frame in frames for field in frame.schema if field.metadata.get(DIGITS)
        }
        """Columns of numbers that are texts on a side."""
        left, right = (self._half(frame, number) for number, frame in enumerate(frames))
        keys = range(len(request.by))
        meets = reduce(and_, (f.col(f"k{key}_0").eqNullSafe(f.col(f"k{key}_1")) for key in keys))
        both = left.join(right, meets, "full")
        is_right = f.isnull("n_0")
        both = both.withColumns(
            {f"k{key}": f.when(is_right, f.col(f"k{key}_1")).otherwise(f.col(f"k{key}_0")) for key in keys}
        )
        self._judged = self._judge(both)

    def _half(self, frame: DataFrame, number: int) -> DataFrame:
        """A row for each key of a side."""
        request, names = self._request, frame.columns
        placed = frame.toDF(*(f"c{place}" for place in range(len(names))))

        def column(name: str) -> Column:
            value, own = f.col(f"c{names.index(name)}"), self._types[name]
            return number_text(value) if name in self._digits else form(value, own[number], own[1 - number])

        keys = [f"k{place}_{number}" for place in range(len(request.by))]
        # A struct needs a field.
        values = f.struct(f.lit(True), *(column(name).alias(f"v{place}") for place, name in enumerate(self._values)))
        rows = placed.select("*", *(column(name).alias(key) for key, name in zip(keys, request.by, strict=True)))
        count = f.count("*")
        if request.last in names:
            last = f.col(f"c{names.index(request.last)}")
            if isinstance(frame.schema[request.last].dataType, types.StringType):
                # Of texts that are numbers, 10 is above 9.
                last = f.struct(last.try_cast("double"), last)
            window = Window.partitionBy(*keys)
            rows = rows.withColumns({"n": count.over(window), "place": f.rank().over(window.orderBy(last.desc()))})
            rows, count = rows.where("place = 1"), f.max("n")
        rows = rows.withColumn("v", values).groupBy(*keys).agg(
            count.alias(f"n_{number}"), f.max("v").alias(f"v_{number}"), f.min("v").alias("least")
        )
        is_one = f.col("least").eqNullSafe(f.col(f"v_{number}"))
        if not request.repeats_ok and request.last not in names:
            is_one = f.col(f"n_{number}") == 1
        return rows.withColumn(f"several_{number}", ~is_one).drop("least")

    def _judge(self, both: DataFrame) -> DataFrame:
        """Add the kind of each key, d0, d1 ... whether its values differ, and g0, g1 ... by how much, if numbers."""
        differs, gaps = {}, {}
        for place, name in enumerate(self._values):
            left, right = f.col(f"v_0.v{place}"), f.col(f"v_1.v{place}")
            same = left.eqNullSafe(right)
            gap, near = gap_and_near(left, right, self._types[name], self._request.tolerance(name))
            differs[f"d{place}"] = ~(same | near)
            gaps[f"g{place}"] = f.when(same | (gap > 0), gap)
        kind = (
            f.when(f.isnull("n_1"), "missing").when(f.isnull("n_0"), "extra")
            .when(f.col("several_0") | f.col("several_1"), "duplicated")
            .when(reduce(or_, differs.values(), f.lit(False)), "different").otherwise(EQUAL)
        )
        return both.withColumns({"kind": kind, **differs, **gaps})

    def count(self, sides: tuple[Side, Side]) -> Comparison:
        counts = [f.count("*").alias("keys")]
        for number in (0, 1):
            rows = f.col(f"n_{number}")
            counts += [f.sum(rows).alias(f"rows{number}"), f.sum(rows - 1).alias(f"more{number}")]
        for place in range(len(self._values)):
            differs, gap = f.col(f"d{place}"), f.col(f"g{place}")
            counts += [f.count_if(differs).alias(f"d{place}"), f.max(gap).alias(f"g{place}")]
        found = {row.kind: row for row in self._judged.groupBy("kind").agg(*counts).collect()}

        def total(name: str) -> int:
            return sum(row[name] or 0 for row in found.values())

        return Comparison(
            sides, (total("rows0"), total("rows1")), (total("more0"), total("more1")),
            {kind: found[kind]["keys"] if kind in found else 0 for kind in (EQUAL, *KINDS)},
            {name: self._column_check(place, name, found) for place, name in enumerate(self._values)},
        )

    def _column_check(self, place: int, name: str, found: dict[str, Row]) -> ColumnCheck:
        rows = [found[kind] for kind in (EQUAL, "different") if kind in found]
        different = sum(row[f"d{place}"] for row in rows if row.kind != EQUAL)
        largest = max((row[f"g{place}"] for row in rows if row[f"g{place}"] is not None), default=None)
        tolerance = self._request.tolerance(name)
        if not _is_measured(self._types[name], tolerance):
            return ColumnCheck(different, None, Tolerance())
        # The 0 of keys that are equal says nothing about keys that are not.
        return ColumnCheck(different, largest or None if different else largest, tolerance)

    def examples(self) -> list[Difference]:
        """The first differences of each kind, in order of key."""
        keys = range(len(self._request.by))
        first = f.row_number().over(Window.partitionBy("kind").orderBy(*(f"k{key}" for key in keys)))
        shown = {f"k{key}": _shown(self._judged, f"k{key}") for key in keys}
        for place in range(len(self._values)):
            shown[f"d{place}"] = f.col(f"d{place}")
            for number in (0, 1):
                value = _shown(self._judged, f"v_{number}.v{place}")
                shown[f"v{place}_{number}"] = f.when(f.col(f"d{place}"), value)
        wanted = self._judged.where(f.col("kind") != EQUAL).withColumn("first", first)
        rows = wanted.where(f.col("first") <= self._request.examples).select(
            "kind", "first", "n_0", "n_1", *(column.alias(name) for name, column in shown.items())
        ).collect()
        return [self._difference(row) for row in sorted(rows, key=lambda row: (KINDS.index(row.kind), row.first))]

    def _difference(self, row: Row) -> Difference:
        key = {name: row[f"k{place}"] for place, name in enumerate(self._request.by)}
        values = {
            name: (row[f"v{place}_0"], row[f"v{place}_1"])
            for place, name in enumerate(self._values) if row.kind == "different" and row[f"d{place}"]
        }
        return Difference(row.kind, key, (row.n_0 or 0, row.n_1 or 0), values)


def form(value: Column, own: types.DataType, other: types.DataType) -> Column:
    """A value as it is; or, if its column is of another type than the other side's and one of them is text, or only one
    of floating point, as a text: 1.50 in CSV and the decimal 1.5 are both "1.5", and 2**53 + 1 is no double."""
    both = own, other
    reals = [isinstance(type_, types.DoubleType | types.FloatType) for type_ in both]
    is_text = any(isinstance(type_, types.StringType) for type_ in both)
    if own == other or not (is_text or any(reals)) or all(reals):
        return value
    if any(isinstance(type_, types.NumericType) for type_ in both):
        return number_text(value)
    typed = other if isinstance(own, types.StringType) else own
    return f.coalesce(value.try_cast(typed).cast("string"), value.cast("string"))


def number_text(value: Column) -> Column:
    """A number as a text that is the same for equal numbers of any type: 1.50 is "1.5". Another value as its text."""
    real, exact = value.try_cast("double"), value.try_cast("decimal(38,18)")
    digits = f.regexp_replace(exact.cast("string"), r"\.?0+$", "")
    # A decimal that has lost too much, and a double without an end, are none.
    digits = f.when(exact.cast("double") == real, digits)
    return f.coalesce(digits, f.when(f.abs(real) < float("inf"), real.cast("string")), value.cast("string"))


def _is_measured(both: Types, tolerance: Tolerance) -> bool:
    """Return True if a difference can be computed: between numbers, and with a tolerance between texts, too."""
    kinds = (types.NumericType, types.StringType) if tolerance else types.NumericType
    return any(isinstance(type_, types.NumericType) for type_ in both) or all(
        isinstance(type_, kinds) for type_ in both
    )


def gap_and_near(left: Column, right: Column, both: Types, tolerance: Tolerance) -> tuple[Column, Column]:
    """How far two values are apart, null if not finite or no numbers; and whether that is within the tolerance."""
    if not _is_measured(both, tolerance):
        return f.lit(None).cast("double"), f.lit(False)
    a, b = left.try_cast("double"), right.try_cast("double")
    apart = f.abs(a - b)
    if all(isinstance(type_, types.IntegralType | types.DecimalType) for type_ in both):
        # What a double cannot tell.
        apart = f.coalesce(f.abs(f.try_subtract(left, right)).cast("double"), apart)
    gap = f.when(apart < float("inf"), apart)
    if not tolerance:
        return gap, f.lit(False)
    near = (gap <= tolerance.absolute) | (gap <= tolerance.relative * f.greatest(f.abs(a), f.abs(b)))
    return gap, f.coalesce(near, f.lit(False))


def _shown(frame: DataFrame, name: str) -> Column:
    """A value in the form in which it leaves Spark: never a long one, nor one that Python has no type for."""
    value = f.col(name)
    match frame.select(value).schema[0].dataType:
        case types.DecimalType():
            return value.cast("string")
        case types.NumericType() | types.BooleanType():
            return value
        case types.BinaryType():
            return f.hex(f.substring(value, 1, SHOWN_CHARS))
        case types.ArrayType() | types.StructType():
            return f.substring(f.to_json(value), 1, SHOWN_CHARS)
    return f.substring(value.cast("string"), 1, SHOWN_CHARS)
