"""A quote of CSV that nothing closes is told with its line, and no file is refused that is well quoted."""

from __future__ import annotations

import csv
import gzip
import io
import random
from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.corpus import InputFile
from squall.pipeline.csv_quotes import check_quotes, quoting


def said(tmp_path: Path, data: bytes, name: str = "a.csv", **options: str) -> str:
    path = tmp_path / name
    path.write_bytes(data)
    how = quoting(options)
    if how is None:
        return "not looked at"
    try:
        check_quotes(InputFile(name, str(path), len(data)), how)
    except UsageError as error:
        return str(error).removeprefix(f"{path} has ").removeprefix("a quote in ").partition(";")[0]
    return ""


NOT_AT_END = "is not at the end of a value"


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b'id,a\n1,"x\n2,y\n3,z\n', "line 2 that nothing closes"),
        (b'id,a\n1,"x\n2,y\n3,"z"\n', f"line 2 that is not closed: the next one, in line 4, {NOT_AT_END}"),
        (b'a\n"x""\n', "line 2 that nothing closes"),
        (b'a\n"x\n"', ""),
        (b'a,b\n"x\ny" ,"z ""q"\n"\n', "line 4 that nothing closes"),
        (b'a,b\n5" pipe,x\n"""x\n""",y"\n', ""),
        (b'a,b\r\n"x\r\ny","p\r\nq"\r\n', ""),
        (b'a\r"x\ry"\rz\r"', "line 1 that nothing closes"),
        (b"", ""),
    ],
)
def test_the_line_of_an_open_quote_is_told(tmp_path: Path, data: bytes, wanted: str) -> None:
    assert said(tmp_path, data) == wanted
    assert said(tmp_path, gzip.compress(data), "a.csv.gz") == wanted


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"a,b\n1,x\r\n2,y\n", "a line 2 that ends in \\r\\n, and others end in \\n"),
        (b"a\r\n1\n2\r\n", "a line 2 that ends in \\n, and others end in \\r\\n"),
        (b'a\r\n"1\n2"\r\n3', ""),
        (b'a\n"1\r\n2"\n3\r', ""),
    ],
)
def test_lines_that_end_in_two_ways_are_told(tmp_path: Path, data: bytes, wanted: str) -> None:
    assert said(tmp_path, data) == wanted


def test_options_say_what_a_quote_is(tmp_path: Path) -> None:
    open_quote = "line 1 that nothing closes"
    assert said(tmp_path, b"a;'x\n", sep=";", quote="'") == open_quote
    assert said(tmp_path, b'a\t"x\n', sep="\\t") == open_quote
    assert said(tmp_path, b'a; "x\n', sep=";", ignoreLeadingWhiteSpace="true") == open_quote
    assert said(tmp_path, b'a; "x\n', sep=";") == ""
    assert said(tmp_path, b'a,"x \\" y\nz \\"\n', escape="\\") == open_quote
    assert said(tmp_path, b'a,"x \\" y\nz"\n', escape="\\") == ""
    assert said(tmp_path, b'a,"x\ny"z\n', unescapedQuoteHandling="SKIP_VALUE") == ""
    assert said(tmp_path, b'#,"x\na\n', comment="#") == ""
    for options in ({"multiLine": "false"}, {"quote": ""}, {"encoding": "UTF-16"}):
        assert said(tmp_path, b'a,"x\n', **options) == "not looked at"


def test_what_a_program_has_quoted_is_never_refused(tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=randomness.choice(["\n", "\r\n"]))
    for _ in range(2000):
        texts = ("".join(randomness.choices('ab", \n\r', k=randomness.randrange(6))) for _ in range(3))
        writer.writerow(["0", *texts])
    assert said(tmp_path, out.getvalue().encode()) == ""
