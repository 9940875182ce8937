"""Compares the schemas of Parquet and ORC files, in their footers, with each other and with the columns asked for.

Spark would read nulls in place of columns that are missing or, in ORC, have another type; it does not tell names apart
by case; and it does not say which file it is that it cannot read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from squall.engine.errors import UsageError
from squall.pipeline.column_names import folded, twins_among, twins_told
from squall.pipeline.corpus import InputFile
from squall.pipeline.nanoseconds import ADVICE, columns_of_nanoseconds
from squall.pipeline.rules import near
from squall.pipeline.unread_types import unread_column

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_WHOLE = ("tinyint", "smallint", "int", "bigint")
#: Least digits of the decimals as which Spark reads them.
_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
_ALIKE = ({"string", "binary"}, {"timestamp", "timestamp_ntz"})
"""Of Parquet: Spark's reader of ORC changes such values."""
_DOUBLES = ("float", "tinyint", "smallint", "int")


def check_footers(format_: str, files: Sequence[InputFile]) -> list[str]:
    """Refuse a Parquet or ORC file that is damaged, has another schema than the first, or columns that Spark cannot
    read. The names of the columns. Needs no Spark."""
    import pyarrow

    first: dict[str, str] = {}
    for file in files:
        try:
            schema, nanos = _footer(format_, file.location)
        except (pyarrow.ArrowException, OSError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UsageError(f"{file.location} is no {format_} file, or damaged: {reason}") from error
        if mistake := _mistake_in_names(format_, schema):
            raise UsageError(f"{file.location} has {mistake}")
        if format_ == "parquet" and (unread := unread_column(schema)):
            raise UsageError(f"{file.location} has {unread}")
        if nanos:
            raise UsageError(f"{file.location} has timestamps in nanoseconds in column {nanos[0]!r}; {ADVICE}")
        found = {field.name: str(field.type) for field in schema}
        first = first or found
        for name in (*first, *found):
            if first.get(name) != found.get(name):
                raise UsageError(
                    f"the files differ in their schema: column {name!r} is {found.get(name, 'not there')} in "
                    f"{file.location}, and {first.get(name, 'not there')} in {files[0].location}"
                )
    return list(first)


def _footer(format_: str, location: str) -> tuple[Any, list[str]]:
    """The schema as Arrow's, and the columns of timestamps that Spark has no type for."""
    if format_ == "parquet":
        from pyarrow import parquet

        footer = parquet.read_metadata(location)
        return footer.schema.to_arrow_schema(), columns_of_nanoseconds(footer)
    from pyarrow import orc

    return orc.ORCFile(location).schema, []


def _mistake_in_names(format_: str, schema: Iterable[Any]) -> str | None:
    for field in schema:
        if format_ == "orc" and "`" in field.name + str(field.type):
            return f"a backtick in column {field.name!r}, where Spark ends a name of ORC; allowed: other names"
    for fields, where in _levels(schema, ""):
        if twins := twins_among(field.name for field in fields):
            return twins_told(*twins, where)
        if format_ == "orc" and any(not field.name for field in fields):
            return f"a column without a name{where}, which Spark cannot read in ORC; allowed: a name for each"
    return None


def _levels(fields: Iterable[Any], where: str) -> Iterator[tuple[list[Any], str]]:
    """The fields of a schema of Arrow, and of the structs in them, however deep; and where they are."""
    from pyarrow import types

    fields = list(fields)
    yield fields, where
    for field in fields:
        inner = where or f" inside {field.name!r}"
        if types.is_struct(field.type):
            yield from _levels(field.type, inner)
        elif types.is_nested(field.type):
            parts = [field.type.field(number) for number in range(field.type.num_fields)]
            for part in parts:
                yield from list(_levels([part], inner))[1:]


def check_types(format_: str, wanted: StructType, there: StructType, location: str) -> None:
    """Refuse columns that a file does not have, or has with a type that cannot be read as the one that is wanted."""
    types = {folded(field.name): field.dataType for field in there}
    for field in wanted:
        has = types.get(folded(field.name))
        if has is None:
            lacks = f"which {location} does not have"
            raise UsageError(f"--schema names {field.name!r}, {lacks}{near(field.name, there.names)}")
        if not _fits(field.dataType, has, _ALIKE if format_ == "parquet" else ()):
            raise UsageError(
                f"{location} has column {field.name!r} as {has.simpleString()}, and --schema as "
                f"{field.dataType.simpleString()}; allowed: the type of the file, or a wider one (--rules can cast)"
            )


def _fits(wanted: DataType, has: DataType, alike: Collection[set[str]]) -> bool:
    """Whether Spark reads each value of one type as the same value of another."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    match wanted, has:
        case ArrayType(), ArrayType():
            return _fits(wanted.elementType, has.elementType, alike)
        case MapType(), MapType():
            return _fits(wanted.keyType, has.keyType, alike) and _fits(wanted.valueType, has.valueType, alike)
        case StructType(), StructType():
            types = {folded(field.name): field.dataType for field in has}
            return all(
                (type_ := types.get(folded(field.name))) is not None and _fits(field.dataType, type_, alike)
                for field in wanted
            )
        case DecimalType(), DecimalType():
            return wanted.scale >= has.scale and wanted.precision - wanted.scale >= has.precision - has.scale
    new, old = wanted.simpleString(), has.simpleString()
    if isinstance(wanted, DecimalType):
        return old in _DIGITS and wanted.precision - wanted.scale >= _DIGITS[old]
    if new in _WHOLE and old in _WHOLE:
        return _WHOLE.index(new) >= _WHOLE.index(old)
    return new == old or {new, old} in alike or (new == "double" and old in _DOUBLES)
