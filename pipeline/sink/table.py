"""Makes the Arrow table of a sink's file from the tuples that it holds.

Guarantees that each tuple is in the table or among the misfits; that the columns are the same for all files once
`adopt` was told what is fixed. Relies on `pipeline.sink.columns` for the values. Imports pyarrow on use. Thread: the
sink's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of, text_of_error
from squall.pipeline.feed.feed_spout import ORIGIN
from squall.pipeline.sink.columns import Misfit, infer, make_column, schema_of

if TYPE_CHECKING:
    from squall.engine.api.tuple import Tuple
    from squall.pipeline.sink.directory import About

MESSAGE_ID = "_message_id"


class TableMaker:
    """The columns of a sink. Can be pickled."""

    def __init__(self, fields: Sequence[str], schema: Any, key: str | Sequence[str]) -> None:
        """As the arguments of a ParquetSink. UsageError if they are none."""
        self.key = (key,) if isinstance(key, str) else tuple(key if isinstance(key, Sequence) else [None])
        self.schema: Any = None
        """Of the files, with `_message_id`; None until it is declared, adopted or inferred."""
        self.fields: tuple[str, ...] = ()
        if isinstance(fields, str) or not all(isinstance(name, str) for name in (*fields, *self.key)):
            raise UsageError(f"ParquetSink has fields {repr_of(fields)}, key {repr_of(key)}; allowed: lists of names")
        self._declared = schema is not None
        if schema is not None:
            columns = schema_of(schema)
            if fields and [*fields] != columns.names:
                raise UsageError(f"ParquetSink has fields {repr_of(fields)}; allowed: those of its schema, or none")
            fields = columns.names
            self._set_types(columns)
        self._set_fields(fields)

    def _set_types(self, columns: Any) -> None:
        import pyarrow

        own = [(MESSAGE_ID, pyarrow.string())] if self.key else []
        self.schema = pyarrow.schema([*own, *columns])

    def _set_fields(self, fields: Sequence[str]) -> None:
        if len(set(fields)) < len(fields) or MESSAGE_ID in fields:
            raise UsageError(f"ParquetSink has fields {repr_of(fields)}; allowed: different names, not {MESSAGE_ID!r}")
        self.fields = (*fields,)

    def adopt(self, about: About) -> None:
        """Take what is fixed for the directory, also in place of what was inferred. UsageError if it is not what was
        declared."""
        if mistake := self._contradiction(about):
            raise UsageError(f"ParquetSink contradicts the files in {about.path}: {mistake}")
        self.schema = about.schema
        self.fields = tuple(name for name in about.schema.names if name != MESSAGE_ID)

    def _contradiction(self, about: About) -> str | None:
        """The first thing that differs."""
        if about.key != self.key:
            return f"key is {[*self.key]}, but {[*about.key]} there"
        there = [name for name in about.schema.names if name != MESSAGE_ID]
        if self.fields and [*self.fields] != there:
            return f"fields are {repr_of([*self.fields])}, but {repr_of(there)} there"
        if self._declared:
            for name in there:
                wanted, has = self.schema.field(name).type, about.schema.field(name).type
                if wanted != has:
                    return f"field {name!r} is {wanted}, but {has} there"
        return None

    def mistake(self, tup: Tuple) -> str | None:
        """Why a tuple cannot be a row, as far as its fields show. The first tuple names the fields, unless declared."""
        if not self.fields:
            self._set_fields([name for name in tup.fields if name != ORIGIN])
        missing = [name for name in (*self.key, *self.fields) if name not in tup]
        if not missing:
            return None
        whose = f"a tuple of {tup.source_component}, stream {tup.source_stream!r}"
        return f"{whose}, has no field {missing[0]!r}; its fields are {', '.join(tup.fields)}"

    def infer(self, rows: Sequence[Tuple]) -> list[Misfit]:
        """Infer the types from the first rows. If that of a field cannot be told, each row is a misfit for that."""
        import pyarrow

        types = {name: infer(values) for name, values in zip(self.fields, columns_of(rows, self.fields), strict=True)}
        unknown = [name for name, type_ in types.items() if type_ is None]
        if not unknown:
            self._set_types(pyarrow.schema([*types.items()]))
            return []
        name = unknown[0]
        values = (row[name] for row in rows)
        example = repr_of(next((value for value in values if value is not None), None))
        why = f"field {name!r} is {example} in the first rows, which does not tell its type: give ParquetSink a schema"
        return [Misfit(row, why) for row in range(len(rows))]

    def make(self, rows: Sequence[Tuple]) -> tuple[Any, list[Misfit]]:
        """The table of all rows but the misfits, and the misfits."""
        import pyarrow

        misfits: dict[int, Misfit] = {}
        made = []
        columns = columns_of(rows, self.fields)
        if self.key:
            columns.insert(0, self._ids(columns_of(rows, self.key), misfits))
        for field, values in zip(self.schema, columns, strict=True):
            column, wrong = make_column(field.name, values, field.type)
            made.append(column)
            for misfit in wrong:
                misfits.setdefault(misfit.row, misfit)
        table = pyarrow.Table.from_arrays(made, schema=self.schema)
        if misfits:
            kept = [row for row in range(len(rows)) if row not in misfits]
            table = table.take(pyarrow.array(kept, pyarrow.int64()))
        return table, sorted(misfits.values())

    def _ids(self, columns: Sequence[Sequence[Any]], misfits: dict[int, Misfit]) -> list[str | None]:
        ids: list[str | None] = []
        for row, values in enumerate(zip(*columns, strict=True)):
            try:
                ids.append(_id(self.key, values))
            except Exception as error:  # of a user's object, or one that has no form of its own in JSON
                named = f"key {[*self.key]} is {', '.join(map(repr_of, values))}"
                misfits[row] = Misfit(row, f"{named}, which makes no {MESSAGE_ID}: {text_of_error(error)}")
                ids.append(None)
        return ids


def _id(key: Sequence[str], values: Sequence[Any]) -> str:
    # The floor of an origin rises from one time to the next.
    named = zip(key, values, strict=True)
    return msgspec.json.encode([value[:2] if name == ORIGIN else value for name, value in named]).decode()


def columns_of(rows: Sequence[Tuple], names: Sequence[str]) -> list[Sequence[Any]]:
    fields = rows[0].fields
    if all(row.fields == fields for row in rows):
        columns = [*zip(*(row.values for row in rows), strict=True)]
        return [columns[fields.index(name)] for name in names]
    return [*zip(*(row.select(*names) for row in rows), strict=True)]
