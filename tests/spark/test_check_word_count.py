"""examples/check_word_count.py passes what follows from the feed, and names every kind of difference from it."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
import pytest

from squall.pipeline.prepare import prepare
from tests.process.cli import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = {
    "a.txt": "self self other\n\n  naïve\u2028words here\u00a0too \x1c and\x85more \n" + "filler line\n" * 12,
    "c.txt": "".join(f"word{index} self\n" for index in range(40)),
}
Rows = list[dict[str, Any]]
Check = Callable[[], tuple[bool, list[str]]]


@pytest.fixture
def result(spark: SparkSession, source: Path, tmp_path: Path) -> tuple[Rows, Rows]:
    """The rows of a right result, to be spoilt."""
    for name, text in TEXTS.items():
        (source / name).write_bytes(text.encode())
    prepare(source, tmp_path / "feed", partitions=3)
    counts, ledger = Counter[str](), []
    for row in parquet.read_table(tmp_path / "feed" / "rows").to_pylist():
        counts.update(row["text"].split())
        ledger.append({"partition": row["partition"], "offset": row["offset"], "words": len(row["text"].split())})
    return ledger, [{"word": word, "count": count} for word, count in counts.items()]


@pytest.fixture
def check(
    spark: SparkSession, result: tuple[Rows, Rows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Write the rows, and check them: whether they are right, and what is printed."""
    spec = importlib.util.spec_from_file_location("check_word_count", ROOT / "examples/check_word_count.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run() -> tuple[bool, list[str]]:
        for kind, rows in zip(("ledger", "counts"), result, strict=True):
            (tmp_path / "result" / kind).mkdir(parents=True)
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            # The last row was torn by the death of its writer.
            (tmp_path / "result" / kind / "part-0.jsonl").write_text(lines + '{"wor')
        is_right = module.check(spark, tmp_path / "feed", tmp_path / "result")
        return is_right, capsys.readouterr().out.splitlines()

    return run


def test_replays_and_older_totals_are_no_difference(result: tuple[Rows, Rows], check: Check) -> None:
    ledger, counts = result
    words = len(counts)
    ledger += [*ledger[:5], ledger[0]]
    counts += [{"word": row["word"], "count": 1} for row in counts]
    is_right, said = check()
    assert is_right, said
    assert [line.split() for line in said[1:3]] == [
        ["lines", "55", "55", "0", "0", "0", "6"], ["words", str(words), str(words), "0", "0", "0", "0"],
    ]
    assert said[3:] == ["every line and every count is right"]


def test_every_difference_counts_once_and_is_named(result: tuple[Rows, Rows], check: Check) -> None:
    ledger, counts = result
    lost, wrong, *_ = (row for row in ledger if row["words"] == 2)
    ledger.remove(lost)
    ledger += [{**wrong, "words": 5}, {"partition": 7, "offset": 0, "words": 1}]
    gone, different = (next(row for row in counts if row["word"] == word) for word in ("other", "self"))
    counts.remove(gone)
    different["count"] -= 1
    counts.append({"word": "ghost", "count": 3})
    is_right, said = check()
    assert not is_right
    assert [line.split()[3:6] for line in said if line.startswith(("lines", "words"))] == [["1", "1", "1"]] * 2
    assert {line for line in said if ": feed " in line} == {
        f"missing: partition {lost['partition']}, offset {lost['offset']}: feed 2, result None",
        f"different: partition {wrong['partition']}, offset {wrong['offset']}: feed 2, result 5",
        "invented: partition 7, offset 0: feed None, result 1",
        "missing: word 'other': feed 1, result None",
        "invented: word 'ghost': feed None, result 3",
        "different: word 'self': feed 42, result 41",
    }
    assert said[-1] == "the result is wrong"
