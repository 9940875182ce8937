"""Finds and parses the result of a word count: RESULT/ledger/*.jsonl and RESULT/counts/*.jsonl.

Guarantees that every row is either returned with its type or named with its file and line; a row is never guessed or
skipped. Only a last line without a newline may be unparsable: a worker killed in the middle of a write leaves one, and
its successor writes that row elsewhere. Relies on nothing of Spark: files are listed on the driver, and parsed in
pieces in Spark's Python workers. What is added to a file after it was listed is not read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from squall.engine.errors import UsageError
from squall.pipeline.read.files import InputFile

if TYPE_CHECKING:
    import pyarrow

#: Bytes of lines that a Python worker parses and hands to Spark at a time: bounds its memory.
BULK_BYTES = 1 << 19
#: Bytes of a piece of a file: a tenth of a second of work, so that all tasks end at about the same time.
PIECE_BYTES = 4 << 20
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


def pieces_of(files: Iterable[InputFile]) -> list[InputFile]:
    """Cut files into pieces of at most PIECE_BYTES. A line belongs to the piece in which it begins."""
    return [
        replace(file, start_bytes=start, size_bytes=min(start + PIECE_BYTES, file.size_bytes))
        for file in files
        for start in range(0, max(file.size_bytes, 1), PIECE_BYTES)
    ]


def row_batches(kind: str, pieces: Iterable[InputFile]) -> Iterator[pyarrow.RecordBatch]:
    """Read all rows of files, or of pieces, in the columns of SCHEMAS[kind]. Runs in Spark's Python workers."""
    row_type = ROW_TYPES[kind]
    for piece in pieces:
        for rows, problem, torn in read_rows(kind, piece):
            if rows:
                yield _batch(row_type, rows)
            if problem or torn:
                yield _batch(row_type, [None], problem, torn)


def read_rows(kind: str, piece: InputFile) -> Iterator[tuple[list[Any], str | None, str | None]]:
    """Give (rows, None, None) for each bulk of rows; after the first problem, the rest of the piece is not read."""
    row_type, line_no, at = ROW_TYPES[kind], 0, 0
    one, many = msgspec.json.Decoder(row_type), msgspec.json.Decoder(list[row_type])  # type: ignore[valid-type]
    try:
        with open(piece.location, "rb") as stream:
            if piece.start_bytes:
                # What began before is read with the piece before.
                stream.seek(piece.start_bytes - 1)
                stream.readline()
            at = begin = stream.tell()
            while at < piece.size_bytes and (lines := stream.readlines(min(BULK_BYTES, piece.size_bytes - at))):
                at = stream.tell()
                rows, error = _rows(lines, one, many)
                line_no += len(rows)
                if error is None:
                    yield rows, None, None
                    continue
                where, raw = f"{piece.name}:{_lines_before(piece, begin) + line_no + 1}", lines[len(rows)]
                if raw.endswith(b"\n"):
                    yield rows, f"{where} is not a row of the {kind}: {error}: {raw[:SHOWN_BYTES]!r}", None
                    return
                yield rows, None, where
    except OSError as error:
        yield [], f"{piece.name} cannot be read after byte {at}: {error.strerror}", None


def _lines_before(piece: InputFile, end: int) -> int:
    """The lines of a file that end at or before byte `end`."""
    found = 0
    with open(piece.location, "rb") as stream:
        while end > 0 and (data := stream.read(min(BULK_BYTES, end))):
            found += data.count(b"\n")
            end -= len(data)
    return found


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
    types = [pyarrow.string() if name == "word" else pyarrow.int64() for name in names]
    arrays = [pyarrow.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
    nothing = pyarrow.nulls(len(rows), pyarrow.string())
    arrays += [nothing if told is None else pyarrow.array([told] * len(rows)) for told in (problem, torn)]
    return pyarrow.RecordBatch.from_arrays(arrays, [*names, "problem", "torn"])
