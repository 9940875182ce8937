"""Finds and parses the result of a word count: RESULT/ledger/*.jsonl and RESULT/counts/*.jsonl.

Guarantees that every row is either returned with its type or named with its file and line; a row is never guessed or
skipped. Only a last line without a newline may be unparsable: a worker killed in the middle of a write leaves one, and
its successor writes that row elsewhere. Relies on nothing of Spark: files are listed on the driver and parsed in
Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from squall.engine.errors import UsageError
from squall.pipeline.corpus import InputFile

if TYPE_CHECKING:
    import pyarrow

#: Rows that a Python worker hands to Spark at a time: bounds its memory.
BATCH_ROWS = 8192
#: Bytes of an unparsable line shown in the message: enough to recognise it.
SHOWN_BYTES = 60

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class LedgerRow(msgspec.Struct, gc=False):
    """A row of the ledger: a processed line of the feed and its number of words."""

    partition: _Int64
    offset: _Int64
    words: _Int64


class CountRow(msgspec.Struct, gc=False):
    """A row of the counts: a word's total at some moment; the largest total is its count."""

    word: str
    count: _Int64


#: Row type by kind of result, which is the folder's name. `problem` and `torn` are alone in their row.
ROW_TYPES: dict[str, type[LedgerRow | CountRow]] = {"ledger": LedgerRow, "counts": CountRow}
SCHEMAS = {
    "ledger": "partition bigint, `offset` bigint, words bigint, problem string, torn string",
    "counts": "word string, `count` bigint, problem string, torn string",
}


def find_results(result: Path, kind: str) -> list[InputFile]:
    """The files of one kind in order of name; none is no error: a topology may have died before it wrote one."""
    folder = result / kind
    if not folder.is_dir():
        what = "does not exist" if not result.exists() else f"has no folder {kind}"
        raise UsageError(f"{result} is not the result of a word count: it {what}; see examples/word_count.py --out")
    try:
        return [
            InputFile(f"{kind}/{path.name}", str(path.absolute()), path.stat().st_size)
            for path in sorted(folder.glob("*.jsonl"))
        ]
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from error


def row_batches(kind: str, files: list[InputFile]) -> Iterator[pyarrow.RecordBatch]:
    """Read all rows of the files, in the columns of SCHEMAS[kind]. Runs in Spark's Python workers."""
    row_type = ROW_TYPES[kind]
    names = row_type.__struct_fields__
    nothing = (None,) * len(names)
    rows: list[tuple[Any, ...]] = []
    for file in files:
        for row, problem, torn in _read(file, msgspec.json.Decoder(row_type)):
            values = nothing if row is None else tuple(getattr(row, name) for name in names)
            rows.append((*values, problem, torn))
            if len(rows) >= BATCH_ROWS:
                yield _batch(names, rows)
                rows = []
    if rows:
        yield _batch(names, rows)


def _read(file: InputFile, decoder: msgspec.json.Decoder[Any]) -> Iterator[tuple[Any, str | None, str | None]]:
    """Give (row, None, None) for each row; after the first problem, the rest of the file is not read."""
    line_no = 0
    try:
        with open(file.location, "rb") as stream:
            for line_no, raw in enumerate(stream, 1):
                try:
                    yield decoder.decode(raw), None, None
                except ValueError as error:
                    where = f"{file.name}:{line_no}"
                    if raw.endswith(b"\n"):
                        kind = file.name.partition("/")[0]
                        yield None, f"{where} is not a row of the {kind}: {error}: {raw[:SHOWN_BYTES]!r}", None
                        return
                    yield None, None, where
    except OSError as error:
        yield None, f"{file.name} cannot be read after line {line_no}: {error.strerror}", None


def _batch(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> pyarrow.RecordBatch:
    import pyarrow

    columns = [*names, "problem", "torn"]
    types = [pyarrow.string() if name in ("word", "problem", "torn") else pyarrow.int64() for name in columns]
    arrays = [pyarrow.array(values, type_) for values, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, columns)
