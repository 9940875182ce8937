"""Runs the topology of `squall run`: on a cluster of its own, in this process, or on Spark."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from shutil import disk_usage
from typing import TYPE_CHECKING, Any

from squall.cli.cluster_access import emitted_again
from squall.cli.interrupts import Interrupts
from squall.cli.loader import load_topology, name_in_file
from squall.cli.output import closed_pipe_is_no_error, exit_code, note, reserve_stdout, say_json
from squall.cli.report_text import print_summary, warn_of_late
from squall.cli.running.live import Progress
from squall.cli.running.run import LoadedRun, RunOptions
from squall.cli.settings import layers_of
from squall.cli.steering.ui import tell_link, ui_options
from squall.engine.api.stream import declared
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import plural, repr_of
from squall.engine.report.document import with_schema
from squall.engine.report.run_report import RunReport
from squall.ipc.private import room_error
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.cluster.starting import check_workers
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.common.environment import apply_logging_settings
from squall.scheduler.common.logs import log_line
from squall.scheduler.nimbus.submission import check_topology_name

if TYPE_CHECKING:
    from squall.engine.api.failure import Failure
    from squall.engine.api.topology import Topology
    from squall.scheduler.cluster.fault_plan import FaultDriver, FaultPlan
    from squall.scheduler.cluster.keeper_process import KeeperProcess


_LETTERS_SHOWN, _CHARS = 20, 100


def run_job(options: RunOptions, keeper: KeeperProcess | None) -> int:
    """Run a topology as the options say; returns the exit code. `keeper`: of its cluster, if that is to have an
    anonymous directory."""
    name = _name_of(options)
    layers = layers_of(options.settings, workers=options.workers)
    _check_place(options)
    if not options.local and options.engine is None:
        check_workers(layers.config().workers, options.nodes)
    for_secs = parse_duration_secs(options.duration) if options.duration is not None else None
    # From here on users' code runs in this process, and may print.
    out = reserve_stdout() if options.as_json else None
    loaded = load_topology(options.target, list(options.arguments), options.app_dir)
    config = layers.config(loaded.topology.config)
    apply_logging_settings(config, topology=name, worker="local")
    run = LoadedRun(options, name, loaded, config, for_secs)
    ended: ClusterError | None = None
    with Interrupts() as interrupts:
        try:
            report = _run(run, keeper, interrupts)
        except ClusterError as error:
            if error.report is None:
                raise
            ended, report = error, error.report
    note(*report.close_errors)
    if text := _unfinished_text(report):
        note(text)
    warn_of_late(report)
    with closed_pipe_is_no_error(out):
        if out is not None:
            say_json(with_schema("run", report), out=out)
        elif report.emitted or ended is None:
            print_summary(report)
    if ended is not None:
        raise ended
    return interrupts.code_after_drain(exit_code(report, config.fail_on_late))


def _check_place(options: RunOptions) -> None:
    """UsageError for an option that is not for the place in which the topology is to run."""
    cluster, local, spark = "a cluster", "--local", "--on spark"
    place = spark if options.engine is not None else local if options.local else cluster
    for name, value, places in (
        ("--local", options.local, (local,)),
        ("--workers", options.workers, (cluster, local)),
        ("--nodes", options.nodes > 1, (cluster, local)),
        ("--dir", options.directory, (cluster, local)),
        ("--fault", options.faults, (cluster,)),
        ("--faults", options.fault_plans, (cluster,)),
        ("--ui", options.ui, (cluster,)),
        ("--master", options.master, (spark,)),
        ("--checkpoint", options.checkpoint, (spark,)),
        ("--batch-rows", options.batch_rows, (spark,)),
        ("--accept-approx", options.accept_approx, (spark,)),
    ):
        if value and place not in places:
            raise UsageError(f"{name} is for {' or '.join(places)}, not for {place}")


def _name_of(options: RunOptions) -> str:
    """The topology's name, by default that in a Flux file, or the file's. UsageError if no topology may have it."""
    if (given := options.name or name_in_file(options.target, list(options.arguments))) is not None:
        check_topology_name(given)
        return given
    name = options.target.rpartition("/")[2].partition(":")[0]
    name = re.sub(r"\.(py|ya?ml)$", "", name).replace(".", "-")
    try:
        check_topology_name(name)
    except UsageError as error:
        raise UsageError(f"the file's name cannot be the topology's, choose one with --name: {error}") from None
    return name


def _run(run: LoadedRun, keeper: KeeperProcess | None, interrupts: Interrupts) -> RunReport:
    """ClusterError, with its report, of a run that cannot go on."""
    if run.options.engine is not None:
        from squall.cli.data.spark import run_on_spark

        return run_on_spark(run, interrupts)
    if run.options.local:
        return _run_local(run, interrupts)
    return _run_on_cluster(run, keeper, interrupts)


def _run_on_cluster(run: LoadedRun, keeper: KeeperProcess | None, interrupts: Interrupts) -> RunReport:
    nodes, slots = run.options.nodes, -(-run.config.workers // run.options.nodes)
    check_workers(run.config.workers, nodes)
    plan = _plan(run, [f"node-{number}" for number in range(1, nodes + 1)], slots)
    ui = ui_options(run.options.ui)
    with LocalCluster(nodes, slots, run.options.directory, keeper=keeper, ui=ui) as cluster:
        progress = run.progress()
        if ui is not None:
            tell_link(cluster.run_dir, interrupts)
        try:
            if others := {*(names := cluster.names())} - {run.name}:
                raise UsageError(f"--dir has topology {min(others)}: `squall up` and `squall kill` it, or take another")
            # An earlier run that was killed has left its topology.
            # With a plan, the driver activates it, so that faults at 0 s begin before the first tuple.
            job = cluster.submit(
                run.name, run.loaded.topology, run.config, run.loaded.script, active=plan is None, fresh=False,
                replace=bool(names), wait_secs=0.0,
            )
            progress.began = job.started
            if job.takes_up_state:
                note(f"it goes on from the state that an earlier {run.name} left in {cluster.run_dir.path}")
            driver = None
            if plan is not None:
                from squall.scheduler.cluster.fault_plan import FaultDriver

                driver = FaultDriver(plan, cluster.client, job, lambda text: progress.print(f"fault: {text}"))
            return _follow(run, cluster, job, progress, interrupts, driver)
        finally:
            progress.close()


def _plan(run: LoadedRun, nodes: list[str], slots: int) -> FaultPlan | None:
    """The faults to inject; None if there are none."""
    faults, plans = run.options.faults, run.options.fault_plans
    if not faults and not plans:
        return None
    from squall.scheduler.cluster.fault_plan import read_plan, view_before

    return read_plan(faults, plans, view_before(run.name, run.loaded.topology, nodes, slots), run.for_secs)


def _run_local(run: LoadedRun, interrupts: Interrupts) -> RunReport:
    from squall.engine.core.local import LocalRunner
    from squall.scheduler.common.blob import copy_component

    is_over = run.clock()

    def should_stop() -> bool:
        return bool(interrupts.count) or is_over()

    runner = LocalRunner(run.loaded.topology, run.config, run.name, copy=copy_component, interrupts=False)
    try:
        report = runner.run(should_stop=should_stop)
        if not report.drained and interrupts.count <= 1:
            report = runner.drain(run.options.drain_secs, should_stop=lambda: interrupts.count > 1)
    finally:
        _tell_letters(run.loaded.topology, runner.dead_letters)
        crashes = runner.close()
    return replace(report, close_errors=[str(crash) for crash in crashes])


def _tell_letters(topology: Topology, letters: Sequence[tuple[str, int, Any, Any, Failure]]) -> None:
    """Nobody else answers for these messages: a run in this process leaves no ledger."""
    for spout, _, message_id, values, failure in letters[:_LETTERS_SHOWN]:
        row = repr_of(declared(topology[spout].outputs, values), _CHARS)
        note(f"dead letter, not kept by --local: message {repr_of(message_id, _CHARS)} of {spout}, {row}: {failure}")
    if len(letters) > _LETTERS_SHOWN:
        note(f"and {plural(len(letters) - _LETTERS_SHOWN, 'more dead letter')}; a run on workers keeps them")


def _follow(
    run: LoadedRun, cluster: LocalCluster, job: Job, progress: Progress, interrupts: Interrupts,
    driver: FaultDriver | None,
) -> RunReport:
    """Show progress until drained, interrupted or out of time; then drain and remove the topology."""
    is_over, drain_secs = run.clock(), run.options.drain_secs

    def turn() -> None:
        cluster.check_daemons()
        for worker, line in cluster.new_log_lines():
            progress.print(log_line(worker, line))
        progress.tell_deaths(job.known_deaths())
        if progress.due:
            # What workers say of a full disk goes to logs that are on it. The trial write is synced, so not on others.
            full = room_error(durable) if disk_usage(durable := cluster.run_dir.durable).free < 1 << 20 else ""
            progress.update(job.readings(), full and f"{full}; ")

    def stop_waiting() -> bool:
        turn()
        if driver is not None:
            driver.turn()
        return bool(interrupts.count) or is_over()

    def stop_draining() -> bool:
        turn()
        return interrupts.count > 1

    try:
        drained = job.await_drained(on_wait=stop_waiting)
    except ClusterError as error:
        turn()
        with contextlib.suppress(ClusterError):  # it is gone
            error.report = job.stats()
        raise
    if driver is not None:
        driver.end()
    if interrupts.count:
        progress.print(f"draining for up to {drain_secs:g} s; interrupt again to stop at once")
    job.drain(drain_secs if interrupts.count < 2 else 0.0, on_wait=stop_draining)
    if interrupts.count > 1:
        report = job.stats()
        cluster.close(grace_secs=0.0)
        return report
    if not job.removed:
        job.kill(0.0)
    turn()
    report = job.stats()
    # Seen once is enough: one more turn of a worker before its stop does not change it.
    return replace(report, drained=report.drained or drained)


def _unfinished_text(report: RunReport) -> str:
    """The run's unfinished work, from the report; "" if there is none."""
    told = report.pending + report.waiting + report.orphaned + report.unreplayed
    kinds = (
        (report.pending, "pending"), (report.waiting, "waiting for a retry"),
        (report.orphaned, "under way in a worker that died"),
        (max(0, report.unanswered - told),
         "not emitted again by their task" + " since its worker died" * bool(report.restarts)),
    )
    parts = [f"{count:,} {what}" for count, what in kinds if count]
    count = sum(count for count, _ in kinds)
    return f"stopped with unfinished messages: {', '.join(parts)}; {emitted_again(count)}" if parts else ""
