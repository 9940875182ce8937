"""The methods of nimbus.thrift, by which Storm's clients ask and tell a cluster.

Guarantees: figures are those of Storm's REST API. Orders return at once, before a topology is drained.

Relies on: `ui.rest` for the figures, `ClusterApi` for orders. Thread: any.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import thriftpy2

from squall.engine.errors import UsageError
from squall.engine.foreign.text import plain
from squall.engine.report.document import strict_json
from squall.scheduler.client.statuses import ComponentStatus, ExecutorShown
from squall.scheduler.nimbus.submission import name_mistakes
from squall.ui.charts import WindowCounts
from squall.ui.cluster_api import ALL_TIME, ClusterApi
from squall.ui.rest import storm_cluster as cluster
from squall.ui.rest import storm_topology as topology
from squall.ui.sampler import Sample, Unknown

idl: Any = thriftpy2.load(str(Path(__file__).with_name("nimbus.thrift")), module_name="squall_nimbus_thrift")
"""What thriftpy2 makes of the interface: its structs, exceptions and service."""
_FIELDS = {
    idl.SupervisorSummary: ("host", "uptimeSeconds", "slotsTotal", "slotsUsed", "id", "version", "blacklisted"),
    idl.TopologySummary: (
        "id", "name", "tasksTotal", "executorsTotal", "workersTotal", "uptimeSeconds", "status", "stormVersion",
        "owner",
    ),
    idl.TopologyInfo: ("id", "name", "uptimeSeconds", "executors", "status", "errors", "stormVersion", "owner"),
    idl.ErrorInfo: ("error", "errorTime", "errorHost", "errorPort"),
}
"""Struct -> for each of its fields, in their order, the key in the document of the REST API."""
_SUBMIT = "programs in Python are submitted by `squall submit FILE --name NAME`"


class StormNimbus:
    """The methods, which thriftpy2 calls by their names."""

    def __init__(self, api: ClusterApi, host: str, port: int) -> None:
        """`host` and `port`: where clients find it."""
        self._api, self._host, self._port = api, host, port

    # ---- questions ----

    def getClusterInfo(self) -> Any:
        rows = cluster.supervisor_summary(self._api)["supervisors"]
        supervisors = [_filled(idl.SupervisorSummary, row) for row in rows]
        return idl.ClusterSummary(supervisors, self.getTopologySummaries(), [self.getLeader()])

    def getLeader(self) -> Any:
        """Storm's client asks this first, and goes where it is told."""
        [row] = cluster.nimbus_summary(self._api)["nimbuses"]
        leads = row["status"] == "Leader"
        return idl.NimbusSummary(self._host, self._port, row["nimbusUpTimeSeconds"], leads, row["version"])

    def getNimbusConf(self) -> str:
        return strict_json(cluster.configuration(self._api))

    def isTopologyNameAllowed(self, name: str) -> bool:
        return not name_mistakes(name or "") and name not in self._api.sampler.names()

    def getTopologySummaries(self) -> list[Any]:
        return list(map(_summary, cluster.samples(self._api)))

    def getTopologySummary(self, id: str) -> Any:
        return _summary(cluster.by_id(self._api, id))

    def getTopologySummaryByName(self, name: str) -> Any:
        return _summary(self._api.sampler.latest(name))

    def getTopologyInfo(self, id: str, options: Any = None) -> Any:
        return _info(cluster.by_id(self._api, id), options)

    def getTopologyInfoByName(self, name: str, options: Any = None) -> Any:
        return _info(self._api.sampler.latest(name), options)

    getTopologyInfoWithOpts, getTopologyInfoByNameWithOpts = getTopologyInfo, getTopologyInfoByName

    # ---- orders ----

    def activate(self, name: str) -> None:
        self._api.activate(name)

    def deactivate(self, name: str) -> None:
        self._api.deactivate(name)

    def killTopology(self, name: str, options: Any = None) -> None:
        self._api.kill(name, options and options.wait_secs)

    killTopologyWithOpts = killTopology

    def rebalance(self, name: str, options: Any) -> None:
        options = options or idl.RebalanceOptions()
        if options.topology_resources_overrides or options.topology_conf_overrides:
            raise UsageError("a rebalance changes workers and executors, neither resources nor settings")
        self._api.rebalance(name, options.num_workers, options.num_executors, options.wait_secs)

    # ---- refusals ----

    def beginFileUpload(self) -> NoReturn:
        raise idl.AuthorizationException(f"no files are taken: {_SUBMIT}")

    def submitTopology(self, name: str) -> NoReturn:
        raise idl.InvalidTopologyException(f"no topologies are taken: {_SUBMIT}")

    submitTopologyWithOpts = submitTopology


def as_storm(error: Exception) -> Exception:
    """A mistake as Storm's exception for it."""
    if isinstance(error, UsageError):
        kind = idl.NotAliveException if isinstance(error, Unknown) else idl.InvalidTopologyException
        return kind(plain(error))  # type: ignore[no-any-return]
    return error


def _filled(kind: Any, row: dict[str, Any]) -> Any:
    """Make a struct of a document of the REST API."""
    return kind(*map(row.__getitem__, _FIELDS[kind]))


def _summary(sample: Sample) -> Any:
    return _filled(idl.TopologySummary, cluster.topology_row(sample))


def _info(sample: Sample, options: Any) -> Any:
    choice, status = idl.NumErrorsChoice, sample.status
    most = {choice.NONE: 0, choice.ONE: 1}.get(options and options.num_err_choice)
    names = dict.fromkeys(each.component for each in status.executors)
    executors = [
        _executor(sample, name, each, done) for name in names for each, done in topology.by_executor(sample, name)
    ]
    errors = {
        name: [_filled(idl.ErrorInfo, row) for row in topology.errors_of(sample, name)[::-1][:most]]
        for name in status.components
    }
    return _filled(idl.TopologyInfo, {**cluster.topology_row(sample), "executors": executors, "errors": errors})


def _executor(sample: Sample, name: str, executor: ExecutorShown, done: WindowCounts) -> Any:
    where, component = cluster.place(sample, executor.worker), sample.status.components.get(name)
    return idl.ExecutorSummary(
        idl.ExecutorInfo(*executor.tasks), name, where["host"], where["port"], where["uptimeSeconds"],
        # An acker has no figures.
        None if component is None else _stats(sample, component, done),
    )


def _stats(sample: Sample, component: ComponentStatus, done: WindowCounts) -> Any:
    outputs = topology.by_output(component, done)
    if component.kind == "spout":
        spout = idl.SpoutStats(*_maps(outputs, "acked", "failed", "completeLatency"))
        specific = idl.ExecutorSpecificStats(spout=spout)
    else:
        figures = "acked", "failed", "processLatency", "executed", "executeLatency"
        bolt = idl.BoltStats(*_maps(topology.by_input(sample, component, done), *figures))
        specific = idl.ExecutorSpecificStats(bolt=bolt)
    # Storm counts a share of all tuples, the rate.
    return idl.ExecutorStats(*_maps(outputs, "emitted", "transferred"), specific, rate=1.0)


def _maps(rows: list[dict[str, Any]], *figures: str) -> Iterator[dict[str, Any]]:
    """Yield for each figure what Storm has of it: a map from window and stream, or input."""
    for figure in figures:
        yield {ALL_TIME: {
            idl.GlobalStreamId(row["component"], row["stream"]) if "component" in row else row["stream"]:
            # Means are texts in REST.
            float(row[figure]) if isinstance(row[figure], str) else row[figure]
            for row in rows
        }}
