"""`squall run`: one topology on a cluster of its own, in the foreground."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from squall.cli.checks import seconds, some_path
from squall.cli.environment import environment_options, read_environment
from squall.cli.fault_options import read_faults
from squall.cli.interrupts import Interrupts
from squall.cli.layers import layers_of
from squall.cli.loader import load_topology
from squall.cli.logging_options import logging_options
from squall.cli.output import note, reserve_stdout, say_json
from squall.cli.progress import Progress
from squall.cli.run_spark import run_on_spark, spark_options
from squall.cli.standing import emitted_again
from squall.cli.summary import print_summary
from squall.cli.target import target_options
from squall.engine.api.config import Config
from squall.engine.core.local import LocalRunner
from squall.engine.errors import UsageError
from squall.engine.foreign.plain_text import plain
from squall.engine.report.run_report import RunReport
from squall.scheduler.client.job import Job
from squall.scheduler.client.log_tail import log_line
from squall.scheduler.cluster.fault_driver import FaultDriver, points_text, view_before
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.cluster.size import check_workers, this_machine
from squall.scheduler.common.blob import copy_component
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.common.fault_points import ENVIRONMENT
from squall.scheduler.common.user_logging import apply_settings
from squall.scheduler.nimbus.submission import check_topology_name

EXIT_OK, EXIT_FAILURE, EXIT_DEAD_LETTERS, EXIT_UNPROCESSED = 0, 1, 3, 4


@click.command("run", context_settings={"ignore_unknown_options": False})
@target_options
@click.option("--workers", type=int, help="Worker processes (setting workers).")
@click.option("--nodes", type=int, default=1, show_default=True, help="Nodes (supervisors) to spread them over.")
@click.option("--name", help="Name of the topology; the file's name by default.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; see squall config.")
@click.option("--for", "duration", metavar="DURATION", help="Drain and stop after this long, e.g. 30s, 5m.")
@click.option("--drain-secs", type=float, default=30.0, show_default=True, metavar="SECS", callback=seconds(),
              help="Longest wait for pending messages.")
@click.option("--interval", type=float, default=1.0, show_default=True, metavar="SECS", callback=seconds(above=True),
              help="Time between two progress reports.")
@click.option("--dir", "directory", type=click.Path(), callback=some_path, allow_from_autoenv=False,
              help="Run directory to use and keep (default: temporary).")
@click.option("--fault", "faults", multiple=True, metavar="LINE", help="Inject this fault; see squall faults.")
@click.option("--faults", "fault_plans", multiple=True, metavar="PLAN.yaml",
              help="Inject the faults of this plan; see docs/faults.md.")
@environment_options
@logging_options
@click.option("--local", is_flag=True, help="Run everything in this process, deterministically: for a debugger.")
@click.option("--on", "engine", type=click.Choice(["spark"]), help="Run it on Spark; see docs/spark.md.")
@click.option("--master", metavar="URL", help="With --on spark: the cluster (default: this machine's cores).")
@click.option("--checkpoint", type=click.Path(), callback=some_path,
              help="With --on spark: directory to keep, and to go on from.")
@click.option("--batch-rows", type=click.IntRange(min=1), metavar="N",
              help="With --on spark: most messages of a spout task in a batch.")
@click.option("--accept-approx", is_flag=True, help="With --on spark: run also what differs; see squall spark plan.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--json", "as_json", is_flag=True,
              help="Print the report as one JSON document on stdout; other prints go to stderr.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]")
def run_command(
    target: str, app_dir: str | None, workers: int | None, nodes: int, name: str | None, settings: tuple[str, ...],
    duration: str | None, drain_secs: float, interval: float, directory: str | None,
    faults: tuple[str, ...], fault_plans: tuple[str, ...],
    variables: tuple[str, ...], variable_files: tuple[str, ...], log_level: str | None, log_format: str | None,
    local: bool, engine: str | None, quiet: bool, as_json: bool, arguments: tuple[str, ...], **on_spark: Any,
) -> None:
    """Run the topology in FILE until its spouts are exhausted and everything is acked.

    FILE may also be a module (package.module), and NAME is a Topology, or a function that takes ARGS and returns one
    (default: topology). Exit code 0: all that was emitted is acked; 1: failure, messages failed and were not emitted
    again, or close or cleanup raised; 2: wrong use; 3: finished, with dead letters; 4: finished (or cut by --for), but
    messages are pending or wait for a retry, or untracked tuples are unprocessed or unknown; 130: interrupted. The
    first of 130, 1, 3, 4 that applies.
    """
    name = _name_of(target, name)
    layers = layers_of(settings, workers=workers, log_level=log_level, log_format=log_format)
    if nodes < 1:
        raise UsageError(f"--nodes is {nodes}; allowed: an integer from 1 up")
    if local and (faults or fault_plans):
        raise UsageError("--fault and --faults break processes and links; with --local there are none")
    spark = spark_options(engine, on_spark, {
        "--workers": workers, "--nodes": nodes > 1, "--local": local, "--fault": faults, "--faults": fault_plans,
        "--dir": directory,
    })
    if not local and spark is None:
        check_workers(layers.config().workers, nodes, this_machine())
    for_secs = parse_duration_secs(duration) if duration is not None else None
    # The code in this process and the daemons started next, with their workers, have them.
    os.environ.update(read_environment(variables, variable_files))
    # From here on users' code runs in this process, and may print.
    out = reserve_stdout() if as_json else None
    loaded = load_topology(target, list(arguments), app_dir)
    config = layers.config(loaded.topology.config)
    apply_settings(config, topology=name, worker="local")
    with Interrupts() as interrupts:
        if spark is not None:
            shown = Progress(name, interval, quiet or as_json)
            report = run_on_spark(loaded, config, name, spark, shown, interrupts, for_secs, drain_secs)
        elif local:
            report = _run_local(loaded.topology, config, name, for_secs, drain_secs, interrupts)
        else:
            check_workers(config.workers, nodes, this_machine())
            slots = -(-config.workers // nodes)
            names = [f"node-{number}" for number in range(1, nodes + 1)]
            plan = read_faults(faults, fault_plans, view_before(name, loaded.topology, names, slots), for_secs)
            if plan is not None and (points := points_text(plan)):
                # The daemons started next, and their workers, inherit it.
                os.environ[ENVIRONMENT] = points
            # A plan may kill daemons: with a keeper they come back.
            with LocalCluster(nodes, slots, directory, keeper=plan is not None) as cluster:
                progress = Progress(name, interval, quiet or as_json)
                try:
                    # With a plan, the driver activates it, so that faults at 0 s begin before the first tuple.
                    job = cluster.submit(name, loaded.topology, config, loaded.script, active=plan is None)
                    driver = FaultDriver(plan, cluster.client, job, names, _fault_line(progress)) if plan else None
                    report = _follow(cluster, job, progress, interrupts, for_secs, drain_secs, driver)
                finally:
                    progress.close()
    for error in report.close_errors:
        note(plain(error))
    if text := _unfinished_text(report):
        note(text)
    if out is not None:
        say_json(report.to_dict(), sort_keys=True, out=out)
    else:
        print_summary(report)
    raise click.exceptions.Exit(interrupts.exit_code if interrupts.count else exit_code(report))


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
    deadline = None if for_secs is None else time.monotonic() + for_secs

    def should_stop() -> bool:
        return bool(interrupts.count) or (deadline is not None and time.monotonic() >= deadline)

    runner = LocalRunner(topology, config, name, copy=copy_component, interrupts=False)
    try:
        report = runner.run(should_stop=should_stop)
        if not report.drained and interrupts.count <= 1:
            report = runner.drain(drain_secs, should_stop=lambda: interrupts.count > 1)
    finally:
        crashes = runner.close()
    return replace(report, close_errors=[str(crash) for crash in crashes])


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
        _tell_points(driver)
        cluster.close(grace_secs=0.0)
        return report
    job.remove()
    turn()
    _tell_points(driver)
    report = job.stats()
    # Seen once is enough: one more turn of a worker before its stop does not change it.
    return dataclasses.replace(report, drained=report.drained or drained)


def _tell_points(driver: FaultDriver | None) -> None:
    if driver is not None:
        driver.tell_points()


def _fault_line(progress: Progress) -> Callable[[str], None]:
    return lambda text: progress.print(f"fault: {plain(text)}")


def _unfinished_text(report: RunReport) -> str:
    """The run's unfinished work, from the report; "" if there is none."""
    kinds = (
        (report.pending, "pending"), (report.waiting, "waiting for a retry"),
        (report.orphaned, "under way in a worker that died"),
    )
    parts = [f"{count:,} {what}" for count, what in kinds if count]
    count = report.pending + report.waiting + report.orphaned
    return f"stopped with unfinished messages: {', '.join(parts)}; {emitted_again(count)}" if parts else ""


def exit_code(report: RunReport) -> int:
    """1 if messages failed and were not emitted again, or a task raised at its end; 3 with dead letters; 4 if messages
    were left unanswered, or tuples without a tree are not known to be processed; else 0."""
    if report.unreplayed or report.close_errors:
        return EXIT_FAILURE
    if report.dead_letters:
        return EXIT_DEAD_LETTERS
    left = report.pending + report.waiting + report.orphaned + report.untracked.unprocessed + report.untracked.unknown
    return EXIT_UNPROCESSED if left else EXIT_OK
