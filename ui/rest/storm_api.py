"""Storm's REST API of the UI and the log viewer, below /api/v1: same paths, keys and units.

Guarantees: a mistake is what it is in Storm, HTTP 500 with `error` and `errorMessage`. What is left out is listed in
docs/rest.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from squall.engine.errors import UsageError
from squall.ui.cluster_api import ClusterApi
from squall.ui.rest import storm_cluster as cluster
from squall.ui.rest import storm_logs as logs
from squall.ui.rest import storm_topology as topology
from squall.ui.rest.squall_api import SquallRoute
from squall.ui.sampler import Sample

ALL_TIME = ":all-time"


class StormRoute(SquallRoute):
    """Answers mistakes as Storm does."""

    def refusal(self, error: Exception, why: str) -> Response:
        return JSONResponse({"error": "500 Server Error", "errorMessage": why}, 500)


def storm_router(api: ClusterApi) -> APIRouter:
    """The routes, which ask and tell `api`."""
    router = APIRouter(prefix="/api/v1", route_class=StormRoute, include_in_schema=False)
    _cluster(router, api)
    _topologies(router, api)
    _logs(router, api)
    _orders(router, api)
    return router


def _cluster(router: APIRouter, api: ClusterApi) -> None:
    for path, ask in {
        "/cluster/summary": cluster.cluster_summary, "/nimbus/summary": cluster.nimbus_summary,
        "/supervisor/summary": cluster.supervisor_summary, "/topology/summary": cluster.topology_summary,
    }.items():
        router.add_api_route(path, partial(ask, api), response_model=None)
    router.add_api_route("/cluster/configuration", cluster.configuration)

    @router.get("/owner-resources")
    @router.get("/owner-resources/{owner}")
    def owner(owner: str = "") -> Any:
        return cluster.owners(api, owner)

    @router.get("/history/summary")
    def history() -> Any:
        return {"topo-history": [sample.document["id"] for sample in cluster.samples(api)]}

    @router.get("/supervisor")
    def supervisor(id: str = "", host: str = "") -> Any:
        return cluster.supervisor_page(api, id or host)


def _topologies(router: APIRouter, api: ClusterApi) -> None:
    def answering(ask: Callable[[ClusterApi, Sample, str], Any]) -> Callable[[str, str], Any]:
        def answer(id: str, window: str = ALL_TIME) -> Any:
            return ask(api, cluster.by_id(api, id), window)

        return answer

    for path, ask in {
        "": topology.topology_page, "/metrics": topology.metrics, "/visualization": topology.visualization,
    }.items():
        router.add_api_route(f"/topology/{{id}}{path}", answering(ask))

    @router.get("/topology-workers/{id}")
    def workers(id: str) -> Any:
        rows = cluster.worker_rows(cluster.by_id(api, id))
        return {"hostPortList": rows, "logviewerPort": 0, "logviewerScheme": "http"}

    @router.get("/topology/{id}/component/{component}")
    def component(id: str, component: str, window: str = ALL_TIME) -> Any:
        return topology.component_page(api, cluster.by_id(api, id), component, window)

    @router.get("/topology/{id}/visualization-init")
    def visualization_init(id: str) -> Any:
        return {"visualizationTable": topology.visualization_table(cluster.by_id(api, id))}

    @router.get("/topology/{id}/lag")
    def lag(id: str) -> Any:
        """As Storm tells of a spout whose lag it could not read; an empty list would say that none reads Kafka."""
        components = cluster.by_id(api, id).document["components"]
        row = {"spoutType": "UNKNOWN", "errorInfo": "how far it is behind is not known here: ask what it reads from"}
        return [{"spoutId": name, **row} for name, component in components.items() if component["kind"] == "spout"]


def _logs(router: APIRouter, api: ClusterApi) -> None:
    @router.get("/log")
    @router.get("/download")
    def log(
        file: str, start: Annotated[int | None, Query(ge=0)] = None,
        length: Annotated[int, Query(ge=1, le=logs.CHUNK_BYTES)] = 51200,
    ) -> Response:
        return PlainTextResponse(logs.text(api, file, start, length))

    @router.get("/searchLogs")
    @router.get("/listLogs")
    def names(topo_id: Annotated[str, Query(alias="topoId")] = "", port: int | None = None) -> Any:
        return list(logs.names(api, topo_id, port))

    @router.get("/search")
    def search(
        file: str, wanted: Annotated[str, Query(alias="search-string", min_length=1)],
        limit: Annotated[int, Query(alias="num-matches", ge=1, le=1000)] = 20,
        start: Annotated[int, Query(alias="start-byte-offset", ge=0)] = 0,
    ) -> Any:
        return logs.search(api, file, wanted, limit, start)

    @router.get("/deepSearch/{id}")
    def deep_search(
        id: str, wanted: Annotated[str, Query(alias="search-string", min_length=1)],
        limit: Annotated[int, Query(alias="num-matches", ge=1, le=1000)] = 20, port: int | None = None,
    ) -> Any:
        cluster.by_id(api, id)
        found = [logs.search(api, name, wanted, limit, 0) for name in logs.names(api, id, port)]
        return [
            {"fileOffset": 0, "searchString": wanted, "matches": one["matches"], "openedFiles": 1} for one in found
        ]


def _orders(router: APIRouter, api: ClusterApi) -> None:
    def carry_out(order: Callable[..., str], id: str, *told: Any) -> dict[str, str]:
        order(cluster.by_id(api, id).document["name"], *told)
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
