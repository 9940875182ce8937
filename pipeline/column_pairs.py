"""Two columns of one name, and the type in which `squall verify` compares them.

Guarantees a type in which equal values stay equal, or a UsageError that names both. Decides only: no job is started.

==================================  ================================================================================
whole numbers of different widths   64 bits
decimals, and with whole numbers    a decimal with the fraction of both; a number too large for it, beyond Spark's 38
                                    digits, equals none of the other side: it is compared as a text
a float or double with any number   double
timestamps with and without zone    UTC
text of CSV and JSON files          the other side's type, as Spark casts it; a text that is none equals no value
others                              only the same type; never maps, which Spark does not order
==================================  ================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, DecimalType

MAX_DECIMAL_DIGITS = 38
_WHOLE_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


@dataclass(frozen=True)
class Pair:
    """A column of both sides. `casts`: of the left and of the right, whether it may hold what is none of `type`: a
    text, or a decimal that is too large."""

    name: str
    type: DataType
    casts: tuple[bool, bool] = (False, False)
    too_large: bool = False
    """Whether what is none of `type` is a number that is too large for it."""

    @property
    def is_number(self) -> bool:
        from pyspark.sql.types import NumericType

        return isinstance(self.type, NumericType)

    @property
    def is_text(self) -> bool:
        from pyspark.sql.types import StringType

        return isinstance(self.type, StringType)


def pair_of(name: str, types: tuple[DataType, DataType], loose: tuple[bool, bool]) -> Pair:
    """`loose`: of the left and of the right, whether a text may stand for a value of another type."""
    from pyspark.sql.types import StringType

    left, right = types
    for type_ in types:
        if _has_no_order(type_):
            raise UsageError(
                f"column {name!r} is {type_.simpleString()}, which cannot be compared; leave it out with --compare"
            )
    left_casts, right_casts = (
        may and isinstance(own, StringType) and not isinstance(other, StringType)
        for own, other, may in ((left, right, loose[0]), (right, left, loose[1]))
    )
    common = right if left_casts else left if right_casts else _common(left, right)
    if common is None:
        raise UsageError(
            f"column {name!r} is {left.simpleString()} on the left and {right.simpleString()} on the right: no value "
            "of one equals one of the other"
        )
    if not (left_casts or right_casts) and _is_decimal(common):
        casts = not _fits(left, common), not _fits(right, common)
        return Pair(name, common, casts, too_large=any(casts))
    return Pair(name, common, (left_casts, right_casts))


def _common(left: DataType, right: DataType) -> DataType | None:
    from pyspark.sql import types

    names = left.simpleString(), right.simpleString()
    if names[0] == names[1]:
        return left
    if isinstance(left, types.StringType) and isinstance(right, types.StringType):
        return types.StringType()
    if isinstance(left, types.NumericType) and isinstance(right, types.NumericType):
        if any(isinstance(type_, types.FractionalType) and not _is_decimal(type_) for type_ in (left, right)):
            return types.DoubleType()
        return _exact(left, right) if _is_decimal(left) or _is_decimal(right) else types.LongType()
    times = (types.TimestampType, types.TimestampNTZType)
    return types.TimestampType() if isinstance(left, times) and isinstance(right, times) else None


def _is_decimal(type_: DataType) -> bool:
    from pyspark.sql.types import DecimalType

    return isinstance(type_, DecimalType)


def _exact(left: DataType, right: DataType) -> DecimalType:
    """The decimal that holds both; or at least all of the one with the longer fraction, and all fractions."""
    from pyspark.sql.types import DecimalType

    before, after = (max(digits) for digits in zip(_digits(left), _digits(right), strict=True))
    return DecimalType(min(before + after, MAX_DECIMAL_DIGITS), after)


def _digits(type_: DataType) -> tuple[int, int]:
    """The digits before and after the point."""
    from pyspark.sql.types import DecimalType

    if isinstance(type_, DecimalType):
        return type_.precision - type_.scale, type_.scale
    return _WHOLE_DIGITS[type_.simpleString()], 0


def _fits(type_: DataType, decimal: DataType) -> bool:
    """Whether each number of a type is one of a decimal type, whose fraction is as long at least."""
    return _digits(type_)[0] <= _digits(decimal)[0]


def _has_no_order(type_: DataType) -> bool:
    from pyspark.sql import types

    match type_:
        case types.ArrayType():
            return _has_no_order(type_.elementType)
        case types.StructType():
            return any(_has_no_order(field.dataType) for field in type_.fields)
    plain = (
        types.NumericType, types.StringType, types.BooleanType, types.BinaryType, types.DateType, types.TimestampType,
        types.TimestampNTZType,
    )
    return not isinstance(type_, plain)
