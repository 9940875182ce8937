"""`squall status`: one topology in every detail, or the whole cluster."""

from __future__ import annotations

import time
from typing import Any

import click

from squall.cli.checks import seconds
from squall.cli.fault_text import faults_in_force
from squall.cli.standing import directory_option, job_of, json_option, nimbus_of, show, tell_refused, tell_unknown
from squall.cli.status_text import cluster_text, topology_text
from squall.engine.report.run_report import TaskReading
from squall.ipc.board import SLOT_HELD_BYTES, STATE_NAMES, SlotCell
from squall.scheduler.client.job import Job
from squall.scheduler.client.standing import open_cluster, uptime_secs
from squall.scheduler.common import process
from squall.scheduler.common.messages import ClusterState, RestartRecord, TopologyState

ERRORS_SHOWN = 10
FAILED = "FAILED"


@click.command("status")
@click.argument("name", required=False)
@click.option("--over", "over_secs", type=float, default=0.5, show_default=True, metavar="SECS",
              callback=seconds(0.05, 3600), help="Time over which rates are measured.")
@directory_option
@json_option
def status_command(name: str | None, over_secs: float, directory: str | None, as_json: bool) -> None:
    """Show a topology: components, executors, workers, deaths, rates. Without NAME: the cluster."""
    if name is None:
        with nimbus_of(directory) as (run_dir, client):
            cluster = client.get_cluster()
        document = {"dir": str(run_dir.path), **_cluster(cluster), "faults": faults_in_force(run_dir)}
        tell_unknown(cluster.unknown)
        show(as_json, document, cluster_text(document))
        if tell_refused(run_dir, cluster):
            raise click.exceptions.Exit(1)
        return
    with job_of(directory, name) as job:
        document = describe(job, over_secs)
        document["faults"] = faults_in_force(open_cluster(directory))
    show(as_json, document, topology_text(document))


def _cluster(cluster: ClusterState) -> dict[str, Any]:
    return {
        "nodes": {node: [f"{node}:{port}" for port in ports] for node, ports in cluster.supervisors.items()},
        "gone": cluster.gone,
        "free_slots": [str(slot) for slot in cluster.free_slots],
        "topologies": {record.name: record.status for record in cluster.topologies},
        "refused_frames": cluster.refused_frames,
        "unknown": cluster.unknown,
    }


def describe(job: Job, over_secs: float) -> dict[str, Any]:
    """Describe a topology completely. Takes `over_secs`, the time between two readings of the counts."""
    before, began = job.readings(), time.monotonic()
    time.sleep(over_secs)
    after, took_secs = job.readings(), time.monotonic() - began
    counts: dict[str, Any] = job.stats().to_dict()
    state = job.state()
    components = {component.id: component for component in state.topology.components}
    executors = _executors(state)
    return {
        "name": job.name, "id": job.id, "status": job.status(),
        "uptime_secs": round(uptime_secs(state.topology), 1),
        "cwd": state.topology.cwd, "env": state.topology.env_names,
        "workers_wanted": state.topology.conf["workers"],
        **{key: value for key, value in counts.items() if key not in ("components", "workers", "topology")},
        "drained": job.is_drained(),
        "rates": {"over_secs": round(took_secs, 3), **_rates(before, after, took_secs)},
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
        "deaths": [_death(restart) for restart in state.restarts][-ERRORS_SHOWN:],
        "errors": [_error(restart) for restart in state.restarts if restart.error][-ERRORS_SHOWN:],
    }


def _rates(before: list[TaskReading], after: list[TaskReading], secs: float) -> dict[str, float]:
    def total(readings: list[TaskReading], kind: str, counter: str) -> int:
        return sum(reading.counters[counter] for reading in readings if reading.kind == kind)

    # A move in between may have replaced the boards; totals never fall.
    pairs = {"emitted_per_sec": ("spout", "emitted"), "acked_per_sec": ("spout", "acked"),
             "executed_per_sec": ("bolt", "executed")}
    return {name: round(max(0, total(after, *pair) - total(before, *pair)) / secs, 1) for name, pair in pairs.items()}


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
            "state": _state(state.workers.get(str(slot), ""), STATE_NAMES[cell.state]),
            "uptime_secs": _age_secs(cell),
            "restarts": sum(restart.slot == str(slot) for restart in state.restarts),
            "executors": len(view.assignment.executors[index]),
            "held_bytes": view.board.words[view.board.slot_at(index) + SLOT_HELD_BYTES],
        })
    return rows


def _state(said: str, seen: str) -> str:
    """A slot's state: the board's, unless the supervisor has given the slot up."""
    return FAILED if said == "failed" else seen


def _age_secs(cell: SlotCell) -> float | None:
    """Age of a living worker in seconds; None if it is dead."""
    if not process.lives(cell.pid, cell.started_ticks):
        return None
    return round(process.secs_since(cell.started_ticks), 1)


def _death(restart: RestartRecord) -> dict[str, Any]:
    """Describe a worker's end, with the first line of its last words or of its stack."""
    return {
        "worker": restart.slot, "incarnation": restart.incarnation, "reason": restart.reason,
        "rss_bytes": restart.rss_bytes, "error": restart.error.partition("\n")[0],
    }


def _error(restart: RestartRecord) -> dict[str, Any]:
    shown = {"incarnation": restart.incarnation, "reason": restart.reason, "error": restart.error}
    return {"worker": restart.slot, **shown}
