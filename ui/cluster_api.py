"""What the REST API offers and the pages show: one function for each question and each order.

Guarantees: answers are documents of the types that JSON knows. A mistake in an order is a UsageError before anything
changes; a cluster that does not answer is a ClusterError. The pages have no other way to the cluster.

Relies on: `Sampler` for what is asked again and again. Thread: any; orders wait for Nimbus, so not an event loop's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from squall.engine.errors import UsageError
from squall.engine.report.metrics import merge
from squall.engine.report.run_report import Latency, latency_of
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.standing import job_named, limit_secs
from squall.scheduler.common.logs import LogTail
from squall.scheduler.faults.catalogue import CATALOGUE, Kind
from squall.scheduler.faults.in_force import FaultInForce
from squall.scheduler.faults.sentence import parse
from squall.scheduler.records.dead_letters import DeadLetter, DeadLetters
from squall.scheduler.records.failure_file import read_stopped
from squall.ui.charts import HistoryDocument, WindowCounts, component_rates, marks_of, points_of, rates_of, windowed
from squall.ui.history import DAY_SECS, ComponentCounts, History, row_of
from squall.ui.processes import Processes, Profiles
from squall.ui.sampler import ClusterNow, Sample, Sampler, TopologyNow, TopologyRow, Unknown
from squall.ui.watching import WatchDesk

_LOG_BYTES = 4 << 20
"""How much of a worker's log is searched, from its end."""
ALL_TIME = ":all-time"
WINDOWS = {"600": 600.0, "10800": 10_800.0, "86400": 86_400.0, ALL_TIME: None}
"""Storm's windows: name -> seconds."""


class ReadOnly(UsageError):
    """Orders are not taken."""


class ClusterApi:
    """One cluster, to be asked and told."""

    def __init__(self, sampler: Sampler, read_only: bool = False, history: History | None = None) -> None:
        """`history`: what the sampler tells its looks; None: there are no charts."""
        self.sampler = sampler
        self._history = history
        self.run_dir = sampler.run_dir
        self.read_only = read_only
        self._desk = WatchDesk(self._job)
        self._profiles = Profiles()
        self._processes = Processes(sampler.run_dir)

    def close(self) -> None:
        """End the traces and taps that were begun here."""
        self._desk.close()

    # ---- questions ----

    def cluster(self) -> ClusterNow:
        """The cluster: nodes, slots, topologies, deaths of daemons, faults."""
        return self.sampler.cluster()

    def topologies(self) -> list[TopologyRow]:
        """A row for each topology."""
        return list(map(self.row, self.sampler.names()))

    def row(self, name: str) -> TopologyRow:
        """A topology in short."""
        sample = self.sampler.latest(name)
        status = sample.status
        return TopologyRow(
            status.name, status.id, status.status, status.uptime_secs, status.workers_wanted,
            workers_ready=sum(worker.state == "ready" for worker in status.workers),
            tasks=sum(component.tasks for component in status.components.values()), executors=len(status.executors),
            restarts_total=status.restarts_total, acked=status.acked, failed=status.failed, pending=status.pending,
            dead_letters=status.dead_letters, rates=status.rates, latency_ms=status.latency_ms,
            recent_latency_ms=_recent_latency(sample),
        )

    def topology(self, name: str) -> TopologyNow:
        """A topology as `squall status --json` describes it, with what it did since the look before."""
        sample = self.sampler.latest(name)
        return TopologyNow(
            **vars(sample.status), at_unix_secs=sample.at_unix_secs,
            recent=component_rates(sample.before, sample.status, sample.secs),
            recent_latency_ms=_recent_latency(sample),
        )

    def history(self, name: str, window_secs: float, points: int) -> HistoryDocument:
        """Rates, pending messages and latencies of the last `window_secs`, at most a day, and what happened meanwhile.
        A point without values is a gap, in which nobody looked."""
        sample, secs = self.sampler.latest(name), min(window_secs, DAY_SECS)
        if self._history is None:
            return HistoryDocument(1, [], [])
        step_secs, rows = self._history.rows(sample.status.id, sample.at_unix_secs, secs, points)
        marks = marks_of(self.run_dir, sample, rows, sample.at_unix_secs - secs)
        return HistoryDocument(step_secs, points_of(rows, step_secs), marks)

    def window(self, name: str, window: str) -> tuple[float, dict[str, ComponentCounts]]:
        """What each component did in one of Storm's windows, and over how many seconds that is, as far as it is
        known."""
        secs = WINDOWS[window]
        sample = self.sampler.latest(name)
        now, age_secs = row_of(sample), sample.status.uptime_secs
        then = None
        if secs is not None and secs < age_secs and self._history is not None:
            then = self._history.at(sample.status.id, sample.at_unix_secs - secs)
        if then is None:
            return age_secs, now.components
        return now.at_unix_secs - then.at_unix_secs, {
            component: counted.since(then.components.get(component, ComponentCounts()))
            for component, counted in now.components.items()
        }

    def activity(self, name: str, window: str) -> dict[str, WindowCounts]:
        """Return what each component did in a window, with means."""
        over_secs, counts = self.window(name, window)
        return {
            component: windowed(over_secs, counts.get(component, ComponentCounts()), row.tasks)
            for component, row in self.sampler.latest(name).status.components.items()
        }

    def component(self, name: str, component: str) -> dict[str, Any]:
        """A component: what `topology` tells of it, its tasks and executors, and what it did in Storm's windows."""
        topology = self.topology(name)
        found = topology.components.get(component)
        if found is None:
            raise Unknown(f"{name} has no component {component!r:.80}; it has {', '.join(topology.components)}")
        return {
            "name": component, "component": found,
            "recent": topology.recent[component],
            "windows": {window: self.activity(name, window)[component] for window in WINDOWS},
            "tasks": [task for task in self.tasks(name) if task["component"] == component],
            "executors": [each for each in topology.executors if each.component == component],
        }

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """The counters of each task."""
        return [
            {key: value for key, value in reading._asdict().items() if key != "histogram"}
            for reading in self.sampler.latest(name).readings
        ]

    def busy(self, name: str, component: str) -> list[dict[str, Any]]:
        """How busy each task of a component was between the last two looks."""
        sample = self.sampler.latest(name)
        before = {reading.task: reading.counters for reading in sample.readings_before}
        return [
            {
                "task": reading.task, "worker": reading.worker, "in_queue": reading.counters["in_queue"],
                **asdict(rates_of(before.get(reading.task, reading.counters), reading.counters, sample.secs)),
            }
            for reading in sample.readings if reading.component == component
        ]

    def errors(self, name: str) -> dict[str, Any]:
        """Deaths of workers, errors of users' code, failed messages by reason."""
        status = self.sampler.latest(name).status
        keys = ("deaths", "errors", "failures", "close_errors")
        return {"stopped": read_stopped(self.run_dir, status.id), **{key: getattr(status, key) for key in keys}}

    def logs(self, name: str, worker: str, search: str, limit: int) -> list[dict[str, str]]:
        """The last lines of its workers' logs that hold a text, oldest first for each worker. Only the last 4 MiB of
        each log are searched."""
        topology_id = self.sampler.latest(name).status.id
        found = [
            {"worker": who, "line": line}
            for who in LogTail(self.run_dir.worker_logs(topology_id)).workers if worker in ("", who)
            for line in self._last_lines(topology_id, who) if search in line
        ]
        return found[-limit:]

    def _last_lines(self, topology_id: str, worker: str) -> list[str]:
        node, _, port = worker.rpartition(":")
        with open(self.run_dir.worker_log(topology_id, node, int(port)), "rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES)
            file.seek(start)
            lines = file.read(_LOG_BYTES).decode("utf-8", "replace").split("\n")
        # The last one has no end yet, or is empty; the first may have lost its beginning.
        return lines[1 if start else 0 : -1]

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """The messages that were given up."""
        return self._ledger(name).look().letters

    def processes(self) -> list[dict[str, Any]]:
        """The cluster's processes, with the CPU and memory that they take."""
        return self._processes.rows()

    def faults(self) -> list[Kind]:
        """Every fault that can be injected."""
        return list(CATALOGUE.values())

    # ---- orders ----

    def activate(self, name: str) -> str:
        """Let the spouts emit; returns the status."""
        return self._client_for(name).activate(name).status

    def deactivate(self, name: str) -> str:
        """Stop the spouts; returns the status."""
        return self._client_for(name).deactivate(name).status

    def rebalance(
        self, name: str, workers: int | None = None, executors: Mapping[str, int] | None = None,
        wait_secs: float | None = None,
    ) -> str:
        """Have it drained and spread anew, for at most `wait_secs` (its message timeout); returns the status."""
        client = self._client_for(name)
        record = client.get_topology(name).topology
        wanted = record.conf["workers"] if workers is None else workers
        return client.rebalance(name, wanted, dict(executors or {}), limit_secs(wait_secs, record)).status

    def kill(self, name: str, wait_secs: float | None = None) -> str:
        """Have it drained and removed, for at most `wait_secs` (its message timeout); returns the status."""
        client = self._client_for(name)
        record = client.get_topology(name).topology
        return client.kill_topology(name, limit_secs(wait_secs, record)).status

    def reset(self, name: str) -> str:
        """Have slots that were given up start anew; returns the status."""
        return self._client_for(name).reset(name).status

    def inject(self, line: str) -> list[FaultInForce]:
        """Begin a fault, as in `squall inject LINE`."""
        return self._client.inject(parse(line))

    def heal(self, targets: Sequence[str] = ()) -> list[FaultInForce]:
        """End faults in force, as in `squall heal`."""
        return self._client.heal(targets)

    def replay(self, name: str, ids: Sequence[str] = ()) -> list[DeadLetter]:
        """Give dead letters back to its spouts: these, or all."""
        self._check_writable()
        return self._ledger(name).give_back(ids)

    def begin_trace(self, name: str, message_id: str, sample: float, secs: float) -> dict[str, Any]:
        """Follow the messages with an id, or a share of all; returns the trace, as `trace` does."""
        self._check_writable()
        return self.trace(self._desk.begin_trace(name, message_id, sample, secs))

    def trace(self, trace_id: str) -> dict[str, Any]:
        """The ways of the messages that a trace has followed so far."""
        return self._desk.trace(trace_id)

    def begin_tap(self, name: str, component: str, secs: float = 60.0) -> dict[str, Any]:
        """Show tuples of a component as they pass; returns the tap, as `tap` does."""
        self._check_writable()
        return self.tap(self._desk.begin_tap(name, component, secs))

    def tap(self, tap_id: str) -> dict[str, Any]:
        """The last tuples that a tap has shown."""
        return self._desk.tap(tap_id)

    def end_watch(self, watch_id: str) -> None:
        """End a trace or a tap, and forget it."""
        self._check_writable()
        self._desk.end(watch_id)

    def profile(self, name: str, worker: str, secs: float) -> dict[str, Any]:
        """Draw a flame graph of where a worker spends the next seconds; returns its id."""
        self._check_writable()
        workers = {row.worker: row.pid for row in self.sampler.latest(name).status.workers}
        if not workers.get(worker):
            raise Unknown(f"{name} has no worker {worker!r:.80} that runs; its workers: {', '.join(workers)}")
        return {"id": self._profiles.draw(workers[worker], secs), "topology": name, "worker": worker}

    def profile_svg(self, profile_id: str) -> bytes:
        """A flame graph. Unknown if there is none, or not any more."""
        svg = self._profiles.svg(profile_id)
        if svg is None:
            raise Unknown(f"there is no profile {profile_id!r:.80}, or not any more")
        return svg

    def _job(self, name: str) -> Job:
        return job_named(self._client_for(name), name)

    @property
    def _client(self) -> NimbusClient:
        self._check_writable()
        return self.sampler.client()

    def _client_for(self, name: str) -> NimbusClient:
        """The client for an order to a topology. Unknown if Nimbus does not have it."""
        client = self._client
        if name not in [record.name for record in client.get_cluster().topologies]:
            raise Unknown(f"there is no topology {name!r:.80}")
        return client

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnly("this server is read-only: it was started with --read-only")

    def _ledger(self, name: str) -> DeadLetters:
        return DeadLetters(self.run_dir.topology_state(self.sampler.latest(name).status.name))


def _recent_latency(sample: Sample) -> Latency:
    """Percentiles of the messages that were acked between the last two looks."""
    now, before = (
        merge(reading.histogram for reading in readings if reading.kind == "spout")
        for readings in (sample.readings, sample.readings_before)
    )
    return latency_of([max(0, count - was) for count, was in zip(now, before, strict=True)])
