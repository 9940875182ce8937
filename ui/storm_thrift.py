"""The methods of nimbus.thrift, by which Storm's clients ask and tell a cluster, and their server at a port of the
loopback address, by Thrift's framed transport and binary protocol.

Guarantees
    * Figures are those of Storm's REST API. Orders return at once, before a topology is drained.
    * Each call that can be read is answered, an error by an exception of Storm's or of Thrift's. What cannot be read,
      or says that it is longer than FRAME_BYTES (as HTTP does), ends its connection, and nothing else.
    * At most CONNECTIONS are open at once; further ones are closed as they come. A client that is silent, or reads
      nothing, keeps no other waiting.
    * It ends at once at SIGTERM and SIGINT; within seconds if Nimbus hangs.

Relies on
    * `ui.rest` for the figures, `ClusterApi` for orders.
    * thriftpy2 for the protocol. Its server is not used: it shares a port in use, and believes each length.
    * Clients that mean no harm: who comes here can kill topologies, or have thriftpy2 skip two billion empty items.

Thread: one for each connection, the sampler's, and the main thread, which waits for signals.
"""

from __future__ import annotations

import io
import logging
import signal
import socketserver
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import thriftpy2
from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.thrift import TApplicationException, TException, TProcessor

from squall.engine.errors import SquallError, UsageError
from squall.engine.foreign.text import plain, text_of_error
from squall.engine.report.document import strict_json
from squall.ipc.rundir import RunDir
from squall.scheduler.client.statuses import ComponentStatus, ExecutorShown
from squall.scheduler.nimbus.submission import name_mistakes
from squall.ui.charts import WindowCounts
from squall.ui.cluster_api import ALL_TIME, ClusterApi
from squall.ui.rest import storm_cluster as cluster
from squall.ui.rest import storm_topology as topology
from squall.ui.sampler import Sample, Sampler, Unknown

log = logging.getLogger(__name__)

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
HOST = "127.0.0.1"
FRAME_BYTES = 1 << 20
CONNECTIONS = 200
_UNREADABLE = (EOFError, struct.error, UnicodeDecodeError, RecursionError, TException)


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


class _Frame(io.BytesIO):
    """Bytes that came. Behind their end there is nothing to skip: thriftpy2 would skip two billion items there."""

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if len(found) != size:
            raise EOFError
        return found


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        while 0 < (size := int.from_bytes(self.rfile.read(4), "big")) <= FRAME_BYTES:
            frame = self.rfile.read(size)
            if len(frame) < size or not (answer := answer_to(frame, self.server.processor)):
                break
            self.wfile.write(len(answer).to_bytes(4, "big") + answer)


def answer_to(frame: bytes, processor: TProcessor) -> bytes:
    """Carry out a call, and return the frame that answers it; empty if it cannot be read."""
    try:
        name, number, result, call = processor.process_in(TBinaryProtocol(_Frame(frame), strict_decode=True))
    except _UNREADABLE:
        return b""
    if call is not None:
        try:
            result.success = call()
        except Exception as error:
            if not processor.handle_exception(as_storm(error), result):
                result = _failure(error)
    answer = io.BytesIO()
    is_failure = isinstance(result, TApplicationException)
    send = processor.send_exception if is_failure else processor.send_result
    send(TBinaryProtocol(answer), name, result, number)
    return answer.getvalue()


def _failure(error: Exception) -> TApplicationException:
    """What clients are told of an error for which a method has no exception."""
    if isinstance(error, SquallError):
        return TApplicationException(TApplicationException.INTERNAL_ERROR, plain(error))
    log.error("a call failed", exc_info=error)
    return TApplicationException(TApplicationException.INTERNAL_ERROR, text_of_error(error))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: ClusterApi, port: int) -> None:
        super().__init__((HOST, port), _Connection)
        self.port: int = self.server_address[1]
        self.processor = TProcessor(idl.Nimbus, StormNimbus(api, HOST, self.port))

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return threading.active_count() < CONNECTIONS

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that is gone
            super().handle_error(request, client_address)


def serve(run_dir: RunDir, port: int, tell: Callable[[str], None]) -> None:
    """Serve until told to end. `tell` is called with the address when it can be used."""
    sampler = Sampler(run_dir)
    api = ClusterApi(sampler)
    try:
        server = _Server(api, port)
    except OSError as error:
        raise UsageError(f"cannot serve at {HOST}:{port}: {error.strerror}") from None
    ends = {signal.SIGINT, signal.SIGTERM}
    with server:
        # Before any thread begins, so that only `sigwait` takes them.
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        sampler.start()
        threading.Thread(target=server.serve_forever, name="thrift", daemon=True).start()
        tell(f"{HOST}:{server.port}")
        signal.sigwait(ends)
    api.close()
    sampler.close()
