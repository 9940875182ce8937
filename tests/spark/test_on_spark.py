"""`squall run --on spark`: the same topologies, on the session of this folder, with the answers of our own engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from squall.cli.commands import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


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


@pytest.mark.parametrize("example", ["names.py", "groupings.py"])
def test_an_example_prints_and_counts_the_same_on_both_engines(
    example: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(EXAMPLES / example)
    local, _ = run(capsys, path, "--local", "--json")
    said, brace, document = local.partition("{\n")
    out, err = run(capsys, path, "--on", "spark", "--accept-approx", "--json", "--quiet", "--batch-rows", "40")
    ours, theirs = json.loads(brace + document), json.loads(out)
    assert printed(err) == without_tasks(said.splitlines())
    for name, component in ours["components"].items():
        found = theirs["components"][name]
        assert {key: found[key] for key in ("executed", "emitted", "acked", "failed")} == {
            key: component[key] for key in ("executed", "emitted", "acked", "failed")
        }, name
    for key in ("emitted", "acked", "failed", "replayed", "dead_letters", "pending", "drained"):
        assert theirs[key] == ours[key], key
