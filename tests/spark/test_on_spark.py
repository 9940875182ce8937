"""`squall run --on spark`: the same topologies, on the session of this folder, with the answers of our own engine."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from squall import Config
from squall.cli.commands import main
from squall.cli.given.loader import load_topology
from squall.engine.report.run_report import RunReport
from squall.pipeline.underneath.checkpoint import Checkpoint
from squall.pipeline.underneath.control import Control
from squall.pipeline.underneath.runner import SparkRun, Tell
from squall.scheduler.common import blob
from tests.spark import counting
from tests.spark.counting import EXPECTED, counted
from tests.spark.kinds import NUMBERS, POISON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNTING = Path(__file__).parent / "counting.py"
# A batch is a job with several stages, and takes seconds where the machine has much else to do.
SLOW_BATCHES = pytest.mark.timeout(400)


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    """What `squall run` prints on stdout and stderr."""
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    told = capsys.readouterr()
    assert ended.value.code == code, told.err
    return told.out, told.err


def printed(err: str) -> list[str]:
    """What components printed on Spark."""
    return without_tasks(line.partition(" | ")[2] for line in err.splitlines() if "] | " in line)


def without_tasks(lines: Iterable[str]) -> list[str]:
    """In order, and without the task that a shuffle began with."""
    return sorted(re.sub(r"from (\w+):\d+", r"from \1", line) for line in lines)


@pytest.mark.parametrize("example", ["hello_world.py", "names.py", "groupings.py"])
def test_an_example_prints_and_counts_the_same_on_both_engines(
    example: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(EXAMPLES / example)
    local, _ = run(capsys, path, "--local", "--json")
    said, brace, document = local.partition("{\n")
    out, err = run(capsys, path, "--on", "spark", "--accept-approx", "--json", "--quiet")
    ours, theirs = json.loads(brace + document), json.loads(out)
    assert printed(err) == without_tasks(said.splitlines())
    for name, component in ours["components"].items():
        found = theirs["components"][name]
        assert {key: found[key] for key in ("executed", "emitted", "acked", "failed")} == {
            key: component[key] for key in ("executed", "emitted", "acked", "failed")
        }, name
    for key in ("emitted", "acked", "failed", "replayed", "dead_letters", "pending", "drained"):
        assert theirs[key] == ours[key], key


def result(out: Path) -> tuple[dict[str, int], set[tuple[int, int]]]:
    """The counts by word, and the lines of the ledger."""
    counts: dict[str, int] = {}
    for row in rows(out / "counts"):
        counts[row["word"]] = max(counts.get(row["word"], 0), row["count"])
    return counts, {(row["partition"], row["offset"]) for row in rows(out / "ledger")}


def rows(folder: Path) -> Iterable[dict[str, Any]]:
    for path in sorted(folder.iterdir()):
        yield from map(json.loads, path.read_text().splitlines())


@SLOW_BATCHES
def test_word_count_gives_the_same_result_on_both_engines(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("".join(f"w{number % 91} und w{number % 7}\n" for number in range(9_000)))
    example = str(EXAMPLES / "word_count.py")
    run(capsys, example, "--local", "--json", "--", "--out", str(tmp_path / "ours"), str(text))
    out, err = run(
        capsys, example, "--on", "spark", "--accept-approx", "--json", "--quiet", "--batch-rows", "4000", "--",
        "--out", str(tmp_path / "theirs"), str(text),
    )
    assert result(tmp_path / "theirs") == result(tmp_path / "ours")
    report = json.loads(out)
    assert (report["emitted"], report["acked"], report["pending"]) == (9_000, 9_000, 0), err


def test_every_kind_of_component_runs_and_a_poison_is_a_dead_letter(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kinds, checkpoint = str(Path(__file__).parent / "kinds.py"), tmp_path / "checkpoint"
    out, err = run(
        capsys, kinds, "--on", "spark", "--accept-approx", "--json", "--quiet", "--checkpoint", str(checkpoint),
        "--batch-rows", "700", "--", str(tmp_path / "spark"), code=3,
    )
    report = json.loads(out)
    assert (report["acked"], report["dead_letters"], report["pending"]) == (NUMBERS - 1, 1, 0), err
    assert f"dead letter of numbers: message {POISON} after 2 attempts: exception in refuse: ValueError" in err
    [letter] = map(json.loads, (checkpoint / "dead-letters.jsonl").read_text().splitlines())
    assert (letter["message_id"], letter["component"]) == (str(POISON), "refuse")
    run(capsys, kinds, "--local", "--json", "--set", "on_error=fail", "--set", "max_attempts=2", "--",
        str(tmp_path / "ours"), code=3)
    theirs, ours = (
        pyarrow.parquet.read_table(tmp_path / name, columns=["number", "square", "_message_id"]).to_pylist()
        for name in ("spark", "ours")
    )
    # A batch that is undone has no effect but in files: there, rows come again, and have the same id.
    assert {tuple(row.values()) for row in theirs} == {tuple(row.values()) for row in ours}
    assert len(ours) == NUMBERS - 1


DYING = """
import os
from squall import BasicBolt, ReplayingSpout, TopologyBuilder

class Numbers(ReplayingSpout):
    outputs = ("number",)

    def read(self):
        for number in range(50):
            yield number, (number,)

class Passes(BasicBolt):
    outputs = ("number",)

    def execute(self, tup, collector):
        collector.emit(tup.values)

class Dies(BasicBolt):
    def prepare(self, conf, context):
        self.index = context.task_index

    def execute(self, tup, collector):
        if self.index == 1:
            os._exit(7)

def topology(args):
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("passes", Passes(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("dies", Dies(), parallelism=3).shuffle_grouping("passes")
    return builder.build()
"""


def test_a_process_that_dies_without_a_word_ends_the_run_in_one_line(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    _, err = run(capsys, str(tmp_path / "dying.py"), "--on", "spark", "--accept-approx", "--quiet", code=1)
    said = "squall: Spark failed: a Python worker died without a message (killed, or out of memory?)"
    assert said in err.splitlines()


class Enough(Exception):
    """Ends a run in the middle."""


@SLOW_BATCHES
def test_a_run_that_ends_in_the_middle_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    loaded = load_topology(str(COUNTING), [str(tmp_path)])
    data = blob.dump(loaded.topology, loaded.script)
    numbers: list[int] = []

    def ends_after(batch: int) -> Callable[[Control], None]:
        def look(control: Control) -> None:
            numbers.append(control.number)
            if control.number == batch:
                raise Enough

        return look

    def go(look: Callable[[Control], None]) -> RunReport:
        with Checkpoint(tmp_path / "checkpoint", loaded.topology, "counting") as checkpoint:
            tell = Tell(lambda who, line: None, lambda line: None, look)
            load = partial(blob.load, data, list(sys.path))
            made = SparkRun(loaded.topology, Config(), "counting", load, checkpoint, tell, batch_rows=5_000)
            return made.run(spark, lambda: False, lambda: False)

    for batch in (0, 2):
        with pytest.raises(Enough):
            go(ends_after(batch))
    report = go(ends_after(-1))
    # Each batch counted once, whatever Spark itself had noted of it.
    assert numbers == list(range(len(numbers)))
    assert counted(tmp_path) == EXPECTED
    assert (report.emitted, report.acked, report.drained) == (counting.NUMBERS, counting.NUMBERS, True)
