"""The commands of docs/verify.md compare what they say, and the first ones of docs/spark.md go together."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from squall.cli.data.verify import verify_command
from squall.pipeline.feed.manifest import load_manifest
from squall.pipeline.prepare import prepare
from tests.docs.pages import Page
from tests.spark.pages import run_block

if TYPE_CHECKING:
    from pyspark.sql import SparkSession



def write_lines(path: Path, *rows: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_commands(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("one two\ntwo\n")
    prepare(tmp_path / "text.txt", tmp_path / "build/feed", partitions=1)
    lines = [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]
    counts = [{"word": "one", "count": 1}, {"word": "two", "count": 1}, {"word": "two", "count": 2}]
    write_lines(tmp_path / "found.jsonl", lines[0], *lines)
    write_lines(tmp_path / "first/counts/a.jsonl", *counts)
    write_lines(tmp_path / "second/counts/b.jsonl", *counts[::-1])
    (tmp_path / "expected.csv").write_text("url,day,hits,p99_ms\n/,2026-11-22,3,10.0\n")
    (tmp_path / "found").mkdir()
    table = pyarrow.table({"url": ["/"], "day": ["2026-11-22"], "hits": [3.005], "p99_ms": [10.4]})
    parquet.write_table(table, tmp_path / "found/a.parquet")
    commands = [shlex.split(line)[1:] for line in Page("docs/verify.md").commands]
    done = [CliRunner().invoke(verify_command, arguments) for arguments in commands[:1]]
    assert [outcome.exit_code for outcome in done] == [1], done[0].output
    assert "different   url='/', day='2026-11-22': hits '3', not '3.005'; p99_ms '10', not '10.4'" in done[0].stdout
    for arguments in commands[1:]:
        outcome = CliRunner().invoke(verify_command, arguments)
        assert outcome.exit_code == 0, outcome.output


@pytest.mark.nightly
@pytest.mark.timeout(400)  # it prepares the whole standard library
def test_the_first_commands_of_the_page_on_feeds(tmp_path: Path) -> None:
    block, *_ = Page("docs/spark.md").of("")
    assert [line.split()[1] for line in block.splitlines()] == ["prepare", "run", "examples/check_word_count.py"]
    run_block(block, tmp_path)
    assert load_manifest(tmp_path / "build/feed").rows > 100_000
