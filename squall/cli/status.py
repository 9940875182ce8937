"""`squall status`: one topology in every detail, or the whole cluster."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from squall.cli.given.checks import Seconds
from squall.cli.shown.live import DeathNews, Look, watch
from squall.cli.shown.output import note
from squall.cli.shown.screen import LINE_INTERVAL_SECS, SCREEN_INTERVAL_SECS, interval_or_default, show
from squall.cli.shown.status_text import cluster_text, faults_in_force, topology_line, topology_text
from squall.cli.standing import (
    directory_option,
    job_of,
    json_option,
    nimbus_of,
    status_of,
    tell_unknown,
)
from squall.engine.errors import UsageError
from squall.engine.report.document import with_schema
from squall.engine.report.repeats import equal_deaths
from squall.engine.report.run_report import RunReport
from squall.ipc.board import SLOT_HELD_BYTES, STATE_NAMES
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Gone, Job
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.standing import open_cluster, uptime_secs
from squall.scheduler.common import process
from squall.scheduler.common.messages import ClusterState, RestartRecord, TopologyRecord, TopologyState
from squall.scheduler.common.role import RoleKind, processes_of
from squall.scheduler.records.daemon_deaths import read_deaths

ERRORS_SHOWN = 10
FAILED = "FAILED"
_RATES_SECS, _FIRST_SECS = 0.5, 0.2
"""Time over which rates are measured, and the first ones of --watch: its screen should not stay empty."""


@click.command("status")
@click.argument("name", required=False)
@click.option("--watch", "watching", is_flag=True, help="Show the topology again and again, and deaths as they happen.")
@click.option("--interval", "interval_secs", type=Seconds(0.05, 3600), metavar="SECS",
              help=f"Time over which rates are measured (default: {_RATES_SECS:g}), and between two looks of --watch "
                   f"({SCREEN_INTERVAL_SECS:g}; {LINE_INTERVAL_SECS:g}, and one line each, if stdout is no terminal).")
@directory_option
@json_option
def status_command(
    name: str | None, watching: bool, interval_secs: float | None, directory: str | None, as_json: bool
) -> None:
    """Show a topology: components, executors, workers, deaths, rates. Without NAME: the cluster."""
    if watching and as_json:
        raise UsageError("--watch has no end and --json is one document: choose one")
    if watching and name is None:
        raise UsageError("--watch shows one topology; give its NAME")
    looks_secs = interval_or_default(interval_secs, sys.stdout)
    if name is None:
        with nimbus_of(directory) as (run_dir, client):
            cluster = client.get_cluster()
            document = _cluster(run_dir, client, cluster)
        tell_unknown(cluster.unknown)
        show(as_json, with_schema("cluster", document), cluster_text(document))
        return
    with job_of(directory, name) as job:
        run_dir = open_cluster(directory)
        if watching:
            _watch_topology(run_dir, job, looks_secs)
            return
        before = job.stats()
        time.sleep(_RATES_SECS if interval_secs is None else interval_secs)
        document, why = describe(run_dir, job, before), job.why_stopped()
    show(as_json, with_schema("status", document), topology_text(document))
    note(*[f"{name} has stopped: {why}"] if why else [])


def _watch_topology(run_dir: RunDir, job: Job, interval_secs: float) -> None:
    """Show a topology again and again, until it is gone."""
    before, told = job.stats(), DeathNews(job.topology_state().restarts)
    # The first look has rates, too.
    time.sleep(min(_FIRST_SECS, interval_secs))

    def look() -> Look | str:
        nonlocal before
        try:
            document = describe(run_dir, job, before)
            before = job.stats()
            return Look(topology_text(document), topology_line(document), told.lines(job.topology_state().restarts))
        except Gone as gone:
            return str(gone)

    watch(look, interval_secs)


def _cluster(run_dir: RunDir, client: NimbusClient, cluster: ClusterState) -> dict[str, Any]:
    return {
        "dir": str(run_dir.path),
        "nodes": {node: [f"{node}:{port}" for port in ports] for node, ports in cluster.supervisors.items()},
        "gone": cluster.gone,
        "leaving": cluster.leaving,
        "free_slots": [str(slot) for slot in cluster.free_slots],
        "topologies": {record.name: status_of(client, record, run_dir) for record in cluster.topologies},
        "replaced_by": {
            record.name: record.successor.topology.id for record in cluster.topologies if record.successor is not None
        },
        "keeper_gone": run_dir.keeper_lock.exists() and not processes_of(run_dir, RoleKind.KEEPER),
        "daemon_deaths": read_deaths(run_dir)[-ERRORS_SHOWN:],
        "refused_frames": cluster.refused_frames,
        "unknown": cluster.unknown,
        "faults": faults_in_force(run_dir),
    }


def describe(run_dir: RunDir, job: Job, before: RunReport) -> dict[str, Any]:
    """Describe a topology completely; its rates are those since `before`."""
    now = job.stats()
    counts: dict[str, Any] = now.to_dict()
    state = job.topology_state()
    components = {component.id: component for component in state.topology.components}
    executors = _executors(state)
    return {
        "name": job.name, "id": job.id, "status": job.status(), "replaced_by": _successor(state.topology),
        "uptime_secs": round(uptime_secs(state.topology), 1),
        "cwd": state.topology.cwd, "env": state.topology.env_names,
        "workers_wanted": state.topology.conf["workers"],
        **{key: value for key, value in counts.items() if key not in ("components", "workers", "topology")},
        "drained": job.is_drained(),
        "rates": _rates(before, now),
        "components": {
            name: {
                **component,
                "executors": sum(executor["component"] == name for executor in executors),
                "tasks_fixed": components[name].tasks,
            }
            for name, component in counts["components"].items()
        },
        "executors": executors,
        "workers": _workers(job, state),
        "restarts_total": state.restarts_total,
        "given_up": [str(slot) for slot in state.topology.given_up],
        "deaths": [_death(equal) for equal in equal_deaths(state.restarts)[-ERRORS_SHOWN:]],
        "errors": [
            {"worker": one.slot, "incarnation": one.incarnation, "reason": one.reason, "error": one.error}
            for one in state.restarts if one.error
        ][-ERRORS_SHOWN:],
        "faults": faults_in_force(run_dir),
    }


def _successor(record: TopologyRecord) -> dict[str, Any] | None:
    """Describe the topology that takes this one's place."""
    if record.successor is None:
        return None
    topology = record.successor.topology
    return {
        "id": topology.id, "status": topology.status, "workers_wanted": topology.conf["workers"],
        "fresh": record.successor.fresh,
    }


def _rates(before: RunReport, now: RunReport) -> dict[str, float]:
    secs, was = max(now.duration_secs - before.duration_secs, 1e-3), _totals(before)
    # A move in between may have replaced the boards; totals never fall.
    rates = {f"{name}_per_sec": round(max(0, count - was[name]) / secs, 1) for name, count in _totals(now).items()}
    return {"over_secs": round(secs, 3), **rates}


def _totals(report: RunReport) -> dict[str, int]:
    return {
        "emitted": report.emitted + report.untracked_emitted, "acked": report.acked,
        "executed": sum(row.executed for row in report.components.values()),
    }


def _executors(state: TopologyState) -> list[dict[str, Any]]:
    if state.assignment is None:
        return []
    return [
        {"component": executor.component, "tasks": [executor.first_task, executor.last_task], "worker": str(slot)}
        for slot, executors in zip(state.assignment.workers, state.assignment.executors, strict=True)
        for executor in executors
    ]


def _workers(job: Job, state: TopologyState) -> list[dict[str, Any]]:
    view = job.view()
    if view is None:
        return []
    rows = []
    for index, slot in enumerate(view.assignment.workers):
        cell = view.board.slot(index)
        rows.append({
            "worker": str(slot), "pid": cell.pid, "incarnation": cell.incarnation,
            # The board's state, unless the supervisor has given the slot up.
            "state": FAILED if state.workers.get(str(slot)) == "failed" else STATE_NAMES[cell.state],
            "uptime_secs": round(process.secs_since(cell.started_ticks), 1)
            if process.lives(cell.pid, cell.started_ticks) else None,
            "restarts": sum(restart.slot == str(slot) for restart in state.restarts),
            "executors": len(view.assignment.executors[index]),
            "opening": _opening(view.opening(index, time.monotonic_ns())),
            "held_bytes": view.board.words[view.board.slot_at(index) + SLOT_HELD_BYTES],
        })
    return rows


def _opening(found: tuple[str, int, str, float] | None) -> dict[str, Any] | None:
    """Describe the task that a worker is opening."""
    if found is None:
        return None
    component, task, method, secs = found
    return {"component": component, "task": task, "method": method, "secs": round(secs, 1)}


def _death(equal: list[RestartRecord]) -> dict[str, Any]:
    """Describe the last of a worker's equal ends, with the first line of its last words or of its stack."""
    restart = equal[-1]
    return {
        "worker": restart.slot, "incarnation": restart.incarnation, "times": len(equal), "reason": restart.reason,
        "rss_bytes": restart.rss_bytes, "error": restart.error.partition("\n")[0],
    }
