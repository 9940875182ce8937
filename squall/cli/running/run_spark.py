"""`squall run --on spark`: starts and follows the run. PySpark is imported when it begins."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from squall.cli.interrupts import Interrupts
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import UsageError
from squall.engine.report.run_report import RunReport
from squall.scheduler.common import blob

if TYPE_CHECKING:
    from squall.cli.running.run import LoadedRun
    from squall.pipeline.on_spark.batch_control import Control

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

