"""Finds and parses the result of a word count: RESULT/ledger/*.jsonl and RESULT/counts/*.jsonl.

Guarantees that every row is either returned with its type or named with its file and line; a row is never guessed or
skipped. Only a last line without a newline may be unparsable: a worker killed in the middle of a write leaves one, and
its successor writes that row elsewhere. Relies on nothing of Spark: files are listed on the driver and parsed in
Spark's Python workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from squall.engine.errors import UsageError
from squall.pipeline.corpus import InputFile

if TYPE_CHECKING:
    import pyarrow

#: Bytes of lines that a Python worker parses and hands to Spark at a time: bounds its memory.
BULK_BYTES = 1 << 19
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
    for file in files:
        for rows, problem, torn in _read(file, row_type):
            if rows:
                yield _batch(row_type, rows)
            if problem or torn:
                yield _batch(row_type, [None], problem, torn)


def _read(
    file: InputFile, row_type: type[LedgerRow | CountRow]
) -> Iterator[tuple[list[Any], str | None, str | None]]:
    """Give (rows, None, None) for each bulk of rows; after the first problem, the rest of the file is not read."""
    line_no = 0
    one, many = msgspec.json.Decoder(row_type), msgspec.json.Decoder(list[row_type])  # type: ignore[valid-type]
    try:
        with open(file.location, "rb") as stream:
            while lines := stream.readlines(BULK_BYTES):
                rows, error = _rows(lines, one, many)
                line_no += len(rows)
                if error is None:
                    yield rows, None, None
                    continue
                line_no += 1
                where, raw = f"{file.name}:{line_no}", lines[len(rows)]
                if raw.endswith(b"\n"):
                    kind = file.name.partition("/")[0]
                    yield rows, f"{where} is not a row of the {kind}: {error}: {raw[:SHOWN_BYTES]!r}", None
                    return
                yield rows, None, where
    except OSError as error:
        yield [], f"{file.name} cannot be read after line {line_no}: {error.strerror}", None


def _rows(
    lines: list[bytes], one: msgspec.json.Decoder[Any], many: msgspec.json.Decoder[list[Any]]
) -> tuple[list[Any], ValueError | None]:
    """The rows before the first line that is none, and what is wrong with that one."""
    with contextlib.suppress(ValueError):
        # As one list: each line must be at least one row, so as many rows as lines means one each.
        rows = many.decode(b"[" + b",".join(lines) + b"]")
        if len(rows) == len(lines):
            return rows, None
    # One by one takes three times as long, but tells which.
    rows = []
    for line in lines:
        try:
            rows.append(one.decode(line))
        except ValueError as error:
            return rows, error
    return rows, None


def _batch(
    row_type: type[LedgerRow | CountRow], rows: list[Any], problem: str | None = None, torn: str | None = None
) -> pyarrow.RecordBatch:
    import pyarrow

    names = row_type.__struct_fields__
    columns = [[None if row is None else getattr(row, name) for row in rows] for name in names]
    columns += [[told] * len(rows) for told in (problem, torn)]
    names = (*names, "problem", "torn")
    types = [pyarrow.string() if name in ("word", "problem", "torn") else pyarrow.int64() for name in names]
    arrays = [pyarrow.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, names)
