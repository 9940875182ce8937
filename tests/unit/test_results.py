"""Rows of a result are given out typed, or named with their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.read.files import InputFile
from squall.pipeline.results import BULK_BYTES, find_results, row_batches

pytest.importorskip("pyarrow")


def rows_of(tmp_path: Path, kind: str, data: bytes) -> list[dict[str, Any]]:
    path = tmp_path / kind / "part.jsonl"
    path.parent.mkdir()
    path.write_bytes(data)
    return [row for batch in row_batches(kind, find_results(tmp_path, kind)) for row in batch.to_pylist()]


def test_ledger_rows(tmp_path: Path) -> None:
    data = b'{"partition":1,"offset":2,"words":3}\n {"words": 0, "offset": 9, "partition": 0, "more": []}'
    assert rows_of(tmp_path, "ledger", data) == [
        {"partition": 1, "offset": 2, "words": 3, "problem": None, "torn": None},
        {"partition": 0, "offset": 9, "words": 0, "problem": None, "torn": None},
    ]


def test_count_rows(tmp_path: Path) -> None:
    data = '{"word":"naïve","count":4}\n{"word":"na\\u00efve\\ud83d\\ude00","count":5}\n'.encode()
    assert [(row["word"], row["count"]) for row in rows_of(tmp_path, "counts", data)] == [
        ("naïve", 4),
        ("naïve\U0001f600", 5),
    ]


def test_many_rows_come_in_batches(tmp_path: Path) -> None:
    line = b'{"word":"a","count":1}\n'
    rows = 2 * BULK_BYTES // len(line)
    assert [row["count"] for row in rows_of(tmp_path, "counts", line * rows)] == [1] * rows


def test_a_problem_in_the_middle_of_many_rows_has_its_line(tmp_path: Path) -> None:
    line = b'{"word":"a","count":1}\n'
    before = BULK_BYTES // len(line) + 7
    # Two rows on a line, then a row on two lines: as many rows as lines.
    odd = line.strip() * 2 + b"\n" + line.replace(b",", b",\n")
    rows = rows_of(tmp_path, "counts", line * before + odd + line * before)
    assert [row["count"] for row in rows[:-1]] == [1] * before
    assert rows[-1]["problem"].startswith(f"counts/part.jsonl:{before + 1} is not a row of the counts: ")


@pytest.mark.parametrize("tail", [b"{", b'{"word":"b","count":', b'{"word":"\xc3', b'{"word":"b"', b"\0\0\0"])
def test_a_last_line_without_newline_may_be_torn(tmp_path: Path, tail: bytes) -> None:
    rows = rows_of(tmp_path, "counts", b'{"word":"a","count":1}\n' + tail)
    assert [(row["word"], row["torn"]) for row in rows] == [("a", None), (None, "counts/part.jsonl:2")]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b'{"word":"b"}',
        b'{"word":"b","count":true}',
        b'{"word":"b","count":1.5}',
        b'{"word":"b","count":9223372036854775808}',
        b'{"word":"\\ud800","count":1}',
        b'{"word":"\xff","count":1}',
        b'{"word":"b","cou{"word":"b","count":1}',
    ],
)
def test_any_other_line_is_a_problem_and_ends_the_file(tmp_path: Path, line: bytes) -> None:
    rows = rows_of(tmp_path, "counts", b'{"word":"a","count":1}\n' + line + b'\n{"word":"c","count":1}\n')
    assert [row["word"] for row in rows] == ["a", None]
    assert rows[1]["problem"].startswith("counts/part.jsonl:2 is not a row of the counts: ")
    assert rows[1]["torn"] is None


def test_a_file_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    (batch,) = row_batches("ledger", [InputFile("ledger/x.jsonl", str(tmp_path / "x"), 9)])
    assert batch.to_pylist()[0]["problem"] == "ledger/x.jsonl cannot be read after byte 0: No such file or directory"


def test_files_are_found_by_kind(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    for name in ("b.jsonl", "a.jsonl", "notes.txt"):
        (tmp_path / "ledger" / name).touch()
    assert [file.name for file in find_results(tmp_path, "ledger")] == ["ledger/a.jsonl", "ledger/b.jsonl"]
    with pytest.raises(UsageError, match="it has no folder counts"):
        find_results(tmp_path, "counts")
