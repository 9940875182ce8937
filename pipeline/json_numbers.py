"""Numbers of JSON as they stand in a line, where Spark's functions would write them anew.

`from_json` puts a number into a text, and an array into its elements, by way of a double: 0.1000 becomes 0.1, digits
beyond the 17th are lost, and 1e400 is "Infinity". A number that is *marked* is a text of its own, and passes unchanged.

Guarantees that a text which is marked, parsed and unmarked has each number as it stood in the line. Relies on strict
JSON: texts in double quotes alone. Decides only: it gives expressions for Spark, which are null where the text is.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

#: Characters that are none in any text: before a number, and in place of what is escaped.
_MARK, _BACKSLASH, _QUOTE = "\ufdd1", "\ufdd2", "\ufdd3"
_FRACTION = r"[:\[,]\s*-?\d+[.eE]"
"""A number that may be a double; inside a text it does no harm."""
_NUMBER = r"-?\d[\d.eE+-]*"
_DOUBLE = r'^(?:-?\d+\.\d+(?:E-?\d+)?|"?-?Infinity"?|\{.*|\[.*)$'
"""A text that may have been a double, or have one inside: as Java writes it."""


def has_fraction(line: Column) -> Column:
    """Whether a line may have a number that is changed by way of a double."""
    from pyspark.sql import functions as f

    return line.rlike(_FRACTION) & ~f.contains(line, f.lit(_MARK))


def marked(line: Column) -> Column:
    """A line in which each number is a text that begins with the mark."""
    from pyspark.sql import functions as f

    hidden = f.replace(f.replace(line, f.lit("\\\\"), f.lit(_BACKSLASH)), f.lit('\\"'), f.lit(_QUOTE))

    def outside(piece: Column, number: Column) -> Column:
        return f.when(number % 2 == 0, f.regexp_replace(piece, _NUMBER, f'"{_MARK}$0"')).otherwise(piece)

    # Every other piece is inside quotes. A regular expression for all of it would need more stack than Java has.
    joined = f.array_join(f.transform(f.split(hidden, '"'), outside), '"')
    return f.replace(f.replace(joined, f.lit(_QUOTE), f.lit('\\"')), f.lit(_BACKSLASH), f.lit("\\\\"))


def unmarked(text: Column) -> Column:
    """The text with its numbers as they were."""
    from pyspark.sql import functions as f

    inside = f.regexp_replace(text, f'"{_MARK}([^"]*)"', "$1")
    has_any = f.contains(text, f.lit(_MARK))
    return f.when(has_any, f.regexp_replace(inside, f"^{_MARK}", "")).otherwise(text)


def all_texts(kind: DataType) -> DataType:
    """A type with texts in place of all that is no list and no object."""
    from pyspark.sql import types

    match kind:
        case types.ArrayType():
            return types.ArrayType(all_texts(kind.elementType))
        case types.MapType():
            return types.MapType(kind.keyType, all_texts(kind.valueType))
        case types.StructType():
            return types.StructType([types.StructField(own.name, all_texts(own.dataType)) for own in kind.fields])
    return types.StringType()


def may_be_changed(value: Column, kind: DataType) -> Column | None:
    """Whether a text in a value of this type may have been a number; None if its type holds no text."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    if not _has_text(kind):
        return None
    match kind:
        case types.ArrayType():
            return f.coalesce(f.exists(value, lambda item: _may_be(item, kind.elementType)), f.lit(False))
        case types.MapType():
            items = f.map_values(value)
            return f.coalesce(f.exists(items, lambda item: _may_be(item, kind.valueType)), f.lit(False))
        case types.StructType():
            return reduce(or_, (_may_be(value.getField(own.name), own.dataType) for own in kind.fields))
    return f.coalesce(value.rlike(_DOUBLE), f.lit(False))


def _may_be(value: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as f

    found = may_be_changed(value, kind)
    return f.lit(False) if found is None else found


def with_exact_texts(value: Column, exact: Column, kind: DataType) -> Column:
    """A value with the texts of another, in which all are texts and numbers marked; where that is null, as it is."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    if not _has_text(kind):
        return value
    match kind:
        case types.ArrayType():
            return f.transform(value, lambda item, at: with_exact_texts(item, f.get(exact, at), kind.elementType))
        case types.MapType():
            return f.transform_values(
                value, lambda key, item: with_exact_texts(item, f.try_element_at(exact, key), kind.valueType)
            )
        case types.StructType():
            fields = [
                with_exact_texts(value.getField(own.name), exact.getField(own.name), own.dataType).alias(own.name)
                for own in kind.fields
            ]
            return f.when(value.isNotNull(), f.struct(*fields))
    return f.coalesce(unmarked(exact), value)


def _has_text(kind: DataType) -> bool:
    from pyspark.sql import types

    match kind:
        case types.ArrayType():
            return _has_text(kind.elementType)
        case types.MapType():
            return _has_text(kind.valueType)
        case types.StructType():
            return any(_has_text(own.dataType) for own in kind.fields)
    return isinstance(kind, types.StringType)
