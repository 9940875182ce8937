"""`squall run --on spark`: its options, and following the run. PySpark is imported when it begins."""

from __future__ import annotations

import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.cli.given.interrupts import Interrupts
from squall.cli.given.loader import Loaded
from squall.cli.shown.live import Progress
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import UsageError
from squall.engine.report.run_report import RunReport
from squall.scheduler.common import blob

if TYPE_CHECKING:
    from squall.pipeline.underneath.control import Control

#: Longest wait for a master to accept a connection; Spark itself would ask it for a minute.
ANSWER_SECS = 5.0
_MASTERS = "local, local[N], spark://HOST:PORT, yarn or k8s://..."
#: With how many attempts of a task, as Spark has it: local[4,3].
_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\])?")


@dataclass(frozen=True)
class SparkOptions:
    """What was asked for."""

    master: str | None
    checkpoint: str | None
    batch_rows: int | None
    accept_approx: bool


def spark_options(engine: str | None, given: Mapping[str, Any], others: Mapping[str, object]) -> SparkOptions | None:
    """Check the options of a run on Spark; None if it is not on Spark. `others`: those that it does not take."""
    options = SparkOptions(**given)
    if engine is None:
        for name, value in given.items():
            if value:
                raise UsageError(f"--{name.replace('_', '-')} is for --on spark")
        return None
    for name, value in others.items():
        if value:
            raise UsageError(f"{name} is not for --on spark: Spark places the tasks, and no fault can be injected")
    if options.master is not None:
        _check_master(options.master)
    return options


def _check_master(master: str) -> None:
    if not _LOCAL.fullmatch(master) and not master.startswith(("spark://", "k8s://")) and master != "yarn":
        raise UsageError(f"--master is {master!r}; allowed: {_MASTERS}")
    if not master.startswith("spark://"):
        return
    whys = []
    for place in master.removeprefix("spark://").split(","):
        host, colon, port = place.rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise UsageError(f"--master is {master!r}; allowed: {_MASTERS}")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECS).close()
        except OSError as error:
            whys.append(f"{place}: {error.strerror or error}")
        else:
            return
    raise UsageError(f"--master {master} does not answer ({'; '.join(whys)})")


def run_on_spark(
    loaded: Loaded, config: Config, name: str, options: SparkOptions, progress: Progress, interrupts: Interrupts,
    for_secs: float | None, drain_secs: float, arguments: Sequence[str],
) -> RunReport:
    """Run a topology on Spark until it is drained, interrupted or out of time."""
    from squall.pipeline.session import spark_session
    from squall.pipeline.underneath.checkpoint import Checkpoint
    from squall.pipeline.underneath.runner import SparkRun, Tell, check_pyspark

    topology = loaded.topology
    _check_plan(topology, config, options.accept_approx)
    check_pyspark()
    deadline = None if for_secs is None else time.monotonic() + for_secs
    drains_until: list[float] = []

    def should_drain() -> bool:
        if not (interrupts.count or (deadline is not None and time.monotonic() >= deadline)):
            return False
        drains_until.append(time.monotonic() + drain_secs)
        progress.print(f"draining for up to {drain_secs:g} s; interrupt again to stop at once")
        return True

    def should_stop() -> bool:
        return interrupts.count > 1 or bool(drains_until and time.monotonic() >= drains_until[0])

    def show(control: Control) -> None:
        if progress.due:
            progress.update([report.reading for report in control.reports.values()])

    tell = Tell(lambda who, line: progress.print(f"{who} | {line}"), progress.print, show)
    data = blob.dump(topology, loaded.script)
    with ExitStack() as stack:
        stack.callback(progress.close)
        checkpoint = stack.enter_context(
            Checkpoint(stack.enter_context(_directory(options.checkpoint)), topology, name, arguments)
        )
        load = partial(blob.load, data, [entry for entry in sys.path if entry])
        run = SparkRun(topology, config, name, load, checkpoint, tell, options.batch_rows)
        if run.is_done:
            progress.print(f"all of {options.checkpoint} is done")
            return run.report()
        if checkpoint.control.number >= 0:
            progress.print(f"going on after batch {checkpoint.control.number} of {options.checkpoint}")
        progress.stage("starting Spark")
        spark = stack.enter_context(spark_session(f"squall {name}", options.master))
        progress.stage("Spark is there; the first batch is under way")
        # Spark has set a handler of its own for SIGINT.
        interrupts.again()
        return run.run(spark, should_drain, should_stop)


def _check_plan(topology: Topology, config: Config, accept_approx: bool) -> None:
    from squall.pipeline.underneath.plan import APPROX, REFUSED, plan_topology

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


@contextmanager
def _directory(given: str | None) -> Iterator[Path]:
    """The directory of the checkpoint."""
    if given is not None:
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="squall-checkpoint-", ignore_cleanup_errors=True) as made:
        yield Path(made)
