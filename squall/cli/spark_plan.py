"""`squall spark plan`: what of a topology Spark can run, and how. Nothing is started; PySpark is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from squall.cli.given.loader import load_topology
from squall.cli.given.settings import layers_of
from squall.cli.given.target import target_argument
from squall.cli.shown.output import reserve_stdout, say_json
from squall.cli.shown.screen import Block, Cell, Grid, print_blocks
from squall.engine.foreign.plain_text import plain
from squall.engine.plural import plural
from squall.engine.report.schema import with_schema

if TYPE_CHECKING:
    from squall.pipeline.underneath.plan import SparkPlan

EXIT_APPROX, EXIT_REFUSED = 5, 6


@click.group("spark")
def spark_group() -> None:
    """Tell what of a topology runs on Spark."""


@spark_group.command("plan")
@target_argument
@click.option("--json", "as_json", is_flag=True, help="Print the plan as one JSON document on stdout.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]")
def plan_command(target: str, as_json: bool, arguments: tuple[str, ...]) -> None:
    """Show what `squall run FILE --on spark` does with each component, edge and setting.

    EXACT: as Squall's own engine. APPROX: with a difference, which is named. REFUSED: not at all, and what to do. Exit
    code 0: all is EXACT; 5: something is APPROX; 6: something is REFUSED; 2: wrong use.
    """
    from squall.pipeline.underneath.plan import APPROX, EXACT, REFUSED, plan_topology

    layers = layers_of()
    out = reserve_stdout() if as_json else None
    loaded = load_topology(target, list(arguments))
    plan = plan_topology(loaded.topology, layers.config(loaded.topology.config))
    if out is not None:
        say_json(with_schema("spark-plan", plan.to_dict()), out=out)
    else:
        print_blocks(plan_text(plan))
    raise click.exceptions.Exit({EXACT: 0, APPROX: EXIT_APPROX, REFUSED: EXIT_REFUSED}[plan.verdict])


def plan_text(plan: SparkPlan) -> list[Block]:
    """A plan for people: a table, a reason for each line that is not EXACT, and what follows."""
    from squall.pipeline.underneath.plan import APPROX, EXACT, REFUSED

    styles = {EXACT: "green", APPROX: "yellow", REFUSED: "bold red"}
    rows = [
        (Cell(finding.verdict, styles[finding.verdict]), finding.what, finding.name, finding.how)
        for finding in plan.findings
    ]
    blocks: list[Block] = [Grid(("verdict", "what", "name", "on Spark"), rows)]
    lines = []
    for finding in (*plan.of(APPROX), *plan.of(REFUSED)):
        to_do = f". Instead: {finding.to_do}" if finding.to_do else ""
        lines.append(plain(f"{finding.verdict} {finding.what} {finding.name}: {finding.why}{to_do}"))
    approx, refused = len(plan.of(APPROX)), len(plan.of(REFUSED))
    if refused:
        lines.append(f"{plural(refused, 'finding')} REFUSED: Spark cannot run this topology")
    elif approx:
        lines.append(f"{plural(approx, 'finding')} APPROX: squall run --on spark needs --accept-approx")
    else:
        lines.append("all is EXACT: squall run --on spark")
    return [*blocks, lines]
