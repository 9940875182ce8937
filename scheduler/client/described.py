"""Describes a cluster and its topologies, as the types of `statuses`: for `squall status`, the REST API
and the web page alike.

Guarantees: `describe` has every key of docs/schemas/status.json; its rates are those since the report that it is given.

Process: any of the owner's. Thread: that of the `Job` or client that it is given.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import psutil

from squall.engine.api.stream import SYSTEM_PREFIX
from squall.engine.errors import ClusterError
from squall.engine.foreign.text import plural
from squall.engine.report.failure_log import equal_deaths
from squall.engine.report.run_report import Figures
from squall.engine.state.reading import partition_of
from squall.engine.state.windowing.event_time import END, STANDS
from squall.ipc.board import SLOT_HELD_BYTES, STATE_NAMES
from squall.ipc.metric_file import read_streams
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.standing import uptime_secs
from squall.scheduler.client.statuses import (
    FAILED,
    OTHER,
    ClusterStatus,
    ComponentStatus,
    ExecutorShown,
    FaultShown,
    OpeningTask,
    Output,
    ProcessShown,
    Rates,
    StandingTime,
    Status,
    SuccessorShown,
    WorkerDeath,
    WorkerError,
    WorkerShown,
)
from squall.scheduler.common import process
from squall.scheduler.common.daemon import DaemonRecord, read_deaths, read_record
from squall.scheduler.common.messages import ClusterState, RestartRecord, TopologyRecord, TopologyState
from squall.scheduler.common.role import RoleKind, role_of
from squall.scheduler.faults.in_force import FaultInForce, faults_now

ERRORS_SHOWN = 10
_ORDER = [*RoleKind, OTHER]


def describe_cluster(
    client: NimbusClient, cluster: ClusterState, statuses: Mapping[str, str] = MappingProxyType({})
) -> ClusterStatus:
    """Describe the cluster: nodes, slots, topologies, deaths of daemons, faults. `statuses`: of topologies, by id, as
    far as they are known."""
    run_dir = client.run_dir
    return ClusterStatus(
        dir=str(run_dir.path),
        nodes={node: [f"{node}:{port}" for port in ports] for node, ports in cluster.supervisors.items()},
        gone=cluster.gone,
        leaving=cluster.leaving,
        free_slots=[str(slot) for slot in cluster.free_slots],
        topologies={
            record.name: statuses.get(record.id) or status_of(client, record) for record in cluster.topologies
        },
        replaced_by={
            record.name: record.successor.topology.id for record in cluster.topologies if record.successor is not None
        },
        keeper_gone=run_dir.keeper_lock.exists() and daemon_process(run_dir, "keeper") is None,
        daemon_deaths=read_deaths(run_dir)[-ERRORS_SHOWN:],
        refused_frames=cluster.refused_frames,
        unknown=cluster.unknown,
        faults=faults_in_force(run_dir),
    )


def describe(job: Job, before: Figures | None) -> Status:
    """Describe a topology completely; its rates are those since `before`, 0 without."""
    now = job.stats()
    state = job.known_state()
    components = {component.id: component for component in state.topology.components}
    executors, streams = _executors(state), read_streams(job.run_dir.metrics(job.id))
    numbers = Counter(executor.component for executor in executors)
    own = ("topology", "components", "workers", "drained")
    return Status(
        **{key: value for key, value in vars(now).items() if key not in own},
        name=job.name, id=job.id, status=job.status(state), replaced_by=_successor(state.topology),
        uptime_secs=round(uptime_secs(state.topology), 1),
        cwd=state.topology.cwd, env=state.topology.env_names,
        workers_wanted=state.topology.conf["workers"],
        drained=job.is_drained(),
        rates=_rates(before or now, now),
        event_time=dict(_event_times(job, now.metrics, executors)),
        components={
            name: ComponentStatus(
                **vars(component),
                executors=numbers[name],
                tasks_fixed=components[name].tasks,
                inputs=components[name].inputs,
                outputs={
                    stream: Output(_own(fields), streams.get((name, stream), 0))
                    for stream, fields in components[name].outputs.items()
                },
            )
            for name, component in now.components.items()
        },
        executors=executors,
        workers=_workers(job, state),
        restarts_total=state.restarts_total,
        given_up=[str(slot) for slot in state.topology.given_up],
        why_stopped=job.why_stopped(state),
        deaths=[_death(equal, job.started) for equal in equal_deaths(state.restarts)[-ERRORS_SHOWN:]],
        errors=[
            WorkerError(death.slot, death.incarnation, death.reason, death.error)
            for death in state.restarts if death.error
        ][-ERRORS_SHOWN:],
        faults=faults_in_force(job.run_dir),
    )


def _own(fields: list[str]) -> list[str]:
    """Of the fields, those that the user declared."""
    return [field for field in fields if not field.startswith(SYSTEM_PREFIX)]


def _successor(record: TopologyRecord) -> SuccessorShown | None:
    """Describe the topology that takes this one's place."""
    if record.successor is None:
        return None
    topology = record.successor.topology
    return SuccessorShown(topology.id, topology.status, topology.conf["workers"], record.successor.fresh)


def _rates(before: Figures, now: Figures) -> Rates:
    secs = max(now.duration_secs - before.duration_secs, 1e-3)
    # A move in between may have replaced the boards; totals never fall.
    grown = (max(0, count - earlier) for count, earlier in zip(_totals(now), _totals(before), strict=True))
    return Rates(round(secs, 3), *(round(count / secs, 1) for count in grown))


def _totals(report: Figures) -> tuple[int, int, int]:
    """Return what was emitted, acked and executed."""
    executed = sum(row.executed for row in report.components.values())
    return report.emitted + report.untracked_emitted, report.acked, executed


def _executors(state: TopologyState) -> list[ExecutorShown]:
    if state.assignment is None:
        return []
    return [
        ExecutorShown(executor.component, [executor.first_task, executor.last_task], worker)
        for worker, executors in zip(map(str, state.assignment.workers), state.assignment.executors, strict=True)
        for executor in executors
    ]


def _event_times(
    job: Job, metrics: Mapping[str, Any], executors: list[ExecutorShown]
) -> Iterator[tuple[str, StandingTime]]:
    """Describe where event time stands in each bolt in which it has not ended."""
    component_of = {row.tasks[0]: row.component for row in executors}
    for name, own in metrics.items():
        times, since, sources, places = (own.get(gauge, {}) for gauge in STANDS)
        # The tasks tell each other their times, so what the last one waits for holds up all of them.
        for task in sorted(filter(since.get, times), key=times.get)[:1]:
            spout = component_of.get(sources[task], "")
            try:
                partition, index = partition_of(job.run_dir.topology_state(job.name), spout, int(places[task]))
            except ClusterError as error:  # of one topology: the rest of the document tells what came of it
                partition, index = str(error), None
            yield name, StandingTime(
                at=datetime.fromtimestamp(times[task], UTC).isoformat() if times[task] > -END / 1e9 else None,
                secs=round(time.monotonic() - since[task], 1), spout=spout, partition=partition,
                task=None if index is None else int(sources[task]) + index,
            )


def event_time_lines(status: Status, least_secs: float = 0) -> Iterator[str]:
    """Say where event time has stood for so long or longer, and what it waits for, as `describe` has described it."""
    for name, row in status.event_time.items():
        stands = f"stands at {row.at}" if row.at else "has not begun"
        where = (f"[{row.task}]" if row.task else "") + (row.partition and f", partition {row.partition}")
        waits = f"waits for {row.spout}{where}" if row.spout else "nothing newer has come"
        if row.secs >= least_secs:
            yield f"event time of {name} {stands} for {row.secs:,.0f} s: {waits}"


def _workers(job: Job, state: TopologyState) -> list[WorkerShown]:
    view = job.view()
    if view is None:
        return []
    rows = []
    for index, slot in enumerate(view.assignment.workers):
        cell = view.board.slot(index)
        opening = view.opening(index, time.monotonic_ns())
        rows.append(WorkerShown(
            worker=str(slot), pid=cell.pid, incarnation=cell.incarnation,
            # The board's state, unless the supervisor has given the slot up.
            state=FAILED if state.workers.get(str(slot)) == "failed" else STATE_NAMES[cell.state],
            uptime_secs=round(process.secs_since(cell.started_ticks), 1)
            if process.lives(cell.pid, cell.started_ticks) else None,
            restarts=sum(restart.slot == str(slot) for restart in state.restarts),
            executors=len(view.assignment.executors[index]),
            opening=None if opening is None else OpeningTask(*opening[:3], round(opening[3], 1)),
            held_bytes=view.board.column(SLOT_HELD_BYTES)[index],
        ))
    return rows


def _death(equal: list[RestartRecord], started: float) -> WorkerDeath:
    """Describe the last of equal ends, with the first line of its last words or of its stack."""
    restart = equal[-1]
    return WorkerDeath(
        restart.slot, restart.incarnation, restart.reason, restart.error.partition("\n")[0], times=len(equal),
        workers=len({death.slot for death in equal}),
        first_secs=round(equal[0].at_monotonic_secs - started, 2),
        last_secs=round(restart.at_monotonic_secs - started, 2), rss_bytes=restart.rss_bytes,
    )


def status_of(client: NimbusClient, record: TopologyRecord) -> str:
    """Return the status of a topology, for people."""
    with contextlib.closing(Job(client, record)) as job:
        try:
            return job.status()
        except ClusterError:  # it was removed, or its board cannot be read: that is told by squall status
            return record.status


def who(faults: Sequence[FaultInForce]) -> str:
    """Name the targets of faults, for people."""
    names = [name for fault in faults for name in _whom(fault)]
    return ", ".join(dict.fromkeys(names)) or "nobody"


def _whom(fault: FaultInForce) -> list[str]:
    if fault.victims:
        return [f"{victim.name} (pid {victim.pid})" for victim in fault.victims]
    if fault.tasks:
        return [plural(len(fault.tasks), "task") + f" of {' '.join(fault.targets)}"]
    if fault.links:
        return [f"{link.sender} -> {link.receiver}" for link in fault.links]
    return list(fault.targets)


def daemon_process(run_dir: RunDir, name: str) -> DaemonRecord | None:
    """The process of "nimbus", "keeper" or, for example, "supervisor-node-1"; None if it does not live."""
    record = read_record(run_dir.daemon_record(name))
    return record if record is not None and process.lives(record.pid, record.started_ticks) else None


def faults_in_force(run_dir: RunDir) -> list[FaultShown]:
    """Describe the faults now in force in all topologies and daemons."""
    now = time.monotonic()
    return [
        FaultShown(
            fault.id, fault.kind, fault.targets, who([fault]), round(fault.left_secs(now), 1), fault.params,
            fault.probability,
        )
        for fault in faults_now(run_dir, now)
    ]


def describe_processes(processes: list[psutil.Process]) -> list[ProcessShown]:
    """Return a row for each process of a cluster, in the order of roles, nodes and ports."""
    rows = []
    for found in processes:
        with contextlib.suppress(psutil.Error, OSError), found.oneshot():
            role, parent = role_of(found), found.parent()
            if role is not None and role.kind is RoleKind.WORKER and parent is not None and role_of(parent) == role:
                # A child of a worker that did not execute anything shows the worker's role.
                role = None
            node, _, port = ("" if role is None else role.name).partition(":")
            rows.append(ProcessShown(
                role=OTHER if role is None else str(role.kind),
                node=node or None, port=int(port) if port.isdecimal() else None,
                topology=(role.topology if role is not None else "") or None,
                pid=found.pid, parent_pid=found.ppid(),
                uptime_secs=round(process.secs_since(process.start_time_ticks(found.pid)), 1),
                rss_bytes=found.memory_info().rss, command=" ".join(found.cmdline()).rstrip(),
            ))
    return sorted(rows, key=lambda row: (
        _ORDER.index(row.role), row.node or "", row.port or 0, row.pid,
    ))
