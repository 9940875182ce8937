"""`squall prepare --follow`: when it prepares, and that it ends with all that was added."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from squall.cli.data import spark as command
from squall.pipeline import prepare as module
from squall.pipeline.feed.manifest import first_manifest
from squall.pipeline.prepare import ChangedMeanwhile, NothingYet, Prepared, follow
from tests.schemas import mistakes


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECS", 0.0)


def prepared(files: int, rows: int) -> Prepared:
    return Prepared(Path("feed"), first_manifest("in", 1, {}), (), files, rows)


def test_it_prepares_when_something_changed_and_ends_with_the_sum() -> None:
    # What is seen at each look, and what preparing it gives; None: it must not be prepared.
    looks: list[tuple[int, Prepared | Exception | None]] = [
        (0, NothingYet("input in has no text file")), (0, None), (1, prepared(1, 10)), (1, None),
        (2, ChangedMeanwhile("in/a")), (2, prepared(2, 5)), (2, None), (3, prepared(0, 0)),
    ]
    count = 0

    def look() -> int:
        nonlocal count
        count += 1
        return looks[count - 1][0]

    def once() -> Prepared:
        made = looks[max(count, 1) - 1][1]
        assert made is not None, "prepared though nothing changed"
        if isinstance(made, Exception):
            raise made
        return made

    said: list[str] = []
    last = follow(once, look, lambda: count == len(looks), said.append)
    assert last is not None
    assert (last.added_files, last.added_rows) == (3, 15)
    assert said == [
        "input in has no text file; waiting for more", "added 10 rows of 1 file",
        "in/a changed while it was read; trying again", "added 5 rows of 2 files",
    ]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_document_is_printed_though_nothing_was_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Of a feed that is there, its own."""
    monkeypatch.setattr(module, "follow", lambda *arguments: None)
    monkeypatch.setattr("squall.pipeline.session.spark_session", nullcontext)
    feed, source = tmp_path / "feed", tmp_path / "input"
    source.mkdir()
    if is_there:
        feed.mkdir()
        (feed / "_feed.json").write_text(json.dumps(first_manifest("in", 3, {}).to_dict()))
    arguments = [str(source), "--out", str(feed), "--follow"]
    done = CliRunner().invoke(command.prepare_command, [*arguments, "--json"], catch_exceptions=False)
    document = json.loads(done.stdout)
    assert mistakes(document) == []
    figures = [document[name] for name in ("feed", "input", "rows", "added_rows", "files")]
    assert figures == [str(feed), "in" if is_there else str(source), 0, 0, 0]
    assert len(document["partitions"]) == 3 * is_there
    assert done.stderr.endswith("starting Spark\nnothing was prepared\n")
    assert CliRunner().invoke(command.prepare_command, arguments).stdout == ""
