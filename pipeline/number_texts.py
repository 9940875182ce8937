"""Numbers as texts, exactly: how `squall verify` compares what no type of Spark holds without loss.

Guarantees one text for each number, however it is written and however many digits it has: 1.50, 15e-1 and +1.5 are
"1.5", -0.0 is "0", 1e300 is a one with 300 zeros, 1e400 is "1e400". What is no number stays as it is. Decides only: it
gives expressions for Spark, which are null where the text is.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

#: Places before or after the point from which a number is written with an exponent: of 1e999999999 are many zeros.
MAX_PLACES = 400
_WHOLE = r"^(0|-?[1-9]\d*)$"
_PLAIN = r"^[-+]?(\d+\.?\d*|\.\d+)$"
_NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
_PARTS = r"^([-+]?)(\d*)\.?(\d*)(?:[eE]([-+]?\d+))?$"


def is_number(text: Column) -> Column:
    """Whether a text is a number, NaN or an infinity. Spark also takes 1d for one."""
    from pyspark.sql import functions as f

    text = f.trim(text)
    return text.rlike(_NUMBER) | (text.try_cast("double").isNotNull() & ~text.rlike(r"\d"))


def plain_number(text: Column) -> Column:
    """The one text of a number."""
    from pyspark.sql import functions as f

    text = f.trim(text)
    is_short = f.length(text) <= MAX_PLACES
    other = text.try_cast("double")
    return (
        f.when(is_short & text.rlike(_WHOLE), text)
        .when(is_short & text.rlike(_PLAIN), _shortened(text))
        .when(text.rlike(_NUMBER), _moved(text))
        .when(~text.rlike(r"\d") & (f.isnan(other) | (f.abs(other) == float("inf"))), other.cast("string"))
        .otherwise(text)
    )


def _shortened(text: Column) -> Column:
    """A number without an exponent, without zeros that mean nothing."""
    from pyspark.sql import functions as f

    for pattern, kept in (
        (r"^\+", ""), (r"^(-?)0*(?=\d)", "$1"), (r"^(-?)\.", "$10."), (r"(\.\d*?)0+$", "$1"), (r"\.$", ""),
        (r"^-0$", "0"),
    ):
        text = f.regexp_replace(text, pattern, kept)
    return text


def _moved(text: Column) -> Column:
    """A number with an exponent, or a long one, with its point where it belongs."""
    from pyspark.sql import functions as f

    sign, whole, fraction, exponent = (f.regexp_extract(text, _PARTS, group) for group in (1, 2, 3, 4))
    power = f.when(exponent == "", f.lit(0)).otherwise(exponent.try_cast("int")).cast("long") - f.length(fraction)
    digits = f.regexp_replace(f.concat(whole, fraction), "^0+", "")
    parts = f.struct(sign.alias("sign"), digits.alias("digits"), power.alias("power"), text.alias("text"))
    # One element, so that its parts are computed once: an expression is as often as it is used.
    return f.get(f.transform(f.transform(f.array(parts), _without_zeros), _written), f.lit(0))


def _without_zeros(parts: Column) -> Column:
    """Digits that end with none."""
    from pyspark.sql import functions as f

    digits = f.regexp_replace(parts.digits, "0+$", "")
    power = parts.power + f.length(parts.digits) - f.length(digits)
    minus = f.when(parts.sign == "-", "-").otherwise("")
    return f.struct(minus.alias("minus"), digits.alias("digits"), power.alias("power"), parts.text.alias("text"))


def _written(parts: Column) -> Column:
    from pyspark.sql import functions as f

    minus, digits, power = parts.minus, parts.digits, parts.power
    point = f.length(digits) + power
    places = point.cast("int")
    is_near = (point <= MAX_PLACES) & (point >= -MAX_PLACES)
    return (
        f.when(power.isNull(), f.lower(parts.text))
        .when(digits == "", "0")
        .when(~is_near, f.concat(minus, digits, f.lit("e"), power.cast("string")))
        .when(power >= 0, f.concat(minus, digits, f.repeat(f.lit("0"), power.cast("int"))))
        .when(
            point > 0, f.concat(minus, f.substring(digits, f.lit(1), places), f.lit("."), f.substr(digits, places + 1))
        )
        .otherwise(f.concat(minus, f.lit("0."), f.repeat(f.lit("0"), -places), digits))
    )


def exact_type(kind: DataType) -> DataType:
    """A type with texts in place of its numbers, within lists and objects too."""
    from pyspark.sql.types import NumericType

    return _with_texts(kind, NumericType)


def exact_form(column: Column, kind: DataType) -> Column:
    """Values of a type in the form of `exact_type`. Its doubles are texts already."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    match kind:
        case types.IntegralType():
            return column.cast("string")
        case types.NumericType():
            return plain_number(column.cast("string"))
        case types.ArrayType():
            return f.transform(column, lambda item: exact_form(item, kind.elementType))
        case types.StructType():
            fields = [exact_form(column.getField(own.name), own.dataType).alias(own.name) for own in kind.fields]
            return f.when(column.isNotNull(), f.struct(*fields))
    return column


def with_number_texts(schema: StructType) -> StructType:
    """A schema with texts in place of its doubles, as JSON is read: Spark gives them as they stand in the file."""
    from pyspark.sql.types import DoubleType

    return cast("StructType", _with_texts(schema, DoubleType))


def _with_texts(kind: DataType, numbers: type[DataType]) -> DataType:
    """A type with texts in place of these numbers, however deep."""
    from pyspark.sql import types

    match kind:
        case types.ArrayType():
            return types.ArrayType(_with_texts(kind.elementType, numbers))
        case types.StructType():
            fields = [types.StructField(own.name, _with_texts(own.dataType, numbers)) for own in kind.fields]
            return types.StructType(fields)
    return types.StringType() if isinstance(kind, numbers) else kind


def shown_number(text: str) -> int | float | Decimal | str:
    """A number for people and JSON, if a number of Python's has this text; else the text."""
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return text
    if not exact.is_finite():
        return float(exact)
    if exact == exact.to_integral_value() and "e" not in text:
        return int(exact)
    return float(text) if Decimal(repr(float(text))) == exact else exact
