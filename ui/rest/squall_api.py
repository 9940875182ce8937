"""Squall's own REST API below /api/squall/v1: every question and order of `ClusterApi`.

Guarantees: an answer is of the type that the OpenAPI description gives. A refusal is one JSON object with one line:
404 no such topology or component, 400 wrong use, 403 read-only, 503 Nimbus is away.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from squall.engine.errors import ClusterError, SquallError
from squall.engine.foreign.text import plain
from squall.ui.cluster_api import LINES, ClusterApi, ReadOnly
from squall.ui.rest import documents as doc
from squall.ui.sampler import Unknown

PREFIX = "/api/squall/v1"
SVG = "image/svg+xml"
_APART = {"content-security-policy": "sandbox allow-scripts"}
"""A flame graph has a script of its own and names of users' functions: it gets no session of ours."""
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Name = Annotated[str, Path(description="name of a topology")]


def code_of(error: SquallError) -> int:
    """The HTTP status of a refusal."""
    codes: tuple[tuple[type[SquallError], int], ...] = ((Unknown, 404), (ReadOnly, 403), (ClusterError, 503))
    return next((code for kind, code in codes if isinstance(error, kind)), 400)


def wrong_use(error: RequestValidationError) -> str:
    """The mistakes in a request, in one line."""
    mistakes = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    return plain("; ".join(mistakes))


class SquallRoute(APIRoute):
    """Answers mistakes with one line."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return JSONResponse({"error": wrong_use(error)}, 400)
            except SquallError as error:
                return JSONResponse({"error": plain(error)}, code_of(error))

        return handler


def squall_router(api: ClusterApi) -> APIRouter:
    """The routes, which ask and tell `api`."""
    away = {"model": doc.RefusalDocument, "description": "Nimbus is away"}
    responses: dict[int | str, dict[str, Any]] = {"4XX": {"model": doc.RefusalDocument}, 503: away}
    router = APIRouter(prefix=PREFIX, route_class=SquallRoute, responses=responses)
    _questions(router, api)
    _orders(router, api)
    _watches(router, api)
    return router


def _questions(router: APIRouter, api: ClusterApi) -> None:
    @router.get("/cluster", response_model=doc.ClusterDocument)
    def cluster() -> Any:
        """Nodes, slots, topologies, deaths of daemons, faults in force."""
        return api.cluster()

    @router.get("/topologies", response_model=list[doc.TopologyRow])
    def topologies() -> Any:
        """A row for each topology."""
        return api.topologies()

    @router.get("/topologies/{name}", response_model=doc.TopologyDocument)
    def topology(name: Name) -> Any:
        """All that is known of a topology."""
        return api.topology(name)

    @router.get("/topologies/{name}/components/{component}", response_model=doc.OneComponent)
    def component(name: Name, component: str) -> Any:
        """A component, its tasks, and what it did in Storm's windows."""
        return api.component(name, component)

    @router.get("/topologies/{name}/tasks", response_model=list[doc.TaskDocument])
    def tasks(name: Name) -> Any:
        """The counters of each task."""
        return api.tasks(name)

    @router.get("/topologies/{name}/history", response_model=doc.HistoryDocument)
    def history(
        name: Name, window_secs: Annotated[float, Query(ge=1, le=86400)] = 3600.0,
        points: Annotated[int, Query(ge=1, le=3600)] = 300,
    ) -> Any:
        """Rates, pending messages and latencies, and what happened meanwhile."""
        return api.history(name, window_secs, points)

    @router.get("/topologies/{name}/errors", response_model=doc.Errors)
    def errors(name: Name) -> Any:
        """Deaths of workers, errors, and failed messages by reason."""
        return api.errors(name)

    @router.get("/topologies/{name}/dead-letters", response_model=list[doc.LetterDocument])
    def dead_letters(name: Name) -> Any:
        """The messages that were given up."""
        return api.dead_letters(name)

    @router.get("/topologies/{name}/logs", response_model=list[doc.LogLine])
    def logs(
        name: Name, worker: Annotated[str, Query(description="NODE:PORT; none: all workers")] = "",
        search: Annotated[str, Query(description="text that a line holds")] = "",
        limit: Annotated[int, Query(ge=1, le=LINES)] = LINES,
    ) -> Any:
        """The last lines of its workers' logs."""
        return api.logs(name, worker, search, limit)

    @router.get("/faults", response_model=list[doc.FaultKindDocument])
    def faults() -> Any:
        """Every kind of fault that can be injected."""
        return api.faults()


def _orders(router: APIRouter, api: ClusterApi) -> None:
    @router.post("/topologies/{name}/activate", response_model=doc.Status)
    def activate(name: Name) -> Any:
        """Let its spouts emit."""
        return {"status": api.activate(name)}

    @router.post("/topologies/{name}/deactivate", response_model=doc.Status)
    def deactivate(name: Name) -> Any:
        """Stop its spouts."""
        return {"status": api.deactivate(name)}

    @router.post("/topologies/{name}/rebalance", response_model=doc.Status)
    def rebalance(name: Name, order: doc.RebalanceOrder) -> Any:
        """Drain it and spread it anew."""
        return {"status": api.rebalance(name, order.workers, order.executors, order.wait_secs)}

    @router.post("/topologies/{name}/kill", response_model=doc.Status)
    def kill(name: Name, order: doc.KillOrder) -> Any:
        """Drain it and remove it."""
        return {"status": api.kill(name, order.wait_secs)}

    @router.post("/topologies/{name}/reset", response_model=doc.Status)
    def reset(name: Name) -> Any:
        """Start slots anew that were given up."""
        return {"status": api.reset(name)}

    @router.post("/topologies/{name}/dead-letters/replay", response_model=list[doc.LetterDocument])
    def replay(name: Name, order: doc.ReplayOrder) -> Any:
        """Give dead letters back to its spouts."""
        return api.replay(name, order.ids)

    @router.post("/inject", response_model=list[doc.FaultDocument])
    def inject(order: doc.InjectOrder) -> Any:
        """Begin a fault."""
        return api.inject(order.line)

    @router.post("/heal", response_model=list[doc.FaultDocument])
    def heal(order: doc.HealOrder) -> Any:
        """End faults in force."""
        return api.heal(order.targets)


def _watches(router: APIRouter, api: ClusterApi) -> None:
    @router.post("/topologies/{name}/traces", response_model=doc.TraceDocument)
    def begin_trace(name: Name, order: doc.TraceOrder) -> Any:
        """Follow the messages with an id, or a share of all, from now on."""
        return api.begin_trace(name, order.message_id, order.sample, order.secs)

    @router.get("/traces/{trace_id}", response_model=doc.TraceDocument)
    def trace(trace_id: str) -> Any:
        """The ways of the messages that were followed so far. Kept for ten minutes after the end."""
        return api.trace(trace_id)

    @router.post("/topologies/{name}/taps", response_model=doc.TapDocument)
    def begin_tap(name: Name, order: doc.TapOrder) -> Any:
        """Show tuples of a component as they pass."""
        return api.begin_tap(name, order.component, order.secs)

    @router.get("/taps/{tap_id}", response_model=doc.TapDocument)
    def tap(tap_id: str) -> Any:
        """The last tuples that were shown."""
        return api.tap(tap_id)

    @router.delete("/watches/{watch_id}", status_code=204)
    def end_watch(watch_id: str) -> None:
        """End a trace or a tap, and forget it."""
        api.end_watch(watch_id)

    @router.post("/topologies/{name}/profiles", response_model=doc.ProfileDocument)
    def profile(name: Name, order: doc.ProfileOrder) -> Any:
        """Draw a flame graph of where a worker spends the next seconds. Answers when it is drawn."""
        return api.profile(name, order.worker, order.secs)

    @router.get("/profiles/{profile_id}", response_class=Response, responses={200: {"content": {SVG: {}}}})
    def profile_svg(profile_id: str) -> Response:
        """A flame graph. The last eight are kept."""
        return Response(api.profile_svg(profile_id), media_type=SVG, headers=_APART)
