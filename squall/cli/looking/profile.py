"""`squall profile`: a flame graph of one worker."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import click
import psutil

from squall.cli.cluster_access import directory_option, job_of
from squall.cli.options import SomePath
from squall.cli.output import note, say
from squall.engine.errors import UsageError
from squall.scheduler.client.job import Job
from squall.scheduler.common.duration import parse_duration_secs
from squall.ui.processes import record

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
