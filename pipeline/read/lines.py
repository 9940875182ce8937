"""Splits files of text into lines, by bytes: the only code that decides where a line ends.

Guarantees that every line of a file is given once, either as text or as a refused line with the reason. A line ends at
\\n (or \\r\\n) only: U+2028, U+0085, \\x1c and a lone \\r are ordinary characters of a line. Memory is bounded by
`MAX_LINE_BYTES`, whatever the file. Relies on nothing of Spark: it runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO, NamedTuple

from squall.pipeline.read.input_files import InputFile, is_compressed, opened

#: Bytes of a line; longer ones are quarantined: such a tuple is a blob, not a line, and would hold up a whole batch.
MAX_LINE_BYTES = 1 << 20
#: Bytes stored of a quarantined line: enough to recognise it, few enough for a table of them.
MAX_RAW_BYTES = 64 << 10
REASON_NUL = "NUL byte"
REASON_NOT_UTF8 = "not UTF-8"
REASON_TOO_LONG = "longer than 1 MiB"
_BOM = b"\xef\xbb\xbf"
#: Bytes read at a time: what is longer than a line may be is looked at line by line.
_BLOCK_BYTES = MAX_LINE_BYTES // 2


class Line(NamedTuple):
    """One line of a file: `text` without its terminator, or `reason` and the first bytes, `raw`, if it was refused.

    line_no counts from 1; 0 stands for the file as a whole.
    """

    line_no: int
    text: str | None
    reason: str | None = None
    raw: bytes | None = None


class Chunk(NamedTuple):
    """Neighbouring lines: the texts, the number of each, and the lines among them that were refused."""

    line_nos: Sequence[int]
    texts: list[str]
    refused: list[Line]


def read_chunks(file: InputFile, note: Callable[[str], None] = lambda sha256: None) -> Iterator[Chunk]:
    """Read all lines of one file in order, many at a time. An unreadable file gives a line 0 with the reason, not an
    exception. `note` gets the checksum of the file."""
    if file.problem:
        yield Chunk((), [], [Line(0, None, file.problem, b"")])
        return
    line_no = file.start_line
    try:
        with opened(file) as (stream, digested):
            for block in _blocks(stream, begins=not file.start_bytes):
                lines = block.split(b"\n")
                # What follows the last end of line is a line only if there is something.
                texts = _texts(block) if len(block) <= MAX_LINE_BYTES else None
                count = len(lines) - (not lines[-1])
                if texts is None:
                    yield _judged(line_no + 1, lines[:count], block.endswith(b"\n"))
                else:
                    yield Chunk(range(line_no + 1, line_no + count + 1), texts[:count], [])
                line_no += count
            digested.check_end()
            note(digested.sha256)
    except OSError as error:
        after = f" after line {line_no}" if line_no else ""
        yield Chunk((), [], [Line(0, None, f"cannot be read{after}: {error.strerror or error}", b"")])


def last_line(chunk: Chunk, before: int) -> int:
    """The number of the last line so far, be it text or not."""
    return max(before, *chunk.line_nos[-1:], *(line.line_no for line in chunk.refused[-1:]))


def _texts(block: bytes) -> list[str] | None:
    """The lines of a block without their ends; None if there is one that is no text."""
    if b"\0" in block:
        return None
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text.replace("\r\n", "\n").split("\n")


def _judged(line_no: int, lines: list[bytes], is_ended: bool) -> Chunk:
    """The lines of a block in which not all are text. `is_ended`: the last one is not the last of the file."""
    judged = []
    for index, line in enumerate(lines):
        raw = line.removesuffix(b"\r") if is_ended or index < len(lines) - 1 else line
        judged.append(_judge(line_no + index, raw))
    good = [line for line in judged if line.text is not None]
    refused = [line for line in judged if line.text is None]
    return Chunk([line.line_no for line in good], [line.text or "" for line in good], refused)


def _judge(line_no: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE_BYTES:
        reason = REASON_TOO_LONG
    elif b"\0" in raw:
        reason = REASON_NUL
    else:
        try:
            return Line(line_no, raw.decode("utf-8"))
        except UnicodeDecodeError:
            reason = REASON_NOT_UTF8
    return Line(line_no, None, reason, raw[:MAX_RAW_BYTES])


def _blocks(stream: BinaryIO, *, begins: bool) -> Iterator[bytes]:
    """Pieces of a file that end at the end of a line. One that is too long is cut, at more than its limit. `begins`:
    whether the first is the begin of the file."""
    is_first = begins
    while block := stream.read(_BLOCK_BYTES):
        if is_first:
            block = block.removeprefix(_BOM)
            is_first = False
        if not block.endswith(b"\n"):
            block += (rest := stream.readline(MAX_LINE_BYTES + 2))
            yield block
            while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE_BYTES + 2)
        else:
            yield block


def without_open_line(file: InputFile) -> InputFile | None:
    """The file up to the end of its last line that has one; None if there is no such line. For files that grow."""
    if file.problem or is_compressed(file.location):
        return file
    try:
        with open(file.location, "rb") as stream:
            end = file.size_bytes
            while end > file.start_bytes:
                begin = max(file.start_bytes, end - _BLOCK_BYTES)
                stream.seek(begin)
                if found := stream.read(end - begin).rfind(b"\n") + 1:
                    return replace(file, size_bytes=begin + found)
                end = begin
    except OSError as error:
        return replace(file, problem=f"cannot be read: {error.strerror}")
    return None
