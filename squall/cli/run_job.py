"""Runs the topology of `squall run`: on a cluster of its own, in this process, or on Spark."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall.cli.given.interrupts import Interrupts
from squall.cli.given.loader import load_topology
from squall.cli.given.settings import layers_of
from squall.cli.run import exit_code
from squall.cli.shown.live import Progress
from squall.cli.shown.output import closed_pipe_is_no_error, note, reserve_stdout, say_json
from squall.cli.shown.report_text import print_summary
from squall.cli.standing import emitted_again
from squall.engine.api.config import Config
from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.engine.plural import plural
from squall.engine.report.run_report import RunReport
from squall.engine.report.schema import with_schema
from squall.scheduler.client.job import Job
from squall.scheduler.client.log_tail import log_line
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.cluster.size import check_workers
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.common.user_logging import apply_settings
from squall.scheduler.nimbus.submission import check_topology_name

if TYPE_CHECKING:
    from squall.engine.api.failure import Failure
    from squall.engine.api.topology import Topology
    from squall.scheduler.cluster.fault_driver import FaultDriver
    from squall.scheduler.cluster.keeper_process import KeeperProcess
    from squall.scheduler.faults.fault_plan import Plan


_LETTERS_SHOWN, _LETTER_CHARS = 20, 100


def run_job(
    keeper: KeeperProcess | None, target: str, app_dir: str | None, workers: int | None, nodes: int, name: str | None,
    settings: tuple[str, ...], duration: str | None, drain_secs: float, interval: float | None, directory: str | None,
    faults: tuple[str, ...], fault_plans: tuple[str, ...],
    local: bool, engine: str | None, quiet: bool, as_json: bool, arguments: tuple[str, ...], **on_spark: Any,
) -> int:
    """Run a topology as the options of `squall run` say; returns the exit code. `keeper`: of its cluster, if that is to
    have an anonymous directory."""
    name = _name_of(target, name)
    layers = layers_of(settings, workers=workers)
    if nodes < 1:
        raise UsageError(f"--nodes is {nodes}; allowed: an integer from 1 up")
    if local and (faults or fault_plans):
        raise UsageError("--fault and --faults break processes and links; with --local there are none")
    spark = None
    if engine is not None or any(on_spark.values()):
        from squall.cli.run_spark import spark_options

        spark = spark_options(engine, on_spark, {
            "--workers": workers, "--nodes": nodes > 1, "--local": local, "--fault": faults, "--faults": fault_plans,
            "--dir": directory,
        })
    if not local and spark is None:
        check_workers(layers.config().workers, nodes)
    for_secs = parse_duration_secs(duration) if duration is not None else None
    # From here on users' code runs in this process, and may print.
    out = reserve_stdout() if as_json else None
    loaded = load_topology(target, list(arguments), app_dir)
    config = layers.config(loaded.topology.config)
    apply_settings(config, topology=name, worker="local")
    with Interrupts() as interrupts:
        if spark is not None:
            from squall.cli.run_spark import run_on_spark

            shown = Progress(name, interval, quiet or as_json)
            report = run_on_spark(
                loaded, config, name, spark, shown, interrupts, for_secs, drain_secs, arguments
            )
        elif local:
            report = _run_local(loaded.topology, config, name, for_secs, drain_secs, interrupts)
        else:
            check_workers(config.workers, nodes)
            slots = -(-config.workers // nodes)
            names = [f"node-{number}" for number in range(1, nodes + 1)]
            plan = _plan(faults, fault_plans, name, loaded.topology, names, slots, for_secs)
            with LocalCluster(nodes, slots, directory, keeper=keeper) as cluster:
                progress = Progress(name, interval, quiet or as_json)
                try:
                    # With a plan, the driver activates it, so that faults at 0 s begin before the first tuple.
                    job = cluster.submit(name, loaded.topology, config, loaded.script, active=plan is None, fresh=False)
                    if job.takes_up_state:
                        note(f"it goes on from the state that an earlier {name} left in {cluster.run_dir.path}")
                    driver = _driver(plan, cluster, job, progress) if plan else None
                    report = _follow(cluster, job, progress, interrupts, for_secs, drain_secs, driver)
                finally:
                    progress.close()
    note(*report.close_errors)
    if text := _unfinished_text(report):
        note(text)
    with closed_pipe_is_no_error(out):
        if out is not None:
            say_json(with_schema("run", report.to_dict()), out=out)
        else:
            print_summary(report)
    return interrupts.code_after_drain(exit_code(report))


def _plan(
    faults: tuple[str, ...], plans: tuple[str, ...], name: str, topology: Topology, nodes: list[str], slots: int,
    for_secs: float | None,
) -> Plan | None:
    """The faults to inject; None if there are none."""
    if not faults and not plans:
        return None
    from squall.scheduler.cluster.fault_driver import view_before
    from squall.scheduler.faults.fault_plan import read_plan

    return read_plan(faults, plans, view_before(name, topology, nodes, slots), for_secs)


def _driver(plan: Plan, cluster: LocalCluster, job: Job, progress: Progress) -> FaultDriver:
    from squall.scheduler.cluster.fault_driver import FaultDriver

    return FaultDriver(plan, cluster.client, job, lambda text: progress.print(f"fault: {text}"))


def _name_of(target: str, name: str | None) -> str:
    """The topology's name, by default the file's. UsageError if no topology may have it."""
    if name is not None:
        check_topology_name(name)
        return name
    name = target.rpartition("/")[2].partition(":")[0].removesuffix(".py").replace(".", "-")
    try:
        check_topology_name(name)
    except UsageError as error:
        raise UsageError(f"the file's name cannot be the topology's, choose one with --name: {error}") from None
    return name


def _run_local(
    topology: Any, config: Config, name: str, for_secs: float | None, drain_secs: float, interrupts: Interrupts
) -> RunReport:
    from squall.engine.core.local import LocalRunner
    from squall.scheduler.common.blob import copy_component

    deadline = None if for_secs is None else time.monotonic() + for_secs

    def should_stop() -> bool:
        return bool(interrupts.count) or (deadline is not None and time.monotonic() >= deadline)

    runner = LocalRunner(topology, config, name, copy=copy_component, interrupts=False)
    try:
        report = runner.run(should_stop=should_stop)
        if not report.drained and interrupts.count <= 1:
            report = runner.drain(drain_secs, should_stop=lambda: interrupts.count > 1)
    finally:
        _tell_letters(runner.dead_letters)
        crashes = runner.close()
    return replace(report, close_errors=[str(crash) for crash in crashes])


def _tell_letters(letters: Sequence[tuple[str, int, Any, Any, Failure]]) -> None:
    """Nobody else answers for these messages: a run in this process leaves no ledger."""
    for spout, _, message_id, values, failure in letters[:_LETTERS_SHOWN]:
        what = f"message {repr_of(message_id, _LETTER_CHARS)} of {spout}, {repr_of(values, _LETTER_CHARS)}"
        note(f"dead letter, not kept by --local: {what}: {failure}")
    if len(letters) > _LETTERS_SHOWN:
        note(f"and {plural(len(letters) - _LETTERS_SHOWN, 'more dead letter')}; a run on workers keeps them")


def _follow(
    cluster: LocalCluster, job: Job, progress: Progress, interrupts: Interrupts, for_secs: float | None,
    drain_secs: float, driver: FaultDriver | None,
) -> RunReport:
    """Show progress until drained, interrupted or out of time; then drain and remove the topology."""
    deadline = None if for_secs is None else time.monotonic() + for_secs

    def turn() -> None:
        cluster.check_daemons()
        for worker, line in cluster.new_log_lines():
            progress.print(log_line(worker, line))
        progress.tell_deaths(job.known_deaths())
        if progress.due:
            progress.update(job.readings())

    def stop_waiting() -> bool:
        turn()
        if driver is not None:
            driver.turn()
        return bool(interrupts.count) or (deadline is not None and time.monotonic() >= deadline)

    def stop_draining() -> bool:
        turn()
        return interrupts.count > 1

    drained = job.await_drained(on_wait=stop_waiting)
    if driver is not None:
        driver.end()
    if interrupts.count:
        progress.print(f"draining for up to {drain_secs:g} s; interrupt again to stop at once")
    job.drain(drain_secs if interrupts.count < 2 else 0.0, on_wait=stop_draining)
    if interrupts.count > 1:
        report = job.stats()
        cluster.close(grace_secs=0.0)
        return report
    job.remove()
    turn()
    report = job.stats()
    # Seen once is enough: one more turn of a worker before its stop does not change it.
    return dataclasses.replace(report, drained=report.drained or drained)


def _unfinished_text(report: RunReport) -> str:
    """The run's unfinished work, from the report; "" if there is none."""
    kinds = (
        (report.pending, "pending"), (report.waiting, "waiting for a retry"),
        (report.orphaned, "under way in a worker that died"),
    )
    parts = [f"{count:,} {what}" for count, what in kinds if count]
    count = report.pending + report.waiting + report.orphaned
    return f"stopped with unfinished messages: {', '.join(parts)}; {emitted_again(count)}" if parts else ""
