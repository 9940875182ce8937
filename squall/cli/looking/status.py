"""`squall status`: one topology in every detail, or the whole cluster; `squall top`: a topology live in the terminal;
`squall ps`: the processes of a cluster, by role."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import starmap

import click

from squall.cli.cluster_access import directory_option, job_of, nimbus_of, tell_unknown
from squall.cli.options import Seconds, json_option
from squall.cli.output import note
from squall.cli.report_text import components_grid, count_lines, detail_blocks, emitted_text, latency_text
from squall.cli.screen import Block, Cell, Grid, alarm_cell, is_terminal, plain_number, show, state_cell
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plural
from squall.engine.report.document import with_schema
from squall.ipc.private import room_error
from squall.scheduler.client.described import describe, describe_cluster, describe_processes, event_time_lines
from squall.scheduler.client.standing import open_cluster, start_hint
from squall.scheduler.client.statuses import (
    OTHER,
    ClusterStatus,
    FaultShown,
    ProcessList,
    ProcessShown,
    Status,
    WorkerDeath,
)
from squall.scheduler.common.daemon import DaemonDeath
from squall.scheduler.common.role import processes_of

_RATES_SECS = 0.5
"""Time over which rates are measured."""


@click.command("status")
@click.argument("name", required=False)
@directory_option
@json_option
def status_command(name: str | None, directory: str | None, as_json: bool) -> None:
    """Show a topology: components, executors, workers, deaths, rates. Without NAME: the cluster. `squall top` shows a
    topology live."""
    if name is None:
        with nimbus_of(directory) as client:
            cluster = client.get_cluster()
            described = describe_cluster(client, cluster)
            note(*filter(None, [room_error(client.run_dir.durable)]))  # as below
        tell_unknown(cluster.unknown)
        show(as_json, with_schema("cluster", described), cluster_text(described))
        return
    with job_of(directory, name) as job:
        before = job.stats()
        time.sleep(_RATES_SECS)
        status = describe(job, before)
        # What its processes say of a full disk goes to logs that are on it.
        note(*filter(None, [room_error(job.run_dir.durable)]))
    show(as_json, with_schema("status", status), topology_text(status))


@click.command("ps")
@directory_option
@json_option
def ps_command(directory: str | None, as_json: bool) -> None:
    """List every process of the cluster: role, node, port, topology, pid. Needs no Nimbus."""
    run_dir = open_cluster(directory)
    rows = describe_processes(processes_of(run_dir))
    if not rows:
        raise UsageError(f"no process of a cluster runs in {run_dir.path}: {start_hint(directory)}")
    show(as_json, with_schema("ps", ProcessList(str(run_dir.path), rows)), [_processes(rows)])


def _processes(rows: list[ProcessShown]) -> Block:
    head = ["role", "node", "port", "topology", "pid", "uptime s", "MiB"]
    return Grid(head, [
        [
            row.role if row.role != OTHER else f"{OTHER}: {row.command}", row.node, plain_number(row.port),
            row.topology, plain_number(row.pid), round(row.uptime_secs), row.rss_bytes >> 20,
        ]
        for row in rows
    ])


@click.command("top")
@click.argument("name")
@click.option("--interval", "interval_secs", type=Seconds(0.05, 3600), default=1.0, show_default=True, metavar="SECS",
              help="Time between two looks, over which rates are measured.")
@directory_option
def top_command(name: str, interval_secs: float, directory: str | None) -> None:
    """Show the components of a topology live: rates, capacity, queues, errors. Keys: 1 to 0 sort by a column, Enter
    shows a component's executors and errors, q quits. Needs the extra `ui`."""
    try:
        from squall.ui.top_screen import Top
    except ModuleNotFoundError:
        raise UsageError("squall top needs Textual: pip install 'squall[ui]'") from None
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError("squall top needs a terminal; `squall status` prints one look")
    opened = partial(job_of, directory, name)
    with opened():  # an unknown name is refused before there is a screen
        pass
    Top(opened, headline, interval_secs).run()


_LONG_OPENING_SECS = 1.0
"""Time after which a task that is being opened is shown."""


def cluster_text(cluster: ClusterStatus) -> list[Block]:
    """Show a cluster as described by `squall status`."""
    blocks: list[Block] = [f"cluster in {cluster.dir}: {'; '.join(_cluster(cluster))}"]
    if cluster.topologies:
        rows = [[name, state_cell(status)] for name, status in cluster.topologies.items()]
        blocks.append(Grid(["topology", "status"], rows))
    if cluster.replaced_by:
        blocks.append(list(starmap(replaced_text, cluster.replaced_by.items())))
    if cluster.daemon_deaths:
        blocks.append(["last deaths of daemons:", *map(_daemon_death, cluster.daemon_deaths)])
    if broken := fault_lines(cluster.faults):
        blocks.append(Cell(broken, "magenta"))
    return blocks


def _cluster(cluster: ClusterStatus) -> list[str]:
    slots, nodes = sum(map(len, cluster.nodes.values())), plural(len(cluster.nodes), "node")
    return [
        f"{nodes}, {plural(slots, 'slot')}, {len(cluster.free_slots)} free",
        *(f"node {node} is gone: it has been silent for some seconds" for node in cluster.gone),
        *(f"node {node} is leaving: it gets no more work" for node in cluster.leaving),
        *(["its keeper has died: `squall up` starts one that brings back daemons"] if cluster.keeper_gone else []),
    ]


def _daemon_death(row: DaemonDeath) -> str:
    """ "2026-11-25 22:15:03 nimbus: killed by SIGKILL"."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at_unix_secs))
    return f"{at} {row.daemon}: {row.reason}{': ' + row.error if row.error else ''}"


def topology_text(status: Status) -> list[Block]:
    """Show a topology as described by `describe`."""
    broken = fault_lines(status.faults)
    blocks: list[Block] = [headline(status)]
    if not status.workers:
        return [*blocks, broken] if broken else blocks
    if status.replaced_by:
        blocks.append(replaced_text(status.name, status.replaced_by.id))
    blocks += [components_grid(status), _workers(status)]
    if opening := opening_lines(status):
        blocks.append(Cell(opening, "yellow"))
    blocks += [lines for lines in detail_blocks(status) if lines]
    if status.deaths:
        blocks.append(["last deaths:", *map(_death, status.deaths)])
    if status.why_stopped:
        blocks.append(Cell([f"stopped: {status.why_stopped}"], "bold red"))
    if status.given_up:
        slots = ", ".join(status.given_up)
        blocks.append(Cell(f"given up: {slots}; `squall reset {status.name}` tries again", "bold red"))
    if broken:
        blocks.append(Cell(broken, "magenta"))
    return blocks


def replaced_text(name: str, successor: str) -> str:
    """Tell people what takes the place of a topology."""
    return f"{name} is being replaced by {successor}, which begins when it has drained"


def _death(row: WorkerDeath) -> str:
    """ "node-1:6700 incarnation 3 at 7.12 s: killed by SIGSEGV, 31 MiB (2 times on 1 worker, first at 3.50 s)"."""
    memory = f", {row.rss_bytes >> 20} MiB" if row.rss_bytes else ""
    error = f": {row.error}" if row.error else ""
    times = f" ({row.times:,} times on {plural(row.workers, 'worker')}, first at {row.first_secs:.2f} s)"
    who = f"{row.worker} incarnation {row.incarnation} at {row.last_secs:.2f} s"
    return f"{who}: {row.reason}{memory}{error}{times if row.times > 1 else ''}"


def headline(status: Status) -> list[str]:
    """Tell the state, account and speed of a topology in a few lines."""
    if not status.workers:
        return [f"{status.name} is {status.status} and waits for a free slot"]
    rates = status.rates
    ready = sum(row.state == "ready" for row in status.workers)
    workers = f"{ready} of {plural(status.workers_wanted, 'worker')}"
    if status.restarts_total:
        workers += f", {plural(status.restarts_total, 'restart')}"
    drained = "; drained: its spouts have nothing more to emit" if status.drained else ""
    latency = latency_text(status.latency_ms, ("p50", "p99", "max"))
    speed = f"{rates.emitted_per_sec:,.0f} emitted/s, {rates.acked_per_sec:,.0f} acked/s"
    return [
        f"{status.name} is {status.status}, up {status.uptime_secs:.0f} s, {workers}{drained}",
        emitted_text(status),
        f"{speed}; emit to ack: {latency}",
        *count_lines(status),
        *event_time_lines(status),
    ]


def _workers(status: Status) -> Grid:
    rows = [
        [
            row.worker, state_cell(row.state), plain_number(row.pid), row.incarnation,
            round(row.uptime_secs or 0.0), alarm_cell(row.restarts),
            ", ".join(_executors_of(status, row.worker)),
        ]
        for row in status.workers
    ]
    return Grid(["worker", "state", "pid", "incarnation", "uptime s", "restarts", "executors"], rows)


def opening_lines(status: Status) -> list[str]:
    """ "enrich[7] on node-1:6700 is still in setup after 12 s"."""
    found = [(row.worker, row.opening) for row in status.workers if row.opening is not None]
    return [
        f"{task.component}[{task.task}] on {worker} is still in {task.method} after {task.secs:.0f} s"
        for worker, task in found if task.secs >= _LONG_OPENING_SECS
    ]


def _executors_of(status: Status, worker: str) -> list[str]:
    """ "count[3-4]" for the executor of tasks 3 and 4."""
    return [
        f"{row.component}[{'-'.join(dict.fromkeys(map(str, row.tasks)))}]"
        for row in status.executors
        if row.worker == worker
    ]


def fault_lines(faults: Sequence[FaultShown]) -> list[str]:
    """Return lines for people; none if no fault is in force."""
    return [
        f"broken on purpose: {row.kind} {row.hits}, {row.left_secs:g} s left (squall heal ends it)"
        for row in faults
    ]
