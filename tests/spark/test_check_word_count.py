"""examples/check_word_count.py passes what follows from the feed, and names every kind of difference from it."""

from __future__ import annotations

import json
import runpy
from collections import Counter
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


def test_replays_are_no_difference_and_all_others_are_named(
    spark: SparkSession, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in TEXTS.items():
        (source / name).write_bytes(text.encode())
    prepare(source, tmp_path / "feed", partitions=3)
    words, ledger = Counter[str](), []
    for row in parquet.read_table(tmp_path / "feed" / "rows").to_pylist():
        words.update(row["text"].split())
        ledger.append({"partition": row["partition"], "offset": row["offset"], "words": len(row["text"].split())})
    counts = [{"word": word, "count": count} for word, count in words.items()]

    def check(ledger: list[dict[str, Any]], counts: list[dict[str, Any]]) -> tuple[bool, list[str]]:
        """Whether they are right, and what is printed."""
        for kind, rows in (("ledger", ledger), ("counts", counts)):
            file = tmp_path / "result" / kind / "part-0.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            # The last row was torn by the death of its writer.
            file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"wor')
        example = runpy.run_path(str(ROOT / "examples/check_word_count.py"))
        is_right = example["check"](spark, tmp_path / "feed", tmp_path / "result")
        return is_right, capsys.readouterr().out.splitlines()

    older = [{"word": word, "count": 1} for word in words]
    is_right, said = check([*ledger, *ledger[:5], ledger[0]], counts + older)
    assert is_right, said
    assert said[1].split() == ["lines", "55", "55", "0", "0", "0", "6"]

    lost, wrong, *_ = (row for row in ledger if row["words"] == 2)
    ledger.remove(lost)
    ledger += [{**wrong, "words": 5}, {"partition": 7, "offset": 0, "words": 1}]
    spoilt = {**words, "self": words["self"] - 1, "ghost": 3}
    del spoilt["other"]
    is_right, said = check(ledger, [{"word": word, "count": count} for word, count in spoilt.items()])
    assert not is_right
    assert {line for line in said if ": feed " in line} == {
        f"missing: partition {lost['partition']}, offset {lost['offset']}: feed 2, result None",
        f"different: partition {wrong['partition']}, offset {wrong['offset']}: feed 2, result 5",
        "invented: partition 7, offset 0: feed None, result 1",
        "missing: word 'other': feed 1, result None",
        "invented: word 'ghost': feed None, result 3",
        "different: word 'self': feed 42, result 41",
    }
