"""`squall prepare` makes feeds, `squall spark plan` tells what of a topology Spark can run, and `squall run --on spark`
runs it. PySpark is imported on first use.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall.cli.interrupts import Interrupts
from squall.cli.loader import load_topology
from squall.cli.options import SomePath, json_option, target_argument
from squall.cli.output import Stages, note, reserve_stdout, say, say_json
from squall.cli.screen import Block, Cell, Grid, print_blocks
from squall.cli.settings import layers_of
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plain, plural
from squall.engine.report.document import with_schema
from squall.engine.report.run_report import RunReport
from squall.scheduler.common import blob

if TYPE_CHECKING:
    from squall.cli.running.run import LoadedRun
    from squall.pipeline.on_spark.batch_control import Control
    from squall.pipeline.on_spark.spark_plan import SparkPlan
    from squall.pipeline.prepare import Prepared


SHOWN_NAMES = 10


@click.command("prepare")
@click.argument("source", metavar="[INPUT]", required=False, type=SomePath(path_type=Path))
@click.option("--out", "feed", metavar="FEED", required=True, type=SomePath(path_type=Path),
              help="Directory to make the feed in.")
@click.option("--partitions", type=click.IntRange(1, 1024),
              help="Parts of a new feed, which are written side by side.  [default: 4]")
@click.option("--glob", "pattern", metavar="PATTERN",
              help="Only files with such names, or such paths if it has a slash.")
@click.option("--format", "format_", metavar="FORMAT", default="text", show_default=True,
              help="Of the files: text, csv, json, parquet or orc.")
@click.option("--option", "options", metavar="KEY=VALUE", multiple=True,
              help="An option of Spark's reader, such as sep=; or multiLine=true.")
@click.option("--schema", metavar="COLUMNS", help="Columns of the files, such as 'host string, status int'.")
@click.option("--sql", metavar="FILE", type=SomePath(path_type=Path),
              help="A SELECT from `input`; rows with a _reason are quarantined.")
@click.option("--clean", metavar="FILE:FUNCTION", help="A function from DataFrame to DataFrame instead.")
@click.option("--overwrite", is_flag=True, help="Make FEED anew if it is a feed already.")
@click.option("--follow", "follows", is_flag=True, help="Go on with what arrives, until SIGINT or SIGTERM.")
@json_option
def prepare_command(
    source: Path | None, feed: Path, overwrite: bool, follows: bool, as_json: bool, options: tuple[str, ...], **how: Any
) -> None:
    """Make a feed from files, or add what is new to one, with Spark.

    INPUT is a file or a directory (default: the source of Python's standard library). In a directory, hidden
    files, __pycache__, site-packages, links to directories, and feeds are left out. A line that is not text (not UTF-8,
    with a NUL, longer than 1 MiB) goes to FEED/quarantine, as does a malformed record, or a row to which --sql or
    --clean gives a _reason; so do most lines of a picture, which --glob can leave out.

    Run again, it reads only files that are new, and new lines of text files. --overwrite makes the feed anew.
    """
    from squall.pipeline.prepare import Prepared, nothing_yet
    from squall.pipeline.prepare import prepare as prepare_feed
    from squall.pipeline.read.input_files import default_input

    if follows and overwrite:
        raise UsageError("--follow and --overwrite exclude each other: prepare the feed anew first, then follow")

    if source is None:
        source, default_pattern = default_input()
        how["pattern"] = how["pattern"] or default_pattern
    stages = Stages()
    once = partial(
        prepare_feed, source, feed, overwrite=overwrite, options=_options(options), progress=stages, **how
    )
    prepared = _follow(once, source, how["pattern"], how["format_"], stages) if follows else once()
    if prepared is None:
        note("nothing was prepared")
    if as_json:
        prepared = prepared or Prepared(feed, nothing_yet(feed, source), ())
        manifest = prepared.manifest.to_dict()
        # Every document names its own schema.
        manifest["columns"] = manifest.pop("schema")
        document = {
            **manifest,
            "feed": str(feed),
            "quarantine_shown": prepared.quarantine_shown,
            "added_files": prepared.added_files,
            "added_rows": prepared.added_rows,
            "vanished": prepared.vanished,
            "left_out": prepared.left_out,
            "duration_secs": round(stages.elapsed_secs, 3),
        }
        say_json(with_schema("prepare", document))
    elif prepared is not None:
        _print_prepared(prepared, stages.elapsed_secs)


def _follow(
    once: Callable[..., Prepared], source: Path, pattern: str | None, format_: str, stages: Stages
) -> Prepared | None:
    """Prepare again and again, in one session of Spark."""
    from squall.pipeline.prepare import follow
    from squall.pipeline.read.input_files import find_files
    from squall.pipeline.read.input_frame import TEXT
    from squall.pipeline.session import spark_session

    def look() -> Hashable:
        return find_files(source, pattern, is_text=format_ == TEXT)

    look()
    stages("starting Spark")
    with Interrupts() as interrupts, spark_session("squall prepare"):
        # Spark has set a handler of its own for SIGINT.
        interrupts.again()
        return follow(once, look, lambda: bool(interrupts.count), stages)


def _options(given: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--option {text!r} is not understood; write KEY=VALUE, such as sep=;")
        options[key] = value
    return options


def _print_prepared(prepared: Prepared, elapsed_secs: float) -> None:
    manifest = prepared.manifest
    files, added = plural(manifest.files, "file"), plural(prepared.added_files, "new file")
    _fact("feed", f"{prepared.feed} in {elapsed_secs:.1f} s, from {files} of {manifest.input}")
    if len(manifest.increments) > 1 or not prepared.added_files:
        _fact("added", f"{plural(prepared.added_rows, 'row')} of {added}")
    _fact("holds", f"{plural(manifest.rows, 'row')} of {', '.join(manifest.fields)}")
    rows = ", ".join(f"{partition.rows:,}" for partition in manifest.partitions)
    _fact("partitions", f"{len(manifest.partitions)}, rows in each: {rows}")
    reasons = "; ".join(f"{count:,} {reason}" for reason, count in manifest.quarantine_reasons.items())
    quarantined = f"{manifest.quarantined:,}" + (f" ({reasons})" if reasons else "")
    where = f" in {prepared.feed}/quarantine"
    _fact("quarantined", quarantined, prepared.quarantine_shown, manifest.quarantined, where)
    if left := prepared.left_out:
        _fact("left out", plural(len(left), "feed"), left[:SHOWN_NAMES], len(left))
    if gone := prepared.vanished:
        _fact("vanished", f"{plural(len(gone), 'file')}, whose rows stay in the feed", gone[:SHOWN_NAMES], len(gone))


def _fact(what: str, said: str, names: Sequence[str] = (), total: int = 0, where: str = "") -> None:
    """Print a fact, and some of the names that it counts; `where`: the place of the others."""
    say(*(f"{head:<12}{plain(text)}" for head, text in [(what, said), *(("", name) for name in names)]))
    if total > len(names) and (names or where):
        more = f"and {total - len(names):,} more" if names else "see them"
        say(f"            {more}{plain(where)}")


EXIT_APPROX, EXIT_REFUSED = 5, 6


@click.group("spark")
def spark_command() -> None:
    """Tell what of a topology runs on Spark."""


@spark_command.command("plan")
@target_argument
@json_option
def plan_command(target: str, as_json: bool, arguments: tuple[str, ...]) -> None:
    """Show what `squall run FILE --on spark` does with each component, edge and setting.

    EXACT: as Squall's own engine. APPROX: with a difference, which is named. REFUSED: not at all, and what to do. Exit
    code 0: all is EXACT; 5: something is APPROX; 6: something is REFUSED; 2: wrong use.
    """
    from squall.pipeline.on_spark.spark_plan import APPROX, EXACT, REFUSED, plan_topology

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
    from squall.pipeline.on_spark.spark_plan import APPROX, EXACT, REFUSED

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


def run_on_spark(run: LoadedRun, interrupts: Interrupts) -> RunReport:
    """Run a topology on Spark until it is drained, interrupted or out of time."""
    from squall.pipeline.on_spark.checkpoint import Checkpoint
    from squall.pipeline.on_spark.runner import SparkRun, Tell
    from squall.pipeline.session import spark_session

    options, topology = run.options, run.loaded.topology
    _check_plan(topology, run.config, options.accept_approx)
    progress = run.progress()
    drains_until: list[float] = []

    def should_drain() -> bool:
        if not (interrupts.count or is_over()):
            return False
        drains_until.append(time.monotonic() + options.drain_secs)
        progress.print(f"draining for up to {options.drain_secs:g} s; interrupt again to stop at once")
        return True

    def should_stop() -> bool:
        return interrupts.count > 1 or bool(drains_until and time.monotonic() >= drains_until[0])

    def show(control: Control) -> None:
        if progress.due:
            readings = [report.reading for report in control.reports.values()]
            progress.update(readings, f"batch {control.number + 1} is under way, ")

    tell = Tell(lambda who, line: progress.print(f"{who} | {line}"), progress.print, show)
    data = blob.dump(topology, run.loaded.script)
    with ExitStack() as stack:
        stack.callback(progress.close)
        at = Path(options.checkpoint or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="squall-checkpoint-", ignore_cleanup_errors=True)
        ))
        checkpoint = stack.enter_context(Checkpoint(at, topology, run.name, options.arguments, run.config.acker_count))
        load = partial(blob.load, data, [entry for entry in sys.path if entry])
        spark_run = SparkRun(topology, run.config, run.name, load, checkpoint, tell, options.batch_rows)
        if spark_run.is_done:
            progress.print(f"all of {options.checkpoint} is done")
            return spark_run.report()
        if checkpoint.control.number >= 0:
            progress.print(f"going on after batch {checkpoint.control.number} of {options.checkpoint}")
        progress.stage("starting Spark")
        began = time.monotonic()
        spark = stack.enter_context(spark_session(f"squall {run.name}", options.master))
        progress.stage(f"Spark is up after {time.monotonic() - began:.0f} s")
        # The time of --for does not go by while nothing can run.
        is_over = run.clock()
        # Spark has set a handler of its own for SIGINT.
        interrupts.again()
        return spark_run.run(spark, should_drain, should_stop)


def _check_plan(topology: Topology, config: Config, accept_approx: bool) -> None:
    from squall.pipeline.on_spark.spark_plan import APPROX, REFUSED, plan_topology

    plan = plan_topology(topology, config)
    if refused := plan.of(REFUSED):
        first = refused[0]
        raise UsageError(
            f"Spark cannot run this topology: {first.what} {first.name}: {first.why}; instead: {first.to_do} "
            "(see squall spark plan)"
        )
    approx = plan.of(APPROX)
    if approx and not accept_approx:
        raise UsageError(
            f"on Spark, {len(approx)} of {len(plan.findings)} parts of this topology differ, such as {approx[0].what} "
            f"{approx[0].name}: {approx[0].why}; see squall spark plan, and add --accept-approx"
        )
