"""What people see: whole in a pipe; on a terminal within its window and in colour; progress in short lines, seldom."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from rich.cells import cell_len
from rich.text import Text

from squall import Config, FailedTuple, spout
from squall.cli.looking.status import topology_text
from squall.cli.report_text import emitted_text, failure_lines, metric_lines
from squall.cli.running.live import DeathNews, Progress
from squall.cli.screen import Block, Grid, print_blocks
from squall.engine.core.local import LocalRunner
from squall.scheduler.client.statuses import Status
from squall.scheduler.common.messages import RestartRecord
from tests.schemas import schema
from tests.unit.rig import DoesBasic
from tests.unit.test_report import reading
from tests.unit.test_user_text import TEXT
from tests.unit.wired import wired


class Window(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def shown(blocks: Sequence[Block], width: int = 80) -> str:
    """What a terminal gets, with its colours."""
    window = Window()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", window)
        for name, value in {"COLUMNS": str(width), "LINES": "24", "TERM": "xterm"}.items():
            patch.setenv(name, value)
        patch.delenv("NO_COLOR", raising=False)
        print_blocks(blocks)
    return window.getvalue()


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    assert str(Grid(["name", "count", "ms"], [["a", 1, 0.5], ["longer", 12_345, None]])).splitlines() == [
        "name     count    ms",
        "a            1  0.50",
        "longer  12,345     -",
    ]
    assert str(Grid(["name", "state"], [])) == "name  state"


@given(TEXT, st.integers(-(2**63), 2**63), st.integers(40, 120))
def test_a_table_fits_the_window_and_numbers_stay_whole(name: str, number: int, width: int) -> None:
    grid = Grid(["component", "executed"], [[name, number], ["x", 1]])
    lines = Text.from_ansi(shown([grid], width)).plain.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert f"{number:,}" in "\n".join(lines)
    assert f"{number:,}" in str(grid)


def document_of(part: dict[str, Any], text: str, number: int, kinds: Any = None) -> Any:
    """A document by its schema: each text in it is `text`, each number is `number`."""
    kinds = part.get("$defs", kinds)
    part = part.get("anyOf", [part])[0]
    part = kinds[part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    if choices := part.get("enum", [part["const"]] if "const" in part else []):
        return choices[-1]
    match part["type"]:
        case "object":
            more = part.get("additionalProperties")
            fields = {**part.get("properties", {}), **({text: more} if isinstance(more, dict) else {})}
            return {name: document_of(field, text, number, kinds) for name, field in fields.items()}
        case "array":
            return [document_of(part["items"], text, number, kinds)] * part.get("minItems", 1)
        case "boolean":
            return bool(number)
    return text if part["type"] == "string" else number


def converted(kind: Any, name: str, text: str, number: int) -> Any:
    """What `document_of` makes by a schema, as its class."""
    document = document_of(schema(name), text, number)
    return convert(document, kind, dec_hook=lambda own, value: value if own is object else own(value))


def status_of(text: str, number: int) -> Status:
    status: Status = converted(Status, "status", text, number)
    # The keys of what it waits for are words of ours.
    return replace(status, components={text: replace(status.components[text], waits={})})


@pytest.mark.parametrize(
    "name", ["words", "n" * 200, "字" * 100, "\x1b[31m\u202e\n" * 20], ids=["short", "long", "wide", "hostile"]
)
def test_no_line_of_a_status_is_wider_than_the_window(name: str) -> None:
    lines = Text.from_ansi(shown(topology_text(status_of(name, 10**9)))).plain.splitlines()
    assert max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize(("width", "count"), [(80, "1.2 G"), (100, "1,234,567,890")])
def test_counts_are_shortened_before_a_name_is_folded(width: int, count: str) -> None:
    grid = Grid(["component", *"abcde"], [["count_words", *[1_234_567_890] * 5]])
    assert f"count_words {count} " in re.sub(" +", " ", Text.from_ansi(shown([grid], width)).plain)


def test_progress_is_a_short_line_and_names_failures_only_if_there_are_any(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress, counts = Progress("words"), partial(reading, 1, "numbers", "spout", "node-1:6700")
    assert not progress.due
    progress.update([counts(emitted=123_456_789, tracked=123_456_789, acked=123_456_700, pending=89)])
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= 100
    assert ("emitted 123,456,789" in line, "acked 123,456,700" in line, "failed" in line) == (True, True, False)
    progress.update([counts(emitted=10, tracked=10, acked=7, failed=2, dead_letters=1)])
    assert "1 dead letter" in capsys.readouterr().err
    quiet = Progress("words", 0.0, quiet=True)
    quiet.tell_deaths([death(1)])
    assert (quiet.due, capsys.readouterr().err) == (False, "")


def death(incarnation: int, ready_after_secs: float | None = None) -> RestartRecord:
    return RestartRecord("node-1:6700", incarnation, "killed", "boom\nTraceback ...", 5.0, ready_after_secs)


def test_each_death_and_each_replacement_is_told_once() -> None:
    died, back = "worker node-1:6700 died: killed: boom", "worker node-1:6700 is back, ready after 28.0 ms"
    news = DeathNews()
    assert news.lines([death(1)]) == [died]
    assert news.lines([death(1, 0.028)]) == [back]
    assert news.lines([death(1, 0.028)]) == []
    # Equal ones now and then.
    equal = [news.lines([death(number, 0.028)]) for number in range(2, 14)]
    assert equal == [*[[]] * 8, [f"{died} (10 times)", back], *[[]] * 3]


def refuse(bolt: DoesBasic, tup: object, collector: object) -> None:
    bolt.context.counter("seen").inc()
    bolt.context.histogram("size").update(4)
    if tup[0] == "bad":  # type: ignore[index]
        raise FailedTuple("not this one")


def test_lines_name_component_reason_and_message() -> None:
    source = spout("value")(lambda: ["good", "bad"])
    topology = wired(source=(source, 1), bolt=(DoesBasic(refuse), 1, "shuffle source")).build()
    with LocalRunner(topology, Config(max_attempts=1), copy=lambda spec: spec.component) as runner:
        report = runner.run(timeout_secs=60)
    (failures,) = failure_lines(report)
    assert failures.startswith("failures of bolt: 1 failed; the first at ")
    assert failures.endswith("s was message 1 of source, failed in bolt[2] on local:0: not this one (attempt 1)")
    assert list(metric_lines(report)) == [
        "bolt: seen = 2", "bolt: size = count 2, mean 4, p50 4, p90 4, p99 4, max 4",
    ]  # fmt: skip
    lossy = replace(report, failures={}, links={"lost": 1200, "repeated": 0})
    assert list(failure_lines(lossy)) == ["links: 1,200 lost, 0 repeated"]


@pytest.mark.parametrize("name", ["acked", "failed", "dead_letters", "waiting", "pending", "abandoned"])
def test_the_numbers_in_a_line_add_up_to_its_emits(name: str) -> None:
    columns = dict.fromkeys(("acked", "failed", "dead_letters", "waiting", "pending", "abandoned"), 1000) | {name: 7}
    emits, equals, fates = emitted_text(replace(status_of("", 1), emitted=5007, replayed=0, **columns)).partition(" = ")
    assert (emits, equals) == ("5,007 emitted (0 replayed)", " = ")
    assert sum(int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\b", fates)) == 5007
