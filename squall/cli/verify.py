"""`squall verify`: Spark checks a word count against its feed, or compares any two results by key.

PySpark is imported on first use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from squall.cli.checks import some_path
from squall.cli.output import say_json
from squall.cli.screen import Block, Cell, Grid, alarm_cell, print_blocks
from squall.cli.spark import Stages
from squall.engine.errors import UsageError
from squall.engine.foreign.plain_text import plain
from squall.engine.plural import plural
from squall.engine.report.schema import with_schema

if TYPE_CHECKING:
    from squall.pipeline.comparison import ColumnCheck, Comparison, Difference, Request
    from squall.pipeline.side import Side
    from squall.pipeline.tolerance import Tolerance
    from squall.pipeline.verify import Check, Verdict

Outcome = TypeVar("Outcome", "Comparison", "Verdict")

EXIT_DIFFERENT = 1
#: Most characters of a value in a line of text; the JSON document has more of it.
SHOWN_CHARS = 60


@click.command("verify")
@click.argument("left", type=click.Path(), callback=some_path)
@click.argument("right", type=click.Path(), callback=some_path)
@click.option("--by", metavar="COLUMN[,COLUMN]", multiple=True, help="The columns that are the key of a row.")
@click.option("--compare", metavar="COLUMN[,COLUMN]", multiple=True,
              help="The columns to compare (default: all others; both sides must have the same).")
@click.option("--keys-only", is_flag=True, help="Compare which keys there are, and no other column.")
@click.option("--tolerance", "tolerances", metavar="[COLUMN=]AMOUNT", multiple=True,
              help="How far numbers may differ: 0.01, or 1% of the larger, or p99_ms=0.5 for a column.")
@click.option("--repeats-ok", is_flag=True, help="A side may have the same row several times.")
@click.option("--last", metavar="COLUMN", help="Of rows with one key, only that with the largest COLUMN counts.")
@click.option("--examples", type=int, default=10, show_default=True,
              help="Most differences of each kind to show.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON document on stdout.")
def verify(
    left: str, right: str, by: tuple[str, ...], compare: tuple[str, ...], keys_only: bool, tolerances: tuple[str, ...],
    repeats_ok: bool, last: str | None, examples: int, as_json: bool,
) -> None:
    """Check results with Spark.

    With --by: compare RIGHT with LEFT, which has what is expected, by key. Each is a feed, a .parquet, .csv or .json
    file, a directory of such files, or a result of examples/word_count.py.

    Without --by: LEFT is a feed, RIGHT a result of examples/word_count.py. Its words are counted again and compared.

    Exit code 0: nothing is missing, too much or different; 1: something is; 2: they cannot be compared.
    """
    if by:
        request = _request(by, compare, keys_only, tolerances, repeats_ok, last, examples)
        _compare_by_key(Path(left), Path(right), request, as_json)
        return
    for option, given in (("--compare", compare), ("--keys-only", keys_only), ("--tolerance", tolerances),
                          ("--repeats-ok", repeats_ok), ("--last", last)):
        if given:
            raise UsageError(f"{option} needs --by: the columns that are the key of a row")
    _check_word_count(Path(left), Path(right), as_json)


def _request(
    by: tuple[str, ...], compare: tuple[str, ...], keys_only: bool, tolerances: tuple[str, ...], repeats_ok: bool,
    last: str | None, examples: int,
) -> Request:
    from squall.pipeline.comparison import Request
    from squall.pipeline.tolerance import parse_tolerances

    if compare and keys_only:
        raise UsageError("--compare and --keys-only exclude each other; allowed: one of them")
    chosen = () if keys_only else _columns("--compare", compare) if compare else None
    return Request(_columns("--by", by), chosen, parse_tolerances(tolerances), repeats_ok, last, examples)


def _columns(option: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name for text in texts for name in text.split(","))
    if "" in names:
        raise UsageError(f"{option} is {','.join(texts)!r}; allowed: names of columns, with commas between them")
    return names


def _compare_by_key(left: Path, right: Path, request: Request, as_json: bool) -> None:
    from squall.pipeline.compare import compare

    stages = Stages()
    outcome = compare(left, right, request, progress=stages)
    _end("verify-by-key", outcome, comparison_document, print_comparison, stages, as_json)


def _end(
    schema: str, outcome: Outcome, document: Callable[[Outcome], dict[str, Any]],
    show: Callable[[Outcome, float], None], stages: Stages, as_json: bool,
) -> None:
    """Print an outcome, and end as it says."""
    if as_json:
        say_json(with_schema(schema, {**document(outcome), "duration_secs": round(stages.elapsed_secs, 3)}))
    else:
        show(outcome, stages.elapsed_secs)
    if not outcome.passed:
        raise click.exceptions.Exit(EXIT_DIFFERENT)


def comparison_document(outcome: Comparison) -> dict[str, Any]:
    return {
        "passed": outcome.passed,
        **{
            name: {"path": str(side.path), "kind": side.kind, "rows": outcome.rows[at],
                   "repeated": outcome.repeated[at]}
            for at, (name, side) in enumerate(zip(("left", "right"), outcome.sides, strict=True))
        },
        "keys": outcome.keys,
        "columns": {
            name: {
                "different": check.different,
                "largest_difference": check.largest,
                "unmeasured": check.unmeasured,
                "tolerance": {"absolute": check.tolerance.absolute, "relative": check.tolerance.relative},
            }
            for name, check in outcome.columns.items()
        },
        "examples": [
            {
                "kind": example.kind,
                "key": {name: _jsonable(value) for name, value in example.key.items()},
                "left_rows": example.rows[0],
                "right_rows": example.rows[1],
                "values": {name: [_jsonable(value) for value in pair] for name, pair in example.values.items()},
            }
            for example in outcome.examples
        ],
    }


def _jsonable(value: Any) -> Any:
    """JSON has no number for NaN and the infinities: they are texts, as are decimals, so that no digit is lost."""
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def print_comparison(outcome: Comparison, elapsed_secs: float) -> None:
    from squall.pipeline.comparison import EQUAL, KINDS

    sides = zip(("LEFT ", "RIGHT"), outcome.sides, outcome.rows, outcome.repeated, strict=True)
    lines = []
    for name, side, rows, repeated in sides:
        more = f", {repeated:,} of them repeated" if repeated else ""
        lines.append(plain(f"{name}  {side.path}: {_source(side)}, {plural(rows, 'row')}{more}"))
    numbers = [outcome.keys[EQUAL], *(alarm_cell(outcome.keys[kind]) for kind in KINDS)]
    blocks: list[Block] = [lines, Grid(("keys", EQUAL, *KINDS), [[sum(outcome.keys.values()), *numbers]])]
    blocks += _column_grid(outcome.columns)
    lines = []
    for kind in KINDS:
        named = [example for example in outcome.examples if example.kind == kind]
        lines += [plain(_line_of(example)) for example in named]
        if named and outcome.keys[kind] > len(named):
            lines.append(f"... and {outcome.keys[kind] - len(named):,} more {kind}")
    if outcome.passed:
        said = "both sides are equal" if any(outcome.rows) else "both sides are empty"
    else:
        said = ", ".join(f"{outcome.keys[kind]:,} {kind}" for kind in KINDS if outcome.keys[kind])
    _show(blocks, lines, outcome.passed, elapsed_secs, said)


def _show(blocks: list[Block], lines: list[str], passed: bool, elapsed_secs: float, said: str) -> None:
    last = f"{'passed' if passed else 'FAILED'} in {elapsed_secs:.1f} s: {said}"
    print_blocks([*blocks, *([lines] if lines else []), Cell(last, "green" if passed else "bold red")])


def _source(side: Side) -> str:
    return f"{side.kind} in {plural(len(side.files), 'file')}" if side.files else side.kind


def _column_grid(columns: dict[str, ColumnCheck]) -> list[Grid]:
    """A table of the columns that differ; none if there are none."""
    rows = []
    for name, check in columns.items():
        if check.different or check.largest:
            shown = "-" if check.largest is None else f"{check.largest:g}"
            if check.largest is not None and check.unmeasured:
                shown += f" ({check.unmeasured:,} without)"
            largest = Cell(check.largest, shown=shown)
            rows.append([_short(name), alarm_cell(check.different), largest, _tolerance(check.tolerance)])
    return [Grid(("column", "different", "largest difference", "tolerance"), rows)] if rows else []


def _tolerance(tolerance: Tolerance) -> str:
    given = [f"{tolerance.absolute:g}"] if tolerance.absolute else []
    given += [f"{tolerance.relative:.10g} of the larger"] if tolerance.relative else []
    return " or ".join(given) or "-"


def _line_of(example: Difference) -> str:
    key = ", ".join(f"{_short(name)}={_value(value)}" for name, value in example.key.items())
    if example.kind == "missing":
        return f"missing     {key}: not on the right"
    if example.kind == "extra":
        return f"extra       {key}: not on the left"
    if example.kind == "duplicated":
        return f"duplicated  {key}: {plural(example.rows[0], 'row')} on the left, {example.rows[1]:,} on the right"
    values = (f"{_short(name)} {_value(left)}, not {_value(right)}" for name, (left, right) in example.values.items())
    return f"different   {key}: {'; '.join(values)}"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    return repr(_short(value)) if isinstance(value, str) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."


def _check_word_count(feed: Path, result: Path, as_json: bool) -> None:
    from squall.pipeline.feed.manifest import MANIFEST_NAME
    from squall.pipeline.verify import verify as verify_result

    if not (feed / MANIFEST_NAME).exists():
        raise UsageError(
            f"{feed} is not a feed: it has no {MANIFEST_NAME}; to compare any two results, name their key with --by"
        )
    stages = Stages()
    verdict = verify_result(feed, result, progress=stages)
    _end("verify", verdict, verdict_document, print_verdict, stages, as_json)


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    return {
        "passed": verdict.passed,
        "lines": _check_document(verdict.lines),
        "words": _check_document(verdict.words),
        "torn": verdict.torn,
    }


def _check_document(check: Check) -> dict[str, Any]:
    return {
        "passed": check.passed,
        "checked": check.checked,
        "ok": check.ok,
        "missing": check.missing,
        "invented": check.invented,
        "different": check.different,
        "repeated": check.repeated,
        "offenders": check.offenders,
    }


def print_verdict(verdict: Verdict, elapsed_secs: float) -> None:
    rows = []
    for name, check in (("lines", verdict.lines), ("words", verdict.words)):
        wrong = map(alarm_cell, (check.missing, check.invented, check.different))
        # Totals are repeated by design: only repetitions in the ledger mean something, namely replays.
        repeated = check.repeated if check is verdict.lines else None
        rows.append([name, check.checked, check.ok, *wrong, repeated])
    blocks: list[Block] = [Grid(("", "checked", "ok", "missing", "invented", "different", "repeated"), rows)]
    lines = []
    for check in (verdict.lines, verdict.words):
        for kind, offenders in check.offenders.items():
            lines += [plain(offender) for offender in offenders]
            total = {"missing": check.missing, "invented": check.invented, "different": check.different}[kind]
            if total > len(offenders):
                lines.append(f"... and {total - len(offenders):,} more {kind}")
    for where in verdict.torn:
        lines.append(plain(f"{where}: the last line is torn (its writer was killed) and was not counted"))
    outcome = "every line and every count is right" if verdict.passed else "the result does not follow from the feed"
    _show(blocks, lines, verdict.passed, elapsed_secs, outcome)
