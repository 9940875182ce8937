"""`squall prepare` that is killed in the middle leaves the former feed, and the next run completes it exactly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from squall.pipeline.feed.manifest import load_manifest

ROOT = Path(__file__).parents[2]
LINES = 200_000


def prepare(source: Path, feed: Path) -> subprocess.Popen[str]:
    arguments = ["prepare", str(source), "--out", str(feed), "--partitions", "2"]
    return subprocess.Popen([sys.executable, "-m", "squall", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def prepare_all(source: Path, feed: Path) -> None:
    with prepare(source, feed) as process:
        process.communicate(timeout=100)
    assert process.returncode == 0


def texts(feed: Path) -> Counter[str]:
    files = [str(feed / file.name) for part in load_manifest(feed).partitions for file in part.files]
    return Counter(parquet.read_table(files).column("text").to_pylist())


def write(source: Path, name: str) -> Counter[str]:
    lines = [f"{name} {number}" for number in range(LINES)]
    (source / name).write_text("\n".join(lines))
    return Counter(lines)


@pytest.mark.slow
@pytest.mark.timeout(400)  # it starts Java four times
def test_a_killed_increment_is_as_if_it_had_never_been(source: Path, tmp_path: Path) -> None:
    source.mkdir(exist_ok=True)
    feed = tmp_path / "feed"
    former = write(source, "a")
    wanted = Counter(former)
    prepare_all(source, feed)
    for name in ("b", "c"):
        wanted += write(source, name)
        with prepare(source, feed) as process:
            assert process.stderr is not None
            assert any("reading" in line for line in process.stderr)
            os.kill(process.pid, signal.SIGKILL)
        assert texts(feed) == former
    prepare_all(source, feed)
    assert texts(feed) == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["feed", "in put"]
