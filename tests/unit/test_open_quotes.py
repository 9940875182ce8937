"""CSV with a quote that nothing closes is refused before Spark makes one value of the rest; any other file is not."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.read.input_files import find_files
from squall.pipeline.read.input_frame import check_quotes

PLAIN = ("a", "5\" disk", "", "x y", "\N{SNOWMAN}")
IN_QUOTES = ('"a,b"', '"two\nlines"', '"a ""quote"""', '""', '"5"" disk"')


def table(rng: random.Random, rows: int) -> list[str]:
    return [f"{number},{rng.choice(PLAIN)},{rng.choice(IN_QUOTES)}" for number in range(rows)]


def refused(path: Path, **options: str) -> bool:
    try:
        check_quotes(find_files(path, is_text=False).files, options)
    except UsageError as error:
        return str(error).startswith(f"{path} has a quote that nothing closes: ")
    return False


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_only_an_open_quote_is_refused(tmp_path: Path, name: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        rows = table(rng, rng.randint(1, 40))
        at, path = rng.randrange(len(rows)), tmp_path / name
        write = gzip.compress if name.endswith(".gz") else bytes
        path.write_bytes(write("\n".join(rows).encode()))
        assert not refused(path)
        # No quote may follow that would close it.
        rows[at:] = [f'{at},a,"never closed', *(f"{number},a,b" for number in range(at + 1, len(rows)))]
        path.write_bytes(write("\n".join(rows).encode()))
        # A value such as 5" makes the number of quotes even again: then Spark's reader alone would tell.
        odd = sum(row.count('"') for row in rows) % 2 == 1
        assert refused(path) is odd
        assert not refused(path, quote="")


@pytest.mark.parametrize(
    ("text", "are_lines"),
    [
        ("a,b\n1,2\n", True), ('a\r\n"x, y"\r\n', True), ('a\n"x\ny"\n', False), ("a\nx\ry\n", False),
        ('a\n5" and 6" disks\n', True), ('a\n5" disk\n', False),
    ],
)
def test_files_are_cut_into_pieces_only_where_each_line_is_a_record(tmp_path: Path, text: str, are_lines: bool) -> None:
    (tmp_path / "x.csv").write_bytes(text.encode())
    files = find_files(tmp_path / "x.csv", is_text=False).files
    assert check_quotes(files, {}) is are_lines
    assert not check_quotes(files, {"multiLine": "true"})
