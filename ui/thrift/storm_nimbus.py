"""The methods of nimbus.thrift, by which Storm's clients ask and tell a cluster.

Guarantees: figures are those of Storm's REST API. Orders return at once, before a topology is drained.

Relies on: `ui.rest` for the figures, `ClusterApi` for orders. Thread: any.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import thriftpy2

from squall.engine.errors import UsageError
from squall.engine.foreign.text import plain
from squall.engine.report.document import strict_json
from squall.scheduler.nimbus.submission import name_mistakes
from squall.ui.cluster_api import ClusterApi
from squall.ui.rest import storm_cluster as cluster
from squall.ui.rest import storm_topology as topology
from squall.ui.sampler import Sample, Unknown

idl: Any = thriftpy2.load(str(Path(__file__).with_name("nimbus.thrift")), module_name="squall_nimbus_thrift")
"""What thriftpy2 makes of the interface: its structs, exceptions and service."""
_ALL_TIME = ":all-time"
_SUBMIT = "programs in Python are submitted by `squall submit FILE --name NAME`"


class StormNimbus:
    """The methods, which thriftpy2 calls by their names."""

    def __init__(self, api: ClusterApi, host: str, port: int) -> None:
        """`host` and `port`: where clients find it."""
        self._api, self._host, self._port = api, host, port

    # ---- questions ----

    def getClusterInfo(self) -> Any:
        rows = cluster.supervisor_summary(self._api)["supervisors"]
        return idl.ClusterSummary(list(map(_supervisor, rows)), self.getTopologySummaries(), [self.getLeader()])

    def getLeader(self) -> Any:
        """Storm's client asks this first, and goes where it is told."""
        [row] = cluster.nimbus_summary(self._api)["nimbuses"]
        leads = row["status"] == "Leader"
        return idl.NimbusSummary(self._host, self._port, row["nimbusUpTimeSeconds"], leads, row["version"])

    def getNimbusConf(self) -> str:
        return strict_json(cluster.configuration())

    def isTopologyNameAllowed(self, name: str) -> bool:
        return not name_mistakes(name or "") and name not in self._api.sampler.names()

    def getTopologySummaries(self) -> list[Any]:
        return list(map(_summary, cluster.samples(self._api)))

    def getTopologySummary(self, id: str) -> Any:
        return _summary(cluster.by_id(self._api, id))

    def getTopologySummaryByName(self, name: str) -> Any:
        return _summary(self._api.sampler.latest(name))

    def getTopologyInfo(self, id: str) -> Any:
        return _info(cluster.by_id(self._api, id))

    def getTopologyInfoByName(self, name: str) -> Any:
        return _info(self._api.sampler.latest(name))

    def getTopologyInfoWithOpts(self, id: str, options: Any) -> Any:
        return _info(cluster.by_id(self._api, id), options)

    def getTopologyInfoByNameWithOpts(self, name: str, options: Any) -> Any:
        return _info(self._api.sampler.latest(name), options)

    # ---- orders ----

    def activate(self, name: str) -> None:
        self._api.activate(name)

    def deactivate(self, name: str) -> None:
        self._api.deactivate(name)

    def killTopology(self, name: str) -> None:
        self._api.kill(name)

    def killTopologyWithOpts(self, name: str, options: Any) -> None:
        self._api.kill(name, options and options.wait_secs)

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


def _supervisor(row: dict[str, Any]) -> Any:
    return idl.SupervisorSummary(
        row["host"], row["uptimeSeconds"], row["slotsTotal"], row["slotsUsed"], row["id"], row["version"],
        row["blacklisted"],
    )


def _summary(sample: Sample) -> Any:
    row = cluster.topology_row(sample)
    return idl.TopologySummary(
        row["id"], row["name"], row["tasksTotal"], row["executorsTotal"], row["workersTotal"], row["uptimeSeconds"],
        row["status"], row["stormVersion"], row["owner"],
    )


def _info(sample: Sample, options: Any = None) -> Any:
    row, choice, document = cluster.topology_row(sample), idl.NumErrorsChoice, sample.document
    most = {choice.NONE: 0, choice.ONE: 1}.get(options and options.num_err_choice)
    names = dict.fromkeys(each["component"] for each in document["executors"])
    executors = [
        _executor(sample, name, each, done) for name in names for each, done in topology.by_executor(sample, name)
    ]
    errors = {
        name: list(map(_error, topology.errors_of(sample, name)[::-1][:most])) for name in document["components"]
    }
    return idl.TopologyInfo(
        row["id"], row["name"], row["uptimeSeconds"], executors, row["status"], errors, row["stormVersion"],
        row["owner"],
    )


def _error(row: dict[str, Any]) -> Any:
    return idl.ErrorInfo(row["error"], row["errorTime"], row["errorHost"], row["errorPort"])


def _executor(sample: Sample, name: str, executor: dict[str, Any], done: dict[str, Any]) -> Any:
    where, component = cluster.place(sample, executor["worker"]), sample.document["components"].get(name)
    return idl.ExecutorSummary(
        idl.ExecutorInfo(*executor["tasks"]), name, where["host"], where["port"], where["uptimeSeconds"],
        # An acker has no figures.
        None if component is None else _stats(sample, component, done),
    )


def _stats(sample: Sample, component: dict[str, Any], done: dict[str, Any]) -> Any:
    outputs = topology.by_output(component, done)

    def by_stream(key: str, kind: type = int) -> dict[str, Any]:
        return {_ALL_TIME: {row["stream"]: kind(row[key]) for row in outputs}}

    if component["kind"] == "spout":
        spout = idl.SpoutStats(by_stream("acked"), by_stream("failed"), by_stream("completeLatency", float))
        specific = idl.ExecutorSpecificStats(spout=spout)
    else:
        specific = idl.ExecutorSpecificStats(bolt=_bolt(topology.by_input(sample, component, done)))
    # Storm counts a share of all tuples, the rate.
    return idl.ExecutorStats(by_stream("emitted"), by_stream("transferred"), specific, rate=1.0)


def _bolt(inputs: list[dict[str, Any]]) -> Any:
    def by_input(key: str, kind: type = int) -> dict[str, Any]:
        return {_ALL_TIME: {idl.GlobalStreamId(row["component"], row["stream"]): kind(row[key]) for row in inputs}}

    return idl.BoltStats(
        by_input("acked"), by_input("failed"), by_input("processLatency", float), by_input("executed"),
        by_input("executeLatency", float),
    )
