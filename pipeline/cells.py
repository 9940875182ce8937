"""The values of a column as `squall verify --by` compares them, and how far two of them are apart.

Guarantees that a value which its pair's type cannot hold as it is (a text that is none, a number that would be rounded)
is not changed into one: it is told apart, as a text. Decides only: gives expressions for Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.pipeline.nanoseconds import timestamp_of
from squall.pipeline.number_texts import exact_form, is_number, plain_number

if TYPE_CHECKING:
    from pyspark.sql import Column

    from squall.pipeline.column_pairs import Pair
    from squall.pipeline.tolerance import Tolerance

#: Digits of a decimal of which a difference still fits into Spark's 38.
_DIGITS = 37
#: Places after the point in which numbers that are texts are subtracted; so only of those from 1 on.
_PLACES = 18


def cell(raw: Column, pair: Pair, number: int) -> tuple[Column, Column]:
    """The value in the left (0) or right (1) column of a pair, and the text that could not be read as one."""
    from pyspark.sql import functions as f

    nothing = f.lit(None).cast("string")
    if pair.is_exact:
        own = pair.own[number]
        return plain_number(raw) if own.simpleString() == "string" else exact_form(raw, own), nothing
    if not pair.casts[number]:
        return raw.cast(pair.type), nothing
    if pair.own[number].simpleString() == "timestamp" and pair.raw[number]:
        return timestamp_of(raw)
    value = raw.try_cast(pair.type)
    holds = _holds(raw, value, pair, number)
    value = value if holds is None else f.when(holds, value)
    return value, f.when(value.isNull(), raw.cast("string"))


def _holds(raw: Column, value: Column, pair: Pair, number: int) -> Column | None:
    """Whether a value is what was read, where Spark's cast does not tell."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    is_text = pair.raw[number]
    match pair.type:
        case types.DoubleType() | types.FloatType():
            # Whole numbers beyond 64 bits are doubles.
            whole = f.when(raw.rlike(r"^\s*[-+]?\d+\s*$"), raw.try_cast("long")) if is_text else raw.try_cast("long")
            is_same = f.coalesce(whole == value.cast("double").try_cast("long"), whole.isNull())
            if not is_text:
                return is_same
            return is_same & is_number(raw) & ~((f.abs(value) == float("inf")) & raw.rlike(r"\d"))
        case types.DateType() if is_text:
            return f.trim(raw).rlike(r"^[-+\d]+$")
        case types.TimestampType() if is_text:
            # Of a time without a day, Spark takes today's; of a fraction, six digits.
            return f.trim(raw).rlike(r"^[-+]?\d{4}") & ~raw.rlike(r"\.\d{6}\d*[1-9]")
    return None


def rank(text: Column) -> Column:
    """What orders texts that may be numbers, of which 10 is above 9."""
    from pyspark.sql import functions as f

    amount = f.when(is_number(text), text.try_cast("double"))
    # Of numbers that one double stands for.
    exact = f.when(amount.isNotNull(), text.try_cast("decimal(38,9)"))
    return f.when(text.isNotNull(), f.struct(amount, exact, f.when(amount.isNull(), text)))


def same_near_gap(
    left: Column, right: Column, unread: tuple[Column, Column], pair: Pair, tolerance: Tolerance
) -> tuple[Column, Column, Column]:
    """Whether two values are equal; whether they are numbers within the tolerance; and how far numbers are apart: null
    if they are no numbers, not finite, or if it is too little for a double."""
    from pyspark.sql import functions as f

    nothing, no = f.lit(None).cast("double"), f.lit(False)
    same = left.eqNullSafe(right) & unread[0].eqNullSafe(unread[1])
    if not (pair.is_number or (pair.is_text and tolerance)):
        return same, no, nothing
    a, b = (number.try_cast("double") for number in (left, right))
    if pair.are_numbers:
        a, b = (f.coalesce(number, text.try_cast("double")) for number, text in zip((a, b), unread, strict=True))
    apart = f.coalesce(_exactly_apart(left, right, a, b, pair), f.abs(a - b))
    # Of infinities and NaN, only themselves are near.
    gap = f.when(apart < float("inf"), apart).otherwise(nothing)
    near = no
    if tolerance:
        near = (gap <= tolerance.absolute) | (gap <= tolerance.relative * f.greatest(f.abs(a), f.abs(b)))
    return same, f.coalesce(near, no), f.when(same | (gap > 0), gap)


def _exactly_apart(left: Column, right: Column, a: Column, b: Column, pair: Pair) -> Column:
    """How far two numbers are apart, if doubles could not tell and decimals can."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    match pair.type:
        case types.DecimalType():
            decimal = types.DecimalType(_DIGITS, pair.type.scale)
        case types.IntegralType():
            decimal = types.DecimalType(_DIGITS, 0)
        case types.StringType() if pair.is_exact:
            decimal = types.DecimalType(_DIGITS, _PLACES)
        case _:
            return f.lit(None).cast("double")
    apart = f.abs(left.try_cast(decimal) - right.try_cast(decimal)).cast("double")
    return f.when(f.greatest(f.abs(a), f.abs(b)) >= 1, apart) if pair.is_exact else apart
