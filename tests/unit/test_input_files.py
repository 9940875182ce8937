"""What is found as input, and how files are dealt out to partitions."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.errors import UsageError
from squall.pipeline.read.input_files import InputFile, balance, find_files
from squall.pipeline.read.lines import Line
from tests.unit.lines_of import read_file


def names_of(source: Path, pattern: str | None = None) -> list[str]:
    return [file.name for file in find_files(source, pattern).files]


def write(path: Path, data: bytes = b"text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_files_are_found_in_order_of_name_without_hidden_and_generated_ones(tmp_path: Path) -> None:
    kept = ["a", "a b/deep/er/x", "a b/ü.txt", "b.txt", "empty"]
    for name in (*kept, ".hidden", ".git/config", "x/__pycache__/m.py", "site-packages/p.py", "x/.y/z"):
        write(tmp_path / ".in" / name, b"" if name == "empty" else b"text\n")
    os.mkfifo(tmp_path / ".in" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / ".in" / "socket"))
        assert names_of(tmp_path / ".in") == kept


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py", "sub/b.py"]),
        ("sub/*", ["sub/b.py", "sub/c.txt"]),
        ("[ac].*", ["a.py", "sub/c.txt"]),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, names: list[str]) -> None:
    for name in ("a.py", "sub/b.py", "sub/c.txt"):
        write(tmp_path / name)
    assert names_of(tmp_path, pattern) == names


def test_links_to_files_are_followed_and_broken_ones_are_read_as_problems(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "file")
    source = tmp_path / "source"
    source.mkdir()
    os.symlink(outside, source / "good")
    os.symlink(tmp_path / "nowhere", source / "broken")
    os.symlink(source / "loop", source / "loop")
    os.symlink(tmp_path / "outside", source / "directory")
    broken, good, loop = find_files(source).files
    assert (good.name, good.problem) == ("good", "")
    assert (loop.name, loop.problem) == ("loop", "cannot be read: Too many levels of symbolic links")
    assert list(read_file(broken)) == [Line(0, None, "cannot be read: No such file or directory", b"")]


def test_inputs_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read input .*missing: No such file"):
        find_files(tmp_path / "missing")
    with pytest.raises(UsageError, match="neither a directory nor a regular file"):
        find_files(Path("/dev/null"))
    with pytest.raises(UsageError, match=r"pattern \(\*\.py\) needs a directory"):
        find_files(write(tmp_path / "a.py"), "*.py")


@given(
    sizes=st.lists(st.integers(0, 1000), max_size=50),
    partitions=st.integers(1, 8),
    order=st.randoms(use_true_random=False),
)
def test_partitions_are_balanced_complete_and_do_not_depend_on_the_order(
    sizes: list[int], partitions: int, order: object
) -> None:
    files = [InputFile(f"{index:03d}", "", size) for index, size in enumerate(sizes)]
    dealt = balance(files, partitions)
    assert len(dealt) == partitions
    assert sorted(file.name for part in dealt for file in part) == [file.name for file in files]
    assert all(part == sorted(part, key=lambda file: file.name) for part in dealt)
    loads = [sum(max(file.size_bytes, 1) for file in part) for part in dealt]
    assert max(loads) - min(loads) <= max([*sizes, 1])
    shuffled = list(files)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert balance(shuffled, partitions) == dealt


@pytest.mark.parametrize("is_text", [True, False])
def test_a_feed_is_left_out_or_refused(tmp_path: Path, is_text: bool) -> None:
    write(tmp_path / "in/deep/a.txt")
    for name in ("old/_feed.json", "old/rows/00001.parquet", "new.tmp-prepare-17/sources/00001.jsonl"):
        write(tmp_path / "in/deep" / name)
    found = find_files(tmp_path / "in", is_text=is_text)
    assert [file.name for file in found.files] == ["deep/a.txt"]
    assert found.left_out == ("deep/new.tmp-prepare-17", "deep/old")
    with pytest.raises(UsageError, match=r"is a feed itself, which FeedSpout reads; to .* rows, give .*/rows with"):
        find_files(tmp_path / "in/deep/old", is_text=is_text)
    # But its rows may be prepared.
    assert [file.name for file in find_files(tmp_path / "in/deep/old/rows", is_text=is_text).files] == ["00001.parquet"]
