"""Finds a quote of CSV that nothing closes, and lines that end in two ways: Spark would take all that follows for one
value, or leave a \\r in values, and say nothing.

Guarantees that a value in quotes that goes on for several lines has its closing quote at its end, or that the lines are
told. Relies on an encoding in which separators and quotes are single bytes. Reads the file once, a line at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from squall.engine.errors import UsageError
from squall.pipeline.corpus import InputFile
from squall.pipeline.opened import opened

#: Bytes of a line that are looked at together.
_LINE_BYTES = 64 << 20
_ENCODINGS = ("utf-8", "iso-8859-1", "us-ascii")
_ESCAPED = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\"": '"', r"\'": "'", r"\\": "\\", r"\u0000": "\0"}
_NO_BREAKS = "--option multiLine=false if no value holds the end of a line"
_CLOSE = f"allowed: a closing quote, --option quote= if quotes mean nothing, or {_NO_BREAKS}"
_ONE_END = f"allowed: one end for all, or {_NO_BREAKS}"


@dataclass(frozen=True)
class Quoting:
    """How values are quoted. `begins` and `ends` match a quote before and after a value."""

    quote: bytes
    escape: bytes
    """Empty if a quote is escaped by another."""
    comment: bytes
    begins: re.Pattern[bytes]
    ends: re.Pattern[bytes]
    follows: re.Pattern[bytes]
    """What comes after a closing quote."""
    is_strict: bool
    """Whether a quote inside a value has to be escaped."""


def quoting(options: Mapping[str, str]) -> Quoting | None:
    """Of a reader with these options, which are all that count; None if no value can hold the end of a line, or quotes
    cannot be told from other bytes."""
    given = {name.casefold(): value for name, value in options.items()}
    quote, encoding = given.get("quote", '"'), given.get("encoding", given.get("charset", "utf-8"))
    is_by_line = given.get("multiline", "true").casefold() != "true" or given.get("linesep", "\n") != "\n"
    if is_by_line or encoding.casefold() not in _ENCODINGS or len(quote.encode()) != 1:
        return None
    escape = given.get("escape", quote)
    separator = re.sub(r"\\u0000|\\.", lambda found: _ESCAPED.get(found[0], found[0]),
                       given.get("sep", given.get("delimiter", ",")))
    mark, between = re.escape(quote.encode()), re.escape(separator.encode())
    if escape == quote:
        body = b"[^%b]*+(?:%b%b[^%b]*+)*+" % (mark, mark, mark, mark)
    else:
        other = re.escape(escape.encode())
        body = b"[^%b%b]*+(?:%b.[^%b%b]*+)*+" % (mark, other, other, mark, other) if escape else b"[^%b]*+" % mark
    blank = b"[ \\t]*+" if given.get("ignoreleadingwhitespace", "").casefold() == "true" else b""
    return Quoting(
        quote.encode(), b"" if escape == quote else escape.encode(), given.get("comment", "").encode(),
        re.compile(b"(?:^|\\r|%b)%b%b" % (between, blank, mark)), re.compile(body + mark, re.DOTALL),
        re.compile(b"[ \\t]*+(?:%b|[\\r\\n]|\\Z)" % between),
        escape == quote and "unescapedquotehandling" not in given,
    )


def check_quotes(file: InputFile, how: Quoting) -> None:
    """UsageError if a quote is not closed, or a line ends in another way than the first. What cannot be read is left
    for Spark to tell."""
    try:
        with opened(file) as (stream, _):
            mistake = _mistake(stream, how)
    except OSError:
        return
    if mistake:
        raise UsageError(f"{file.location} has {mistake}")


def _mistake(stream: BinaryIO, how: Quoting) -> str | None:
    opened_at = line_no = 0
    first_end = b""
    while line := stream.readline(_LINE_BYTES):
        line_no += 1
        if opened_at:
            end = how.ends.match(line) if how.quote in line else None
            if end is None:
                continue
            if how.is_strict and not how.follows.match(line, end.end()):
                after = f"the next one, in line {line_no}, is not at the end of a value"
                return f"a quote in line {opened_at} that is not closed: {after}; {_CLOSE}"
            is_open = _is_open(line, end.end(), how)
        else:
            is_open = not _is_closed(line, how) and _is_open(line, 0, how)
        opened_at = line_no if is_open else 0
        if not is_open and (end_bytes := _end(line)):
            first_end = first_end or end_bytes
            if end_bytes != first_end:
                kinds = "\\r\\n", "\\n"
                this, others = kinds if end_bytes == b"\r\n" else kinds[::-1]
                return f"a line {line_no} that ends in {this}, and others end in {others}; {_ONE_END}"
    return f"a quote in line {opened_at} that nothing closes; {_CLOSE}" if opened_at else None


def _is_open(line: bytes, at: int, how: Quoting) -> bool:
    """Whether a value goes on in the next line. `at`: a place that is in no value in quotes."""
    while begin := how.begins.search(line, at):
        end = how.ends.match(line, begin.end())
        if end is None:
            return True
        at = end.end()
    return False


def _end(line: bytes) -> bytes:
    return b"\r\n" if line.endswith(b"\r\n") else line[-1:] if line.endswith(b"\n") else b""


def _is_closed(line: bytes, how: Quoting) -> bool:
    """Whether no value of a line goes on in the next: what can be told of most lines at once."""
    if how.comment and line.startswith(how.comment):
        return True
    return line.count(how.quote) % 2 == 0 and not (how.escape and how.escape in line)
