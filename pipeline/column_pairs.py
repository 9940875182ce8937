"""Two columns of one name, and the type in which `squall verify` compares them.

Guarantees a type in which equal values stay equal, or a UsageError that names both. Decides only: no job is started.

==================================  ================================================================================
whole numbers of different widths   64 bits
decimals, and with whole numbers    a decimal with the fraction of both; a number too large for it, beyond Spark's 38
                                    digits, equals none of the other side: it is compared as a text
numbers of JSON, where they are     a text for each number, exactly; so are texts of CSV and JSON with whole numbers or
mixed, with the same, whole         decimals, and lists and objects of JSON
numbers or decimals
a float or double with any number   double; a whole number of 64 bits that is no double equals none
timestamps with and without zone    UTC; those that have nanoseconds, as texts
text of CSV and JSON files          the other side's type, as Spark casts it; a text that is none, or of which the cast
                                    would drop something, equals no value
others                              only the same type; never maps, which Spark does not order
==================================  ================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError
from squall.pipeline.number_texts import exact_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, DecimalType

MAX_DECIMAL_DIGITS = 38
_WHOLE_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


@dataclass(frozen=True)
class Pair:
    """A column of both sides. `casts`: of the left and of the right, whether it may hold what is none of `type`: a
    text, or a number that `type` does not hold."""

    name: str
    type: DataType
    own: tuple[DataType, DataType]
    """The types of the two columns."""
    raw: tuple[bool, bool]
    """Of the left and of the right, whether it is read in another form: as texts in CSV, and for numbers of JSON; as
    whole numbers for timestamps in nanoseconds."""
    casts: tuple[bool, bool] = (False, False)
    are_numbers: bool = False
    """Whether what is none of `type` may be a number."""
    is_exact: bool = False
    """Whether numbers are compared as texts, of which each number has one; see `number_texts.py`."""

    @property
    def is_number(self) -> bool:
        from pyspark.sql.types import NumericType, StringType

        return isinstance(self.type, NumericType) or (self.is_exact and isinstance(self.type, StringType))

    @property
    def is_text(self) -> bool:
        from pyspark.sql.types import StringType

        return isinstance(self.type, StringType) and not self.is_exact


def pair_of(
    name: str, own: tuple[DataType, DataType], loose: tuple[bool, bool], is_raw: tuple[bool, bool]
) -> Pair:
    """`loose`: of the left and of the right, whether a text may stand for a value of another type. `is_raw`: as
    `Table` has it."""
    from pyspark.sql import types

    for type_ in own:
        if _has_no_order(type_):
            raise UsageError(
                f"column {name!r} is {type_.simpleString()}, which cannot be compared; leave it out with --compare"
            )
    is_text = [may and isinstance(type_, types.StringType) for type_, may in zip(own, loose, strict=True)]
    raw = is_text[0] or is_raw[0], is_text[1] or is_raw[1]
    exact = _exact_pair(own, (is_text[0], is_text[1]), is_raw, all(loose))
    if exact is not None:
        return Pair(name, exact, own, raw, is_exact=True)
    left, right = own
    casts = (
        is_text[0] and not isinstance(right, types.StringType), is_text[1] and not isinstance(left, types.StringType)
    )
    common = right if casts[0] else left if casts[1] else _common(left, right)
    if common is None:
        raise UsageError(
            f"column {name!r} is {left.simpleString()} on the left and {right.simpleString()} on the right: no value "
            "of one equals one of the other"
        )
    if isinstance(common, types.DoubleType | types.FloatType):
        # A whole number may be none of theirs.
        inexact = casts[0] or is_raw[0] or _is_whole(left), casts[1] or is_raw[1] or _is_whole(right)
        return Pair(name, common, own, raw, inexact, are_numbers=any(inexact))
    if isinstance(common, types.TimestampNTZType) and any(casts):
        # Spark would pass over the zone of a text.
        common = types.TimestampType()
    if not any(casts) and _is_decimal(common):
        large = not _fits(left, common), not _fits(right, common)
        return Pair(name, common, own, raw, large, are_numbers=any(large))
    return Pair(name, common, own, raw, (casts[0] or is_raw[0], casts[1] or is_raw[1]))


def _exact_pair(
    own: tuple[DataType, DataType], is_text: tuple[bool, bool], is_raw: tuple[bool, bool], are_loose: bool
) -> DataType | None:
    """The type of two columns that are compared exactly, as texts; None if another way is exact, or there is none."""
    from pyspark.sql import types

    left, right = own
    if not (_is_nested(left) or _is_nested(right)):
        may = [
            text or has or _is_whole(type_) or _is_decimal(type_)
            for type_, text, has in zip(own, is_text, is_raw, strict=True)
        ]
        has_number = any(isinstance(type_, types.NumericType) for type_ in own)
        return types.StringType() if all(may) and has_number and (any(is_text) or any(is_raw)) else None
    if are_loose and (any(is_raw) or left != right):
        common = exact_type(left)
        return common if common.simpleString() == exact_type(right).simpleString() else None
    return None


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


def _is_nested(type_: DataType) -> bool:
    from pyspark.sql import types

    return isinstance(type_, types.ArrayType | types.StructType)


def _is_whole(type_: DataType) -> bool:
    from pyspark.sql.types import IntegralType

    return isinstance(type_, IntegralType) or (_is_decimal(type_) and _digits(type_)[1] == 0)


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
