"""Finds and parses what a word count wrote: RESULT/ledger/*.jsonl and RESULT/counts/*.jsonl.

Guarantees that every row is either given out typed or named with its file and line; a row is never guessed or skipped.
Only the end of a file without a newline may be unparsable: a worker that was killed in the middle of a write leaves
that, and writes the row again elsewhere. Relies on nothing of Spark: files are listed on the driver and parsed in
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

#: Rows that a Python worker hands to Spark at a time.
BATCH_ROWS = 8192
#: As much of an unparsable line as its message shows.
SHOWN_BYTES = 60

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class LedgerRow(msgspec.Struct, gc=False):
    """One line of the feed was processed, and had so many words."""

    partition: _Int64
    offset: _Int64
    words: _Int64


class CountRow(msgspec.Struct, gc=False):
    """The total of a word at some moment; the largest is its count."""

    word: str
    count: _Int64


#: Per kind of result: the folder it is in is its name. `problem` and `torn` stand alone in a row of their own.
ROW_TYPES: dict[str, type[LedgerRow | CountRow]] = {"ledger": LedgerRow, "counts": CountRow}
SCHEMAS = {
    "ledger": "partition bigint, `offset` bigint, words bigint, problem string, torn string",
    "counts": "word string, `count` bigint, problem string, torn string",
}


def find_results(result: Path, kind: str) -> list[InputFile]:
    """The files of one kind in order of name; none is no error here, a topology may have died before it wrote one."""
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
    """All rows of the files, in the columns of SCHEMAS[kind]. Runs in Spark's Python workers."""
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
    """(row, None, None) for each row; after the first problem the rest of a file means nothing, and is not read."""
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
