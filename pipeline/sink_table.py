"""Makes the Arrow table of a sink's file from the tuples that it holds.

Guarantees that each tuple is in the table or among the misfits, and that nothing is changed on the way without a word
(1.5 is not stored as 1, nor a dict without one of its keys): a value that Arrow does not give back as it was is a
misfit, whatever object it is; and one misfit does not harm the rows beside it. The columns are the same for all files
once `adopt` was told what is fixed. Imports pyarrow on use. Thread: the sink's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import message_of, repr_of, text_of_error, type_name

if TYPE_CHECKING:
    from squall.engine.api.tuple import Tuple

#: Digits of a decimal column whose type is inferred: all that Arrow and Spark can.
DECIMAL_DIGITS = 38
#: Classes whose values Arrow stores as they are, or refuses.
_PLAIN = {"int64": int, "double": float, "string": str, "bool": bool, "binary": bytes}
Misfits = dict[int, str]
"""Why rows cannot be stored, by row."""


class TableMaker:
    """The columns of a sink. Can be pickled."""

    def __init__(self, fields: Sequence[str], schema: Any) -> None:
        """Take the arguments of a ParquetSink. UsageError if they are wrong."""
        self.schema: Any = None
        """Of the files; None until it is declared, adopted or inferred."""
        self.fields: tuple[str, ...] = () if isinstance(fields, str) else tuple(fields)
        self._declared = schema is not None
        if schema is not None:
            columns = schema_of(schema)
            if self.fields and [*self.fields] != columns.names:
                raise UsageError(f"ParquetSink has fields {repr_of(fields)}, and others in its schema")
            self.fields = tuple(columns.names)
            self.schema = columns
        wrong = isinstance(fields, str) or len(set(self.fields)) < len(self.fields)
        if wrong or not all(isinstance(name, str) for name in self.fields):
            raise UsageError(f"ParquetSink has fields {repr_of(fields)}; give a list of different names")

    def adopt(self, schema: Any, path: Path) -> None:
        """Take what is fixed for the directory, also in place of what was inferred. UsageError if it is not what was
        declared."""
        there = tuple(schema.names)
        if self.fields and self.fields != there:
            raise UsageError(f"ParquetSink has fields {repr_of(self.fields)}, but {path} has {repr_of(there)}")
        if self._declared and self.schema.types != schema.types:
            both = [{name: str(one.field(name).type) for name in there} for one in (self.schema, schema)]
            raise UsageError(f"ParquetSink has schema {both[0]}, but {path} has {both[1]}")
        self.schema, self.fields = schema, there

    def mistakes(self, rows: Sequence[Tuple]) -> Misfits:
        """Why tuples cannot be rows, as far as their fields show. The first one names the fields, unless declared."""
        if rows:
            self.fields = self.fields or rows[0].fields
        shapes = {tup.fields for tup in rows}
        missing = {shape: [name for name in self.fields if name not in shape] for shape in shapes}
        return {} if not any(missing.values()) else {
            row: f"a tuple of {tup.source_component}, stream {tup.source_stream!r}, has no field "
            f"{missing[tup.fields][0]!r}; its fields are {', '.join(tup.fields)}"
            for row, tup in enumerate(rows) if missing[tup.fields]
        }

    def infer(self, rows: Sequence[Tuple]) -> Misfits:
        """Infer the types from the first rows. If that of a field cannot be told, each row is a misfit for that."""
        import pyarrow

        types = []
        for name, values in zip(self.fields, columns_of(rows, self.fields), strict=True):
            types.append((name, infer(values)))
            if types[-1][1] is None:
                example = repr_of(next((value for value in values if value is not None), None))
                why = f"field {name!r} is {example} in the first rows, which does not tell its type in Parquet: give"
                return dict.fromkeys(range(len(rows)), f"{why} ParquetSink a schema")
        self.schema = pyarrow.schema(types)
        return {}

    def make(self, rows: Sequence[Tuple]) -> tuple[Any, Misfits]:
        """Return the table of all rows but the misfits, and the misfits."""
        import pyarrow

        misfits: Misfits = {}
        made = []
        for field, values in zip(self.schema, columns_of(rows, self.fields), strict=True):
            column, wrong = make_column(field.name, values, field.type)
            made.append(column)
            misfits = wrong | misfits
        table = pyarrow.Table.from_arrays(made, schema=self.schema)
        if misfits:
            table = table.filter(pyarrow.array([row not in misfits for row in range(len(rows))]))
        return table, dict(sorted(misfits.items()))


def columns_of(rows: Sequence[Tuple], names: Sequence[str]) -> list[Sequence[Any]]:
    fields = rows[0].fields
    if all(row.fields == fields for row in rows):
        columns = [*zip(*(row.values for row in rows), strict=True)]
        return [columns[fields.index(name)] for name in names]
    return [*zip(*(row.select(*names) for row in rows), strict=True)]


def schema_of(types: object) -> Any:
    """Make an Arrow schema from one of pyarrow's, or from a dict of field: type or its name."""
    import pyarrow
    from pyarrow import parquet

    try:
        columns = types.items() if isinstance(types, Mapping) else types
        schema = pyarrow.schema(columns).remove_metadata()
        parquet.write_metadata(schema, pyarrow.BufferOutputStream())
    except (pyarrow.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"ParquetSink has schema {repr_of(types)}: {text_of_error(error)}; give a pyarrow.Schema, or a dict of "
            "field: type, such as 'string', 'int64', 'float64', 'bool', 'binary', 'timestamp[us]', 'date32'"
        ) from error
    return schema


def infer(values: Sequence[Any]) -> Any:
    """Return the type that fits these values, or the first of them that has one; None if that cannot be told."""
    import pyarrow

    for some in (values, *([value] for value in values if value is not None)):
        try:
            type_ = pyarrow.array(some).type
        except Exception:  # of Arrow, or of a user's object
            type_ = None
        if type_ not in (None, pyarrow.null()):
            type_ = pyarrow.decimal128(DECIMAL_DIGITS, type_.scale) if pyarrow.types.is_decimal(type_) else type_
            return type_ if _is_known(type_) else None
    return None


def _is_known(type_: Any) -> bool:
    from pyarrow import types

    parts = [type_.field(place).type for place in range(type_.num_fields)]
    # Parquet has no intervals of months.
    is_one = not (types.is_null(type_) or types.is_interval(type_))
    return is_one and (bool(parts) or not types.is_struct(type_)) and all(map(_is_known, parts))


def make_column(name: str, values: Sequence[Any], type_: Any) -> tuple[Any, Misfits]:
    """Return an array of the values, null at each misfit, and the misfits."""
    import pyarrow

    try:
        column = pyarrow.array(values, type_)
        if set(map(type, values)) <= {_PLAIN.get(str(type_)), type(None)}:
            return column, {}
        stored: Sequence[Any] = column.to_pylist()
    except MemoryError:
        raise
    except Exception:  # of Arrow, or of a user's object
        stored = ()
    misfits = {}
    for row, value in enumerate(values):
        text = ""
        try:
            is_good = _is_same(value, stored[row] if stored else pyarrow.scalar(value, type_).as_py())
        except Exception as error:  # of Arrow, or of a user's object
            is_good, text = False, f" ({message_of(error).partition(chr(10))[0]})"
        if not is_good:
            what = f"field {name!r} is {repr_of(value)} of type {type_name(value)}"
            misfits[row] = f"{what}, which a column of {type_} cannot hold{text}"
    return pyarrow.array([None if row in misfits else value for row, value in enumerate(values)], type_), misfits


def _is_same(value: Any, stored: Any) -> bool:
    """Return True if a value is what Arrow gives back. A struct may lack keys, which are null then."""
    if isinstance(value, Mapping):
        if isinstance(stored, Mapping):
            return value.keys() <= stored.keys() and all(_is_same(value.get(name), stored[name]) for name in stored)
        value = [*value.items()]
    if isinstance(stored, list | tuple):
        return not isinstance(value, str | bytes) and len(value) == len(stored) and all(map(_is_same, value, stored))
    if isinstance(value, bool) and not isinstance(stored, bool):
        return False
    return bool(value == stored or (value != value and stored != stored))
