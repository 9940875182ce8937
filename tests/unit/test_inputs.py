"""Which files of an input are new to a feed, known, changed or gone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from squall.pipeline.read.input_files import find_files
from squall.pipeline.read.inputs import Change, SourceFile, compare, path_in, sha256_of
from squall.pipeline.read.lines import without_open_line
from tests.unit.lines_of import read_file


def read(root: Path) -> dict[str, SourceFile]:
    """The files as an increment would note them."""
    found = find_files(root).files
    sources = [
        SourceFile(path_in(str(root), file), file.size_bytes, file.mtime_ns, sha256_of(file.location), file.problem)
        for file in found
    ]
    return {source.path: source for source in sources}


def change_of(root: Path, known: dict[str, SourceFile]) -> Change:
    return compare(str(root), find_files(root).files, known)


def test_new_known_changed_and_vanished_files_are_told_apart(tmp_path: Path) -> None:
    for name in ("known", "touched", "longer", "other", "gone"):
        (tmp_path / name).write_text("text\n")
    known = read(tmp_path)
    (tmp_path / "new").write_text("text\n")
    os.utime(tmp_path / "touched", ns=(1, 1))
    (tmp_path / "longer").write_text("text\nmore\n")
    (tmp_path / "other").write_text("TEXT\n")
    os.utime(tmp_path / "other", ns=(2, 2))
    (tmp_path / "gone").unlink()
    change = change_of(tmp_path, known)
    assert [file.name for file in change.new] == ["new"]
    assert change.changed == ["longer", "other"]
    assert change.vanished == ["gone"]
    assert change.known == 2


def test_names_that_are_no_text_are_not_mixed_up(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff")).write_text("one\n")
    known = read(tmp_path)
    (tmp_path / "a\\xff").write_text("two\n")
    change = change_of(tmp_path, known)
    assert [os.path.basename(file.location) for file in change.new] == ["a\\xff"]
    assert (change.changed, change.vanished, change.known) == ([], [], 1)


def test_a_file_that_could_not_be_read_is_tried_again_when_it_can(tmp_path: Path) -> None:
    os.symlink(tmp_path / "target", tmp_path / "link")
    known = read(tmp_path)
    assert change_of(tmp_path, known).known == 1
    (tmp_path / "target").write_text("text\n")
    assert [file.name for file in change_of(tmp_path, known).new] == ["link", "target"]


def test_a_file_that_was_read_in_part_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text\n")
    (file,) = find_files(tmp_path).files
    known = {"a": SourceFile("a", file.size_bytes, file.mtime_ns, "", "cannot be read after line 7: no such luck", 7)}
    assert change_of(tmp_path, known).known == 1
    (tmp_path / "a").write_text("more text\n")
    assert change_of(tmp_path, known).changed == ["a"]


def test_new_lines_at_the_end_of_text_are_new_and_nothing_else_is(tmp_path: Path) -> None:
    before = {"longer": "a\nb\n", "empty": "", "open": "a\nb", "begun anew": "a\n", "packed.gz": "a\n"}
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    known = {name: replace(file, lines=before[name].count("\n")) for name, file in read(tmp_path).items()}
    known["packed.gz"] = SourceFile("packed.gz", 2, 1)
    for name, text in before.items():
        (tmp_path / name).write_text({"begun anew": "b\n"}.get(name, text) + "c\nd")
    change = compare(str(tmp_path), find_files(tmp_path).files, known, may_grow=True)
    empty, longer = change.new
    assert [(file.name, file.start_bytes, file.start_line) for file in (empty, longer)] == [
        ("empty", 0, 0), ("longer", 4, 2),
    ]
    assert [(line.line_no, line.text) for file in change.new for line in read_file(file)] == [
        (1, "c"), (2, "d"), (3, "c"), (4, "d"),
    ]
    ended = without_open_line(longer)
    assert ended is not None
    assert [line.text for line in read_file(ended)] == ["c"]
    assert change.changed == ["begun anew", "open (its last line had no end when it was read)", "packed.gz"]


def test_new_lines_of_what_was_changed_meanwhile_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a\n")
    known = {"log": replace(next(iter(read(tmp_path).values())), lines=1)}
    path.write_text("a\nb\n")
    (file,) = compare(str(tmp_path), find_files(tmp_path).files, known, may_grow=True).new
    path.write_text("x\nb\n")
    (line,) = read_file(file)
    assert (line.text, line.reason) == (None, "cannot be read after line 1: changed before its new lines")
