"""`squall verify`: Spark compares any two results by key.

PySpark is imported on first use.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall.cli.options import SomePath, json_option
from squall.cli.output import Stages, say_json
from squall.cli.screen import Block, Cell, Grid, alarm_cell, print_blocks
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plain, plural
from squall.engine.report.document import with_schema

if TYPE_CHECKING:
    from squall.pipeline.verify import ColumnCheck, Comparison, Difference, Tolerance

EXIT_DIFFERENT = 1
#: Most characters of a value in a line of text; the JSON document has more of it.
SHOWN_CHARS = 60


@click.command("verify")
@click.argument("left", type=SomePath())
@click.argument("right", type=SomePath())
@click.option("--by", metavar="COLUMN[,COLUMN]", multiple=True, required=True,
              help="The columns that are the key of a row.")
@click.option("--compare", metavar="COLUMN[,COLUMN]", multiple=True,
              help="The columns to compare (default: all others; both sides must have the same).")
@click.option("--keys-only", is_flag=True, help="Compare which keys there are, and no other column.")
@click.option("--tolerance", "tolerances", metavar="[COLUMN=]AMOUNT", multiple=True,
              help="How far numbers may differ: 0.01, or 1% of the larger, or p99_ms=0.5 for a column.")
@click.option("--repeats-ok", is_flag=True, help="A side may have the same row several times.")
@click.option("--last", metavar="COLUMN", help="Of rows with one key, only that with the largest COLUMN counts.")
@click.option("--examples", type=click.IntRange(0, 1000), default=10, show_default=True,
              help="Most differences of each kind to show.")
@json_option
def verify_command(
    left: str, right: str, by: tuple[str, ...], compare: tuple[str, ...], keys_only: bool, tolerances: tuple[str, ...],
    as_json: bool, **how: Any,
) -> None:
    """Compare RIGHT with LEFT, which has what is expected, by key, with Spark.

    Each side is a feed, a .parquet, .csv or .json file, or a directory of such files.

    Exit code 0: nothing is missing, too much or different; 1: something is; 2: they cannot be compared.
    """
    from squall.pipeline.verify import Request, parse_tolerances
    from squall.pipeline.verify import compare as compare_by_key

    if compare and keys_only:
        raise UsageError("--compare and --keys-only exclude each other")
    chosen = () if keys_only else _columns(compare) or None
    request = Request(_columns(by), chosen, parse_tolerances(tolerances), **how)
    stages = Stages()
    outcome = compare_by_key(Path(left), Path(right), request, progress=stages)
    if as_json:
        document = {**comparison_document(outcome), "duration_secs": round(stages.elapsed_secs, 3)}
        say_json(with_schema("verify-by-key", document))
    else:
        print_comparison(outcome, stages.elapsed_secs)
    if not outcome.passed:
        raise click.exceptions.Exit(EXIT_DIFFERENT)


def _columns(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for text in texts for name in text.split(","))


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
    """JSON has no number for NaN and the infinities: they are texts."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_comparison(outcome: Comparison, elapsed_secs: float) -> None:
    from squall.pipeline.verify import EQUAL, KINDS

    sides = zip(("LEFT ", "RIGHT"), outcome.sides, outcome.rows, outcome.repeated, strict=True)
    lines = []
    for name, side, rows, repeated in sides:
        more = f", {repeated:,} of them repeated" if repeated else ""
        what = f"{side.kind} in {plural(len(side.files), 'file')}, {plural(rows, 'row')}"
        lines.append(plain(f"{name}  {side.path}: {what}{more}"))
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
    last = f"{'passed' if outcome.passed else 'FAILED'} in {elapsed_secs:.1f} s: {said}"
    style = "green" if outcome.passed else "bold red"
    print_blocks([*blocks, *([lines] if lines else []), Cell(last, style)])


def _column_grid(columns: dict[str, ColumnCheck]) -> list[Grid]:
    """A table of the columns that differ; none if there are none."""
    rows = []
    for name, check in columns.items():
        if check.different or check.largest:
            shown = "-" if check.largest is None else f"{check.largest:g}"
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
