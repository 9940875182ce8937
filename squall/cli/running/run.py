"""`squall run`: one topology on a cluster of its own, in the foreground.

The cluster's keeper (`scheduler.cluster.keeper_process`) imports what the daemons need, while this process imports what
runs the topology (`squall.cli.running.run_job`), and the topology itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from squall.cli.options import Seconds, SomePath, TopologyOptions, json_option, target_options
from squall.cli.screen import LINE_INTERVAL_SECS, SCREEN_INTERVAL_SECS
from squall.cli.settings import settings_option

if TYPE_CHECKING:
    from squall.cli.loader import Loaded
    from squall.cli.running.live import Progress
    from squall.engine.api.config import Config


@dataclass(frozen=True, kw_only=True)
class RunOptions(TopologyOptions):
    """The options of `squall run`, by the names of the command's parameters."""

    workers: int | None
    nodes: int
    name: str | None
    duration: str | None
    drain_secs: float
    interval: float | None
    directory: str | None
    faults: tuple[str, ...]
    fault_plans: tuple[str, ...]
    local: bool
    engine: str | None
    master: str | None
    checkpoint: str | None
    batch_rows: int | None
    accept_approx: bool
    quiet: bool
    ui: bool
    as_json: bool

    def of_streamparse(self) -> RunOptions:
        """Read the target as the folder of a streamparse project, and ARGS as its topology."""
        folder = os.path.abspath(self.target)
        name = self.name or "".join(self.arguments[:1]) or os.path.basename(folder)
        return replace(
            self, target="squall.connect.multilang.streamparse_project", arguments=(folder, *self.arguments), name=name
        )


@dataclass(frozen=True)
class LoadedRun:
    """A topology that was loaded, and how it is to run."""

    options: RunOptions
    name: str
    loaded: Loaded
    config: Config
    for_secs: float | None

    def progress(self) -> Progress:
        from squall.cli.running.live import Progress

        return Progress(self.name, self.options.interval, self.options.quiet or self.options.as_json)

    def clock(self) -> Callable[[], bool]:
        """Start the time of --for; the result tells whether it is over."""
        deadline = float("inf") if self.for_secs is None else time.monotonic() + self.for_secs
        return lambda: time.monotonic() >= deadline


@click.command("run")
@target_options
@click.option("--workers", type=int, help="Worker processes (setting workers).")
@click.option("--nodes", type=click.IntRange(min=1), default=1, metavar="N", help="Nodes (supervisors).  [default: 1]")
@click.option("--name", help="Name of the topology; the file's name by default.")
@settings_option
@click.option("--for", "duration", metavar="DURATION", help="Drain and stop after this long, e.g. 30s, 5m.")
@click.option("--drain-secs", type=Seconds(), default=30.0, show_default=True, metavar="SECS",
              help="Longest wait for pending messages.")
@click.option("--interval", type=Seconds(above=True), metavar="SECS",
              help=f"Time between two progress reports (default: {SCREEN_INTERVAL_SECS:g}; {LINE_INTERVAL_SECS:g} "
                   "if stderr is no terminal).")
@click.option("--dir", "directory", type=SomePath(),
              help="Run directory to use and keep (default: temporary).")
@click.option("--fault", "faults", multiple=True, metavar="LINE",
              help="Inject this fault; see squall faults.")
@click.option("--faults", "fault_plans", multiple=True, metavar="PLAN.yaml",
              help="Inject the faults of this plan; see docs/faults.md.")
@click.option("--local", is_flag=True, help="Run everything in this process, deterministically: for a debugger.")
@click.option("--on", "engine", type=click.Choice(["spark"]), help="Run it on Spark; see docs/spark.md.")
@click.option("--master", metavar="URL", help="With --on spark: the cluster (default: this machine's cores).")
@click.option("--checkpoint", type=SomePath(),
              help="With --on spark: directory to go on from.")
@click.option("--batch-rows", type=click.IntRange(min=1), metavar="N",
              help="With --on spark: most messages of a spout task in a batch.")
@click.option("--accept-approx", is_flag=True, help="With --on spark: run what differs; see squall spark plan.")
@click.option("--streamparse", is_flag=True, help="FILE is a streamparse project; see docs/multilang.md.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--ui", is_flag=True, help="Serve a web page while it runs; see squall ui.")
@json_option
def run_command(streamparse: bool, **given: Any) -> None:
    """Run the topology in FILE until its spouts are exhausted and everything is acked.

    FILE may also be a module (package.module) or a Flux file (.yaml; ARGS: name=VALUE), and NAME is a Topology, or a
    function that takes ARGS and returns one (default: topology). Exit code 0: all is acked; 1: failure, or messages
    failed and were not emitted again; 2: wrong use; 3: dead letters; 4: cut, with messages unanswered; 130:
    interrupted; the first of 130, 1, 3, 4. SIGTERM cuts and drains as --for does; a second one does not wait (143).
    """
    options = RunOptions(**given)
    if streamparse:
        options = options.of_streamparse()
    with contextlib.ExitStack() as stack:
        keeper = None
        if not (options.local or options.engine or options.directory):
            from squall.scheduler.cluster.keeper_process import KeeperProcess

            keeper = stack.enter_context(KeeperProcess())
        from squall.cli.running.run_job import run_job

        code = run_job(options, keeper)
    raise click.exceptions.Exit(code)
