"""Everything that is printed, tried with hostile text: no control character, no forged line, no markup.

And a rule of the house: nothing is printed past the functions that see to it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, example, given, settings

from squall import ClusterError, RunReport, UsageError
from squall.cli import commands
from squall.cli.data import kept, verify
from squall.cli.looking.status import cluster_text, topology_text
from squall.cli.output import Stages, note, say, say_json
from squall.cli.report_text import print_summary
from squall.cli.running.live import Progress
from squall.cli.screen import Grid, print_blocks, show
from squall.engine.report.metrics import TASK_COUNTERS
from squall.engine.report.run_report import Restart, TaskReading, build_report
from squall.pipeline.verify import ColumnCheck, Comparison, Difference, Side, Tolerance
from squall.scheduler.client.statuses import ClusterStatus
from squall.scheduler.cluster.local_cluster import echo
from squall.scheduler.common.daemon import PlainFormatter
from squall.scheduler.records.dead_letters import DeadLetter
from tests.unit.source import PRODUCT, Source, sources_of
from tests.unit.test_report import reading
from tests.unit.test_screen import converted, status_of
from tests.unit.test_user_text import TEXT, dangerous

HOSTILE = "\x1b]0;owned\x07[bold]x[/bold]:fox:\nforged\r\u202e\u2028\x9b2J\ud800"


class Terminal(io.StringIO):
    """Takes what a strict UTF-8 terminal takes."""

    def write(self, text: str) -> int:
        text.encode()
        return super().write(text)


def printed(call: Callable[[], object]) -> str:
    """What a call writes to stdout and stderr."""
    seen = Terminal()
    with contextlib.redirect_stdout(seen), contextlib.redirect_stderr(seen):
        call()
    return seen.getvalue()


def reading_of(text: str) -> TaskReading:
    return reading(1, text, "spout", text, **dict.fromkeys(TASK_COUNTERS, 3))


def report_of(text: str) -> RunReport:
    return build_report(text, [reading_of(text)], 1.0, [Restart(text, text, 0.5, None, text)], True)


def letter_of(text: str) -> DeadLetter:
    return DeadLetter("1a", "2026-01-01T00:00:00", text, 0, text, text, text, text, 1, text, text, 1, "")


def progress_of(text: str) -> None:
    progress = Progress(text, 0.0)
    progress.update([reading_of(text)])
    progress.print(text)
    progress.close()


def error_of(error: Exception) -> None:
    @click.command("fails")
    def fails() -> None:
        raise error

    cli = commands.cli
    cli.add_command(fails, "fails")
    try:
        with contextlib.suppress(SystemExit):
            commands.main(["--debug", "fails"])
    finally:
        del cli.commands["fails"]


def logged(text: str) -> str:
    record = logging.LogRecord("squall.scheduler.nimbus", logging.INFO, "", 0, "worker %s", (text,), None)
    return PlainFormatter("%(levelname)s %(name)s: %(message)s").format(record)


def comparison_of(text: str) -> Comparison:
    side = Side(Path(text), text, (text,))
    keys = {"equal": 1, "missing": 1, "extra": 1, "duplicated": 1, "different": 1}
    examples = tuple(
        Difference(kind, {text: text}, (1, 2), {text: (text, None)}) for kind in keys if kind != "equal"
    )
    return Comparison((side, side), (1, 1), (1, 1), keys, {text: ColumnCheck(1, 0.5, Tolerance(1, 1))}, examples)


LINES: dict[str, Callable[[str], object]] = {
    "table": lambda text: print_blocks([Grid([text, "b"], [[text, 1], [text, 2]])]),
    "summary": lambda text: print_summary(report_of(text)),
    "status": lambda text: show(False, None, topology_text(status_of(text, 2))),
    "cluster": lambda text: show(False, None, cluster_text(converted(ClusterStatus, "cluster", text, 2))),
    "say": say,
    "note": note,
    "progress": progress_of,
    "echo": lambda text: echo([("node-1:6700", text)]),
    "dead letters": lambda text: show(False, None, [kept.grid_of([letter_of(text)])]),
    "letters that stay": lambda text: kept.tell_why_they_stay([(letter_of(text).id, f"x{text}")]),
    "stages": Stages(),
    "comparison": lambda text: verify.print_comparison(comparison_of(text), 1.0),
    "daemon's log": lambda text: note(logged(text)),
}
"""Renderers, each of which prints as many lines for one text as for another."""
FREE: dict[str, Callable[[str], object]] = {
    "usage error": lambda text: error_of(UsageError(text)),
    "cluster error": lambda text: error_of(ClusterError(text)),
    "os error": lambda text: error_of(OSError(5, text, text)),
    "a bug": lambda text: error_of(KeyError(text)),
    "click's error": lambda text: error_of(click.UsageError(text)),
    "click's bad option": lambda text: commands.main([f"--no-{text}"]),
    "click's bad command": lambda text: commands.main([f"no-{text}"]),
}
"""Those whose line breaks may be meant: tracebacks, click's pages."""


def rendered(render: Callable[[str], object], text: str) -> str:
    with contextlib.suppress(SystemExit):
        return printed(lambda: render(text))
    return ""


@pytest.mark.parametrize("name", [*LINES, *FREE])
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@example(text=HOSTILE)
@given(text=TEXT)
def test_foreign_text_does_nothing(name: str, text: str) -> None:
    seen = rendered({**LINES, **FREE}[name], text)
    assert dangerous(seen, but="\n\t") == []
    if name in LINES and text == HOSTILE:
        # Markup is shown, and what follows the line break has not become a line.
        assert "[bold]x" in seen
        assert not any(line.startswith("forged") for line in seen.splitlines())
    if name in LINES:
        assert seen.count("\n") <= rendered(LINES[name], "x").count("\n")


@given(text=TEXT)
def test_json_is_in_full_and_does_nothing(text: str) -> None:
    seen = printed(lambda: say_json({text: [text]}))
    assert seen.isascii()
    assert dangerous(seen, but="\n") == []
    assert json.loads(seen) == {text: [text]}


# ---- the rule ----

PRINTERS = {"say", "note", "say_json", "plain", "plain_lines", "log_line"}
MAY_PRINT = {"squall/cli/output.py", "squall/cli/screen.py"}


def raw_prints(source: Source) -> Iterator[str]:
    """Places that print something else than a literal without a function that makes it plain."""
    for name, node in source.calls:
        prints = name in ("print", "sys.stdout.write", "sys.stderr.write") or name.endswith((".echo", ".secho"))
        if name.startswith("traceback.print_") or (name == "Console" and source.package == "squall"):
            yield source.at(node, name)
        elif prints and not all(_is_plain(argument) for argument in node.args):
            yield source.at(node, ast.unparse(node))


def _is_plain(part: ast.expr) -> bool:
    match part:
        case ast.Constant():
            return True
        case ast.Call():
            return ast.unparse(part.func).rpartition(".")[2] in PRINTERS
        case ast.BinOp():
            return _is_plain(part.left) and _is_plain(part.right)
        case ast.JoinedStr():
            return all(_is_plain(value) for value in part.values)
        case ast.FormattedValue():
            return part.format_spec is not None or _is_plain(part.value) or ast.unparse(part.value) in OURS
        case _:
            return False


OURS = {"count", "task", "kind", "job.name", "error.strerror", "time.strftime('%Y-%m-%d %H:%M:%S')"}
"""Numbers, checked names, the system's words."""


@pytest.mark.xdist_group("sources")  # parsed once
def test_nothing_is_printed_raw() -> None:
    sources = [source for room in PRODUCT for source in sources_of(room) if source.path not in MAY_PRINT]
    assert [place for source in sources for place in raw_prints(source)] == []
