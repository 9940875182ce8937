"""Whether the texts of a column are UTF-8, which Spark and Parquet do not check.

Decides only: gives a condition for Spark, which is null where the value is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def is_valid_text(column: Column, kind: DataType) -> Column | None:
    """The condition that all texts in a column are UTF-8; None if its type holds no text."""
    from pyspark.sql import functions as f
    from pyspark.sql import types

    found: list[Column] = []

    def add_all_of(items: Column, item_kind: DataType) -> None:
        if is_valid_text(f.lit(None), item_kind) is not None:
            found.append(f.forall(items, lambda item: _known(is_valid_text(item, item_kind))))

    match kind:
        case types.StringType() | types.CharType() | types.VarcharType():
            return f.is_valid_utf8(column)
        case types.ArrayType():
            add_all_of(column, kind.elementType)
        case types.MapType():
            add_all_of(f.map_keys(column), kind.keyType)
            add_all_of(f.map_values(column), kind.valueType)
        case types.StructType():
            parts = (is_valid_text(column.getField(inner.name), inner.dataType) for inner in kind.fields)
            found += [part for part in parts if part is not None]
    if not found:
        return None
    valid = _known(found[0])
    for part in found[1:]:
        valid &= _known(part)
    return valid


def _known(valid: Column | None) -> Column:
    """A value that is null is no wrong one."""
    from pyspark.sql import functions as f

    return f.lit(True) if valid is None else f.coalesce(valid, f.lit(True))
