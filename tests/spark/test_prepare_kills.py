"""`squall prepare` that is killed in the middle leaves the former feed, and the next run completes it exactly."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest

from squall.pipeline.feed.manifest import load_manifest
from squall.pipeline.prepare import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
LINES = 200_000


def texts(feed: Path) -> Counter[str]:
    files = [str(feed / file.name) for part in load_manifest(feed).partitions for file in part.files]
    return Counter(parquet.read_table(files).column("text").to_pylist())


def write(source: Path, name: str) -> Counter[str]:
    lines = [f"{name} {number}" for number in range(LINES)]
    (source / name).write_text("\n".join(lines))
    return Counter(lines)


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_killed_increment_is_as_if_it_had_never_been(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    former = write(source, "a")
    prepare(source, feed, partitions=2)
    wanted = former + write(source, "b")
    command = [sys.executable, "-m", "squall", "prepare", str(source), "--out", str(feed)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("reading" in line for line in process.stderr)
        process.kill()
    assert texts(feed) == former
    prepare(source, feed)
    assert texts(feed) == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["feed", "in put"]
