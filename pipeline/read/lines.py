"""Splits files of text into lines, by bytes, and finds the line of a record that another reader has read.

Guarantees that every line of a file is given once, either as text or as a refused line with the reason. A line ends at
\\n (or \\r\\n) only: U+2028, U+0085, \\x1c and a lone \\r are ordinary characters of a line. Memory is bounded by
`MAX_LINE_BYTES`, whatever the file. Relies on nothing of Spark: it runs in Spark's Python workers.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import IO, BinaryIO, NamedTuple, cast

from squall.pipeline.read.input_files import InputFile, is_compressed, opened

#: Bytes of a line; longer ones are quarantined: such a tuple is a blob, not a line, and would hold up a whole batch.
MAX_LINE_BYTES = 1 << 20
#: Bytes stored of a quarantined line: enough to recognise it, few enough for a table of them.
MAX_RAW_BYTES = 64 << 10
REASON_NUL = "NUL byte"
REASON_NOT_UTF8 = "not UTF-8"
REASON_TOO_LONG = "longer than 1 MiB"
_BOM = b"\xef\xbb\xbf"
_REPLACEMENT = "\ufffd"
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


class LineFinder:
    """Finds on which lines the records are that a reader refused and did not number: in one more pass over a part of a
    file, and only if there is such a record. Wants them in the order of the file."""

    def __init__(self) -> None:
        self._part: tuple[str, int] | None = None
        self._content: mmap.mmap | None = None
        """None if a record was not found: what the reader gave is not as it is in the file."""
        self._at = self._counted = self._lines = 0

    def line_of(self, location: str, begin: int, text: str, *, is_record: bool) -> int:
        """The number of the next line that begins with a text which is all of a record, or that holds it. What was not
        UTF-8 is replaced in the text. 0 if there is none. `begin`: where Spark's part of the file begins."""
        if self._part != (location, begin):
            self._begin(location, begin)
        parts = re.split("\ufffd+", text[:MAX_RAW_BYTES])
        pattern = b"[\x80-\xff]+".join(re.escape(part.encode()) for part in parts).replace(b"\\\n", b"\r?\n")
        if is_record:
            pattern = b"^(?:" + _BOM + b")?" + pattern + (b"\r?$" if len(text) <= MAX_RAW_BYTES else b"")
        for found in re.compile(pattern, re.MULTILINE).finditer(self._content or b"", self._at):
            if len(parts) == 1 or _REPLACEMENT in found[0].decode(errors="replace"):
                return self._pass(found.start(), found.end())
        self._content = None
        return 0

    def _begin(self, location: str, begin: int) -> None:
        with contextlib.ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(open(location, "rb"))
            if is_compressed(location):
                stream, _ = stack.enter_context(opened(InputFile("", location, os.stat(location).st_size)))
                file = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(stream, file)
                file.flush()
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._part = location, begin
        # A line that begins with a part is the last of the part before.
        self._at, self._counted, self._lines = begin + (begin > 0), 0, 1

    def _pass(self, start: int, end: int) -> int:
        content = cast("mmap.mmap", self._content)
        for at in range(self._counted, start, _BLOCK_BYTES):
            self._lines += content[at : min(at + _BLOCK_BYTES, start)].count(b"\n")
        self._counted = start
        self._at = content.find(b"\n", end) % (len(content) + 1)
        return self._lines


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
