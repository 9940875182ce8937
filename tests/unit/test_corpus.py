"""What is found as input, what is a line, and how files are dealt out to partitions."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import socket
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.errors import UsageError
from squall.pipeline.read.files import BINARY_PROBE_BYTES, InputFile, balance, default_input, find_files
from squall.pipeline.read.lines import (
    MAX_LINE_BYTES,
    MAX_RAW_BYTES,
    REASON_NOT_UTF8,
    REASON_NUL,
    REASON_TOO_LONG,
    Line,
    read_chunks,
    read_file,
    without_open_line,
)


def lines_of(path: Path, data: bytes) -> list[Line]:
    path.write_bytes(data)
    return list(read_file(InputFile(path.name, str(path), len(data))))


def names_of(source: Path, pattern: str | None = None) -> list[str]:
    return [file.name for file in find_files(source, pattern).files]


def write(path: Path, data: bytes = b"text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# Lines


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\n\r\nb", ["a", "", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r", ["a\r"]),
        (b"a\r\r\n", ["a\r"]),
        ("a\u2028b\u2029c\x85d\x1ce\x0bf\x0cg\u00a0h\n".encode(), ["a\u2028b\u2029c\x85d\x1ce\x0bf\x0cg\u00a0h"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb", None),
    ],
)
def test_lines_end_at_newlines_only(tmp_path: Path, data: bytes, texts: list[str] | None) -> None:
    found = lines_of(tmp_path / "file", data)
    if texts is None:
        assert [line.reason for line in found] == [REASON_NOT_UTF8]
    else:
        assert found == [Line(line_no, text) for line_no, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xff", REASON_NOT_UTF8),
        (b"\xed\xa0\x80", REASON_NOT_UTF8),
        (b"cut \xe2\x82", REASON_NOT_UTF8),
        (b"a\0b", REASON_NUL),
        (b"\xff\0", REASON_NUL),
    ],
)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_lines_that_are_no_text_are_quarantined_between_the_others(
    tmp_path: Path, raw: bytes, reason: str, ending: bytes
) -> None:
    found = lines_of(tmp_path / "file", b"before\n" + raw + ending)
    assert found == [Line(1, "before"), Line(2, None, reason, raw)]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("excess", [-1, 0, 1, 2, 3, MAX_LINE_BYTES, 3 * MAX_LINE_BYTES])
def test_the_limit_counts_the_line_alone(tmp_path: Path, ending: bytes, bom: bytes, excess: int) -> None:
    raw = b"x" * (MAX_LINE_BYTES + excess)
    found = lines_of(tmp_path / "file", bom + raw + ending + (b"after" if ending else b""))
    first = Line(1, raw.decode()) if excess <= 0 else Line(1, None, REASON_TOO_LONG, raw[:MAX_RAW_BYTES])
    assert found == [first, *([Line(2, "after")] if ending else [])]


def test_raw_bytes_are_cut(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path / "file", b"\xff" * (MAX_RAW_BYTES + 1))
    assert line.raw == b"\xff" * MAX_RAW_BYTES


@given(data=st.binary(max_size=200) | st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\0", b"\xff"])).map(b"".join))
def test_every_line_comes_out_once(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    found = lines_of(path, data)
    body = data.removeprefix(b"\xef\xbb\xbf")
    expected = body.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert [line.line_no for line in found] == list(range(1, len(expected) + 1))
    for line, raw in zip(found, expected, strict=True):
        content = line.raw if line.text is None else line.text.encode()
        assert content in (raw, raw.removesuffix(b"\r"))


def test_a_file_that_is_gone_is_one_quarantined_line(tmp_path: Path) -> None:
    found = list(read_file(InputFile("gone", str(tmp_path / "gone"), 5)))
    assert found == [Line(0, None, "cannot be read: No such file or directory", b"")]


def test_a_file_that_became_a_directory_is_one_quarantined_line(tmp_path: Path) -> None:
    assert list(read_file(InputFile("d", str(tmp_path)))) == [Line(0, None, "cannot be read: Is a directory", b"")]


# Files


def test_files_are_found_everywhere_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b.txt", "a b/ü.txt", "a b/deep/er/x", "a", "empty"):
        write(tmp_path / name, b"" if name == "empty" else b"text\n")
    assert names_of(tmp_path) == ["a", "a b/deep/er/x", "a b/ü.txt", "b.txt", "empty"]


def test_hidden_and_generated_things_are_left_out(tmp_path: Path) -> None:
    for name in (".hidden", ".git/config", "x/__pycache__/m.py", "site-packages/p.py", "x/.y/z", "x/kept"):
        write(tmp_path / name)
    assert names_of(tmp_path) == ["x/kept"]


def test_the_input_itself_may_be_hidden(tmp_path: Path) -> None:
    write(tmp_path / ".config" / "a")
    assert names_of(tmp_path / ".config") == ["a"]


def test_binary_files_are_skipped_by_name(tmp_path: Path) -> None:
    write(tmp_path / "sub" / "image", b"\x89PNG\0\0")
    write(tmp_path / "late", b"x" * BINARY_PROBE_BYTES + b"\0")
    write(tmp_path / "edge", b"x" * (BINARY_PROBE_BYTES - 1) + b"\0")
    corpus = find_files(tmp_path)
    assert [file.name for file in corpus.files] == ["late"]
    assert corpus.skipped_binary == ("edge", "sub/image")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py", "sub/b.py"]),
        ("sub/*", ["sub/b.py", "sub/c.txt"]),
        ("*/b.py", ["sub/b.py"]),
        ("[ac].*", ["a.py", "sub/c.txt"]),
        ("*.rst", []),
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
    found = {file.name: file.problem for file in find_files(source).files}
    assert found == {
        "broken": "cannot be read: No such file or directory",
        "good": "",
        "loop": "cannot be read: Too many levels of symbolic links",
    }
    broken = next(file for file in find_files(source).files if file.name == "broken")
    assert list(read_file(broken)) == [Line(0, None, "cannot be read: No such file or directory", b"")]


def test_pipes_and_sockets_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert names_of(tmp_path) == []


def test_names_that_are_not_utf8_are_shown_escaped_and_read_all_the_same(tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9"), "wb") as file:
        file.write(b"text\n")
    (found,) = find_files(tmp_path).files
    assert found.name == "caf\\xe9"
    assert list(read_file(found)) == [Line(1, "text")]


def test_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / ".one", b"a\0b\nc\n")
    corpus = find_files(path)
    assert [(file.name, file.size_bytes) for file in corpus.files] == [(".one", 6)]
    assert corpus.skipped_binary == ()


def test_inputs_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read input .*missing: No such file"):
        find_files(tmp_path / "missing")
    with pytest.raises(UsageError, match="neither a directory nor a regular file"):
        find_files(Path("/dev/null"))
    with pytest.raises(UsageError, match=r"pattern \(\*\.py\) needs a directory"):
        find_files(write(tmp_path / "a.py"), "*.py")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_directories_are_problems_and_an_unreadable_input_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    write(closed / "file")
    write(tmp_path / "open")
    closed.chmod(0)
    try:
        with pytest.raises(UsageError, match=r"cannot read input .*: Permission denied"):
            find_files(closed)
        found = {file.name: file.problem for file in find_files(tmp_path).files}
    finally:
        closed.chmod(0o700)
    assert found == {"closed": "directory cannot be read: Permission denied", "open": ""}


def test_the_default_input_is_the_standard_library() -> None:
    source, pattern = default_input()
    assert (source / "json" / "decoder.py").is_file()
    assert pattern == "*.py"


# Partitions


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


# Compressed files, and files that grow


def packed(name: str, data: bytes) -> bytes:
    return {"gz": gzip.compress, "bz2": bz2.compress, "zst": pyarrow.Codec("zstd").compress}[name](data)


def bytes_of(name: str, data: bytes) -> bytes:
    return bytes(packed(name, data))


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_compressed_text_is_read_and_compressed_binaries_are_skipped(tmp_path: Path, ending: str) -> None:
    text = "".join(f"line {number}\n" for number in range(200_000)).encode()
    path = tmp_path / f"a.log.{ending.upper()}"
    # Files may be joined as they are: another member follows the first.
    path.write_bytes(bytes_of(ending, text) + bytes_of(ending, b"last"))
    (tmp_path / f"b.tar.{ending}").write_bytes(bytes_of(ending, bytes(BINARY_PROBE_BYTES)))
    (tmp_path / f"c.log.{ending}").write_bytes(b"no such thing")
    corpus = find_files(tmp_path)
    assert corpus.skipped_binary == (f"b.tar.{ending}",)
    good, bad = corpus.files
    assert bad.problem.startswith("cannot be read: ")
    sums: list[str] = []
    chunks = list(read_chunks(good, sums.append))
    assert [text for chunk in chunks for text in chunk.texts] == [*text.decode().split("\n")[:-1], "last"]
    assert sums == [hashlib.sha256(path.read_bytes()).hexdigest()]


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_a_compressed_file_that_is_cut_off_is_told(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_bytes(bytes_of(ending, os.urandom(1 << 20).hex().encode())[:-100])
    *_, last = read_file(InputFile(path.name, str(path), path.stat().st_size))
    assert last.line_no == 0
    assert str(last.reason).startswith("cannot be read")
    assert "None" not in str(last.reason)


@pytest.mark.parametrize(
    ("data", "start", "size"), [
        (b"a\nb", 0, 2), (b"a\n", 0, 2), (b"a", 0, None), (b"a\nb", 2, None), (b"a\nb\nc", 2, 4), (b"", 0, None),
        (b"a\n" + b"x" * 3 * BINARY_PROBE_BYTES, 0, 2),
    ],
)
def test_a_line_without_its_end_waits(tmp_path: Path, data: bytes, start: int, size: int | None) -> None:
    path = write(tmp_path / "log", data)
    ended = without_open_line(InputFile("log", str(path), len(data), start_bytes=start))
    assert (ended and ended.size_bytes) == size


# What Squall wrote


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("old/_feed.json", "old/rows/00001.parquet", "old/sources/00001.jsonl"), "a feed"),
        (("old.tmp-prepare-17/sources/00001.jsonl",), "a feed"),
        (("old/ledger/a.jsonl", "old/counts/a.jsonl"), "a result of word_count.py"),
        (("old/topology.json", "old/control.pickle"), "a checkpoint of --on spark"),
        (("old/nimbus.db", "old/lock", "old/logs/nimbus.log"), "a run directory"),
    ],
)
@pytest.mark.parametrize("is_text", [True, False])
def test_a_directory_that_squall_wrote_is_left_out(
    tmp_path: Path, names: tuple[str, ...], kind: str, is_text: bool
) -> None:
    write(tmp_path / "in/deep/a.txt")
    for name in names:
        write(tmp_path / "in/deep" / name)
    found = find_files(tmp_path / "in", is_text=is_text)
    assert [file.name for file in found.files] == ["deep/a.txt"]
    assert found.left_out == (f"deep/{names[0].partition('/')[0]} ({kind})",)


def test_names_that_are_like_those_of_squall_are_read(tmp_path: Path) -> None:
    names = ["counts/a.txt", "lock/nimbus.txt", "x.prepare-7/a.txt"]
    for name in names:
        write(tmp_path / name)
    found = find_files(tmp_path)
    assert ([file.name for file in found.files], found.left_out) == (names, ())


def test_an_input_that_is_a_feed_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "_feed.json")
    with pytest.raises(UsageError, match=r"is a feed itself, which FeedSpout reads; to .* rows, give .*/rows with"):
        find_files(tmp_path)
    # But its rows may be prepared, and any other of Squall's results.
    write(tmp_path / "rows/a.txt")
    for folder in ("ledger", "counts"):
        write(tmp_path / "result" / folder / "a.txt")
    assert names_of(tmp_path / "rows") == ["a.txt"]
    assert names_of(tmp_path / "result") == ["counts/a.txt", "ledger/a.txt"]
