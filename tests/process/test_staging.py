"""A feed is replaced as a whole or not at all, whatever dies when; nothing that is no feed is touched."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.feed.manifest import Manifest, PartFile, Partition, load_manifest
from squall.pipeline.feed.staging import clear_orphans, siblings, staged

ROOT = Path(__file__).parents[2]


def fill(path: Path, text: str) -> None:
    """A feed of a file, whose name no other feed gives."""
    name = f"rows/00001-0000-{secrets.token_hex(4)}.parquet"
    (path / "rows").mkdir()
    (path / name).write_text(text)
    partition = Partition(0, 1, (PartFile(name, 1),))
    (path / "_feed.json").write_text(json.dumps(Manifest("", (partition,)).to_dict()))


def make(target: Path, text: str, overwrite: bool = False) -> None:
    with staged(target, overwrite) as staging:
        fill(staging, text)


def text_of(target: Path) -> str:
    """What the manifest names; there is nothing else."""
    (name,) = load_manifest(target).file_names
    assert [path.name for path in (target / "rows").iterdir()] == [Path(name).name]
    return (target / name).read_text()


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


CHILD = """
import os, sys
from pathlib import Path
from squall.pipeline.feed.staging import staged
with staged(Path(sys.argv[1]), True) as staging:
    (staging / "rows").mkdir()
    print(staging.name, flush=True)
    sys.stdin.read()
"""


@contextmanager
def writer(target: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that is half through making `target`, and the name of its staging directory."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(target)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        try:
            yield process, name
        finally:
            process.kill()


def test_a_feed_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "feed"
    with staged(target, overwrite=False) as staging:
        fill(staging, "text")
        assert not target.exists()
    assert text_of(target) == "text"
    assert names(target.parent) == ["feed"]


def test_a_killed_run_leaves_the_old_feed_and_the_next_one_clears_up(tmp_path: Path) -> None:
    target = tmp_path / "feed"
    make(target, "old")
    with writer(target) as (process, name):
        process.kill()
        process.wait()
        assert process.returncode == -signal.SIGKILL
    assert text_of(target) == "old"
    assert names(tmp_path) == ["feed", name]
    make(target, "new", overwrite=True)
    assert text_of(target) == "new"
    assert names(tmp_path) == ["feed"]


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "feed"
    with writer(target) as (_, name), pytest.raises(UsageError, match=rf"is in use: another .* \({name}\)"):
        make(target, "new")
    make(target, "new")
    assert names(tmp_path) == ["feed"]


def make_while_something_appears(target: Path) -> None:
    with staged(target, overwrite=True) as staging:
        fill(staging, "text")
        target.mkdir()
        (target / "precious").touch()


def test_what_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "feed"
    with pytest.raises(UsageError, match="holds something other than a feed"):
        make_while_something_appears(target)
    assert names(target) == ["precious"]
    assert names(tmp_path) == ["feed"]


def test_what_is_no_feed_is_never_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "rows").touch()
    with pytest.raises(UsageError, match=r"holds something other than a feed \(no _feed\.json\)"):
        make(other, "", overwrite=True)
    target = tmp_path / "feed"
    make(target, "text")
    (target / "notes.txt").touch()
    make(target, "", overwrite=True)
    assert "notes.txt" in names(target)


def test_directories_of_other_people_beside_a_feed_are_left_alone(tmp_path: Path) -> None:
    for name in ("feed.old-2024", "feed.tmp-1", "feed.old-prepare-x", "feed.tmp-prepare-5", "another.tmp-prepare-5"):
        (tmp_path / name).mkdir()
    (tmp_path / "feed.tmp-prepare-5" / "precious").touch()
    (tmp_path / "feed.tmp-prepare-6").touch()
    before = names(tmp_path)
    assert siblings(tmp_path / "feed") == []
    make(tmp_path / "feed", "text")
    assert names(tmp_path) == ["another.tmp-prepare-5", "feed", *before[1:]]


def test_an_increment_joins_a_feed_and_its_manifest_comes_last(tmp_path: Path) -> None:
    target = tmp_path / "feed"
    make(target, "old")
    make(target, "more")
    assert len(names(target / "rows")) == 2
    clear_orphans(target, load_manifest(target).file_names)
    assert text_of(target) == "more"
    # The manifest cannot replace a directory: the files are there, but nothing names them.
    (target / "_feed.json").unlink()
    (target / "_feed.json").mkdir()
    with pytest.raises(UsageError, match=r"feed .* cannot be written: Is a directory"):
        make(target, "again")
    assert len(names(target / "rows")) == 2
    (target / "rows" / "yours.parquet").touch()
    clear_orphans(target, set())
    assert names(target / "rows") == ["yours.parquet"]
    assert names(tmp_path) == ["feed"]
