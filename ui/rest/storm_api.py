"""Storm's REST API of the UI and the log viewer, below /api/v1: same paths, keys and units.

Guarantees: a mistake is what it is in Storm, HTTP 500 with `error` and `errorMessage`. What is left out is listed in
docs/rest.md. Only workers' logs can be read, by the names that `log_names` gives; a search reads 4 MiB at most, and
says where the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from squall.engine.errors import UsageError
from squall.scheduler.common.logs import LogTail
from squall.ui.cluster_api import ClusterApi
from squall.ui.rest import storm_cluster as cluster
from squall.ui.rest import storm_topology as topology
from squall.ui.rest.squall_api import SquallRoute
from squall.ui.sampler import Unknown

CHUNK_BYTES = 4 << 20
_AROUND_BYTES = 128
_QUESTIONS: dict[str, Callable[..., Any]] = {
    "/cluster/summary": cluster.cluster_summary, "/cluster/configuration": cluster.configuration,
    "/nimbus/summary": cluster.nimbus_summary, "/history/summary": cluster.history,
    "/supervisor/summary": cluster.supervisor_summary, "/supervisor": cluster.supervisor_page,
    "/owner-resources": cluster.owners, "/owner-resources/{owner}": cluster.owners,
    "/topology/summary": cluster.topology_summary, "/topology/{id}": topology.topology_page,
    "/topology/{id}/component/{component}": topology.component_page, "/topology/{id}/metrics": topology.metrics,
    "/topology/{id}/visualization": topology.visualization,
    "/topology/{id}/visualization-init": topology.visualization_init, "/topology/{id}/lag": topology.lag,
    "/topology-workers/{id}": cluster.workers,
}
"""Path -> what answers, told its parameters."""
MostMatches = Annotated[int, Query(alias="num-matches", ge=1, le=1000)]
Wanted = Annotated[str, Query(alias="search-string", min_length=1)]


class StormRoute(SquallRoute):
    """Answers mistakes as Storm does."""

    def refusal(self, error: Exception, why: str) -> Response:
        return JSONResponse({"error": "500 Server Error", "errorMessage": why}, 500)


def storm_router(api: ClusterApi) -> APIRouter:
    """The routes, which ask and tell `api`."""
    router = APIRouter(prefix="/api/v1", route_class=StormRoute, include_in_schema=False)
    for path, ask in _QUESTIONS.items():
        router.add_api_route(path, partial(ask, api), response_model=None)
    _logs(router, api)
    _orders(router, api)
    return router


def _logs(router: APIRouter, api: ClusterApi) -> None:
    @router.get("/log")
    @router.get("/download")
    def log(
        file: str, start: Annotated[int | None, Query(ge=0)] = None,
        length: Annotated[int, Query(ge=1, le=CHUNK_BYTES)] = 51200,
    ) -> Response:
        return PlainTextResponse(_log_text(api, file, start, length))

    @router.get("/searchLogs")
    @router.get("/listLogs")
    def names(topo_id: Annotated[str, Query(alias="topoId")] = "", port: int | None = None) -> Any:
        return list(log_names(api, topo_id, port))

    @router.get("/search")
    def search(
        file: str, wanted: Wanted, limit: MostMatches = 20,
        start: Annotated[int, Query(alias="start-byte-offset", ge=0)] = 0,
    ) -> Any:
        return _found_in(api, file, wanted, limit, start)

    @router.get("/deepSearch/{id}")
    def deep_search(id: str, wanted: Wanted, limit: MostMatches = 20, port: int | None = None) -> Any:
        cluster.by_id(api, id)
        return [
            {"fileOffset": 0, "searchString": wanted, "openedFiles": 1,
             "matches": _found_in(api, name, wanted, limit, 0)["matches"]}
            for name in log_names(api, id, port)
        ]


def log_names(api: ClusterApi, topology_id: str = "", port: int | None = None) -> dict[str, Path]:
    """The logs of workers that run or have run: name -> file."""
    return {
        name: api.run_dir.logs / name
        for sample in cluster.samples(api) if topology_id in ("", sample.status.id)
        for worker in LogTail(api.run_dir.worker_logs(sample.status.id)).workers
        if port is None or worker.endswith(f":{port}") for name in [cluster.log_name(sample, worker)]
    }


def _log_text(api: ClusterApi, file: str, start: int | None, length: int) -> bytes:
    """A part of a log, by default its end."""
    path = log_names(api).get(file)
    if path is None or not path.exists():
        raise Unknown(f"there is no log {file!r:.200}")
    with open(path, "rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - length) if start is None else start)
        return log.read(length)


def _found_in(api: ClusterApi, file: str, wanted: str, limit: int, start: int) -> dict[str, Any]:
    """The places of a text in a log."""
    data, needle, at = _log_text(api, file, start, CHUNK_BYTES), wanted.encode(), 0
    matches: list[dict[str, Any]] = []
    while len(matches) < limit and (at := data.find(needle, at)) >= 0:
        end = at + len(needle)
        matches.append({
            "byteOffset": start + at,
            "beforeString": data[max(0, at - _AROUND_BYTES) : at].decode("utf-8", "replace"), "matchString": wanted,
            "afterString": data[end : end + _AROUND_BYTES].decode("utf-8", "replace"),
            "logviewerURL": f"/api/v1/log?file={file}&start={start + at}",
        })
        at = end
    document = {"searchString": wanted, "startByteOffset": start, "matches": matches, "isDaemon": "no"}
    is_full = len(matches) == limit
    if is_full or len(data) == CHUNK_BYTES:
        document["nextByteOffset"] = start + (at if is_full else len(data))
    return document


def _orders(router: APIRouter, api: ClusterApi) -> None:
    def carry_out(order: Callable[..., str], id: str, *told: Any) -> dict[str, str]:
        order(cluster.by_id(api, id).status.name, *told)
        return {"topologyOperation": order.__name__, "topologyId": id, "status": "success"}

    @router.post("/topology/{id}/activate")
    def activate(id: str) -> Any:
        return carry_out(api.activate, id)

    @router.post("/topology/{id}/deactivate")
    def deactivate(id: str) -> Any:
        return carry_out(api.deactivate, id)

    @router.post("/topology/{id}/rebalance/{wait}")
    def rebalance(id: str, wait: float, order: Annotated[dict[str, Any] | None, Body()] = None) -> Any:
        options = (order or {}).get("rebalanceOptions") or {}
        if not isinstance(options, dict) or options.keys() - {"numWorkers", "executors"}:
            raise UsageError("rebalanceOptions has numWorkers and executors")
        return carry_out(api.rebalance, id, options.get("numWorkers"), options.get("executors"), wait)

    @router.post("/topology/{id}/kill/{wait}")
    def kill(id: str, wait: float) -> Any:
        return carry_out(api.kill, id, wait)
