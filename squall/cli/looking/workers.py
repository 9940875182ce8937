"""`squall logs`: what the workers of a topology have printed; `squall profile`: a flame graph of one."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import click
import psutil

from squall.cli.cluster_access import directory_option, job_of
from squall.cli.interrupts import Interrupts
from squall.cli.options import SomePath, json_option
from squall.cli.output import closed_pipe_is_no_error, note, reader_has_gone, say
from squall.cli.screen import show
from squall.engine.errors import ClusterError, UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.standing import open_cluster
from squall.scheduler.common.duration import parse_duration_secs
from squall.scheduler.common.logs import LogTail, log_line
from squall.ui.processes import record

_POLL_SECS = 0.05
_ANSWER_SECS = 1.0
"""Longest wait for Nimbus: logs are asked for when something is wrong, perhaps with it."""


@click.command("logs")
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines, until Ctrl-C.")
@directory_option
@json_option
def logs_command(name: str, follow: bool, directory: str | None, as_json: bool) -> None:
    """Show the logs of a topology's workers, per worker in order; also of one that is gone. With --follow also of one
    whose workers have not started yet."""
    if follow and as_json:
        raise UsageError("--follow has no end and --json is one document: choose one")
    tail = LogTail(_logs_of(open_cluster(directory), name), from_start=True)
    if not tail.workers:
        note(f"no worker of {name} has written yet; squall status {shlex.quote(name)} shows whether it runs")
    if follow:
        raise click.exceptions.Exit(_follow(tail.poll))
    lines = tail.poll()
    if lines or as_json:
        shown = [log_line(who, line) for who, line in lines]
        show(as_json, [{"worker": who, "line": line} for who, line in lines], [shown])
    elif tail.workers:
        note(f"the workers of {name} have printed nothing")


def _follow(new: Callable[[], list[tuple[str, str]]]) -> int:
    """Print new lines until interrupted, or until nobody reads them any more (`| head`); returns the exit code."""
    with Interrupts() as interrupts, closed_pipe_is_no_error():
        while not interrupts.count:
            for who, line in new():
                say(log_line(who, line))
            if reader_has_gone():
                raise BrokenPipeError
            time.sleep(_POLL_SECS)
    return interrupts.exit_code if interrupts.count else 0


def _logs_of(run_dir: RunDir, name: str) -> Path:
    """The log directory of the topology of that name, else of the newest that had it; its workers make it when they
    start."""
    numbered = re.compile(re.escape(run_dir.worker_logs(name).name) + r"-(\d+)-[0-9a-f]{8}")
    present = _present_id(run_dir, name)
    if present is not None:
        return run_dir.worker_logs(present)
    folders = [path for path in run_dir.logs.iterdir() if path.is_dir()] if run_dir.logs.is_dir() else []
    found = {int(match[1]): path for path in folders if (match := numbered.fullmatch(path.name))}
    if not found:
        names = ", ".join(sorted({folder.name.rsplit("-", 2)[0] for folder in folders})) or "none"
        raise UsageError(f"there are no logs of a topology named {name!r:.80}; topologies with logs: {names}")
    return found[max(found)]


def _present_id(run_dir: RunDir, name: str) -> str | None:
    """The id of a topology in the cluster; None also if Nimbus does not say: logs can be shown without it."""
    if run_dir.lock_holder() is None:
        return None
    try:
        with NimbusClient(run_dir, timeout_secs=_ANSWER_SECS) as client:
            return client.get_topology(name).topology.id
    except (UsageError, ClusterError):
        return None


_LOOK_SECS = 0.5
"""Over which the busiest worker is told."""


@click.command("profile")
@click.argument("name")
@click.option("--worker", metavar="NODE:PORT", help="The worker (default: the busiest).")
@click.option("--for", "duration", default="10s", show_default=True, metavar="DURATION", help="Time to look.")
@click.option("--out", type=SomePath(dir_okay=False), metavar="FILE.svg", help="File to write (default: NAME.svg).")
@directory_option
def profile_command(name: str, worker: str | None, duration: str, out: str | None, directory: str | None) -> None:
    """Draw a flame graph of where a worker of a topology spends its time. Needs the extra `ui`."""
    secs, file = parse_duration_secs(duration), Path(out or f"{name}.svg")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent} for {file.name}: make it, or choose another --out")
    with job_of(directory, name) as job:
        chosen, pid = _chosen(job, worker)
    note(f"looking at worker {chosen} (pid {pid}) for {secs:g} s")
    record(pid, secs, file)
    say(f"wrote {shlex.quote(str(file))}")


def _chosen(job: Job, worker: str | None) -> tuple[str, int]:
    """Return a worker and its pid."""
    view = job.view()
    slots = [] if view is None else enumerate(map(str, view.assignment.workers))
    pids = {slot: view.board.slot(index).pid for index, slot in slots if view is not None}
    there = {slot: pid for slot, pid in pids.items() if psutil.pid_exists(pid)}
    if not there or (worker is not None and worker not in there):
        names = ", ".join(there) or "none"
        raise UsageError(f"{job.name} has no worker {worker or ''}".rstrip() + f" that runs; its workers: {names}")
    if worker is None:
        before = {slot: _busy_secs(pid) for slot, pid in there.items()}
        time.sleep(_LOOK_SECS if len(there) > 1 else 0.0)
        worker = max(there, key=lambda slot: _busy_secs(there[slot]) - before[slot])
    return worker, there[worker]


def _busy_secs(pid: int) -> float:
    try:
        return sum(psutil.Process(pid).cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0
