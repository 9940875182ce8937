"""What a line is: every byte of a file comes out once, as text or as a refused line."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.pipeline.read.input_files import InputFile, find_files
from squall.pipeline.read.lines import (
    MAX_LINE_BYTES,
    MAX_RAW_BYTES,
    REASON_NOT_UTF8,
    REASON_NUL,
    REASON_TOO_LONG,
    Line,
    read_chunks,
    without_open_line,
)
from tests.unit.lines_of import read_file

PACK = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda data: bytes(pyarrow.Codec("zstd").compress(data))}


def lines_of(path: Path, data: bytes) -> list[Line]:
    path.write_bytes(data)
    return list(read_file(InputFile(path.name, str(path), len(data))))


RAW = [b"\n", b"\r", b"a", b"\0", b"\xff", b"\xed\xa0\x80", b"\xe2\x82", "\u2028".encode()]


@given(data=st.binary(max_size=200) | st.lists(st.sampled_from(RAW)).map(b"".join))
def test_every_line_comes_out_once(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    found = lines_of(tmp_path_factory.getbasetemp() / "any", data)
    expected = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert [line.line_no for line in found] == list(range(1, len(expected) + 1))
    for line, raw in zip(found, expected, strict=True):
        content = line.raw if line.text is None else line.text.encode()
        assert content in (raw, raw.removesuffix(b"\r"))
        if line.text is None:
            assert line.reason == (REASON_NUL if b"\0" in raw else REASON_NOT_UTF8)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("excess", [-1, 0, 1, 2, 3 * MAX_LINE_BYTES])
def test_the_limit_counts_the_line_alone(tmp_path: Path, ending: bytes, bom: bytes, excess: int) -> None:
    raw = b"x" * (MAX_LINE_BYTES + excess)
    found = lines_of(tmp_path / "file", bom + raw + ending + (b"after" if ending else b""))
    first = Line(1, raw.decode()) if excess <= 0 else Line(1, None, REASON_TOO_LONG, raw[:MAX_RAW_BYTES])
    assert found == [first, *([Line(2, "after")] if ending else [])]


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_compressed_text_is_read_and_what_is_no_such_file_is_told(tmp_path: Path, ending: str) -> None:
    lines = [f"line {number}" for number in range(200_000)]
    path = tmp_path / f"a.log.{ending.upper()}"
    # Files may be joined as they are: another member follows the first.
    path.write_bytes(PACK[ending]("\n".join(lines).encode()) + PACK[ending](b"\nlast"))
    (tmp_path / f"c.log.{ending}").write_bytes(b"no such thing")
    good, bad = find_files(tmp_path).files
    assert bad.problem.startswith("cannot be read: ")
    cut = lines_of(tmp_path / f"cut.{ending}", PACK[ending](os.urandom(1 << 20).hex().encode())[:-100])[-1]
    assert (cut.line_no, str(cut.reason)[:14], "None" in str(cut.reason)) == (0, "cannot be read", False)
    sums: list[str] = []
    assert [text for chunk in read_chunks(good, sums.append) for text in chunk.texts] == [*lines, "last"]
    assert sums == [hashlib.sha256(path.read_bytes()).hexdigest()]


@pytest.mark.parametrize(
    ("data", "start", "size"), [
        (b"a\nb", 0, 2), (b"a\n", 0, 2), (b"a\nb", 2, None), (b"a\nb\nc", 2, 4),
        (b"a\n" + b"x" * 3 * MAX_LINE_BYTES, 0, 2),
    ],
)
def test_a_line_without_its_end_waits(tmp_path: Path, data: bytes, start: int, size: int | None) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    ended = without_open_line(InputFile("log", str(path), len(data), start_bytes=start))
    assert (ended and ended.size_bytes) == size
