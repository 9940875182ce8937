"""Squall's own REST API below /api/squall/v1: every question and order of `ClusterApi`.

Guarantees: an answer is of the type that the OpenAPI description gives. A refusal is one JSON object with one line:
404 no such topology or component, 400 wrong use, 403 read-only, 503 Nimbus is away.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from squall.engine.errors import ClusterError, SquallError
from squall.engine.foreign.text import plain
from squall.engine.report.document import schema_of
from squall.scheduler.faults.catalogue import Kind
from squall.scheduler.faults.in_force import FaultInForce
from squall.scheduler.records.dead_letters import DeadLetter
from squall.ui.charts import HistoryDocument
from squall.ui.cluster_api import ClusterApi, ReadOnly
from squall.ui.rest import documents as doc
from squall.ui.sampler import ClusterNow, TopologyNow, TopologyRow, Unknown

PREFIX = "/api/squall/v1"
SVG = "image/svg+xml"
_APART = {"content-security-policy": "sandbox allow-scripts"}
"""A flame graph has a script of its own and names of users' functions: it gets no session of ours."""
Asked = Callable[..., Any]
"""A method of `ClusterApi`."""


def code_of(error: Exception) -> int:
    """The HTTP status of a refusal."""
    codes: dict[type[SquallError], int] = {Unknown: 404, ReadOnly: 403, ClusterError: 503}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), 400)


class SquallRoute(APIRoute):
    """Answers mistakes with one line."""

    def refusal(self, error: Exception, why: str) -> Response:
        """The answer to a mistake."""
        return JSONResponse({"error": why}, code_of(error))

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                mistakes = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
                return self.refusal(error, plain("; ".join(mistakes)))
            except SquallError as error:
                return self.refusal(error, plain(error))

        return handler


_ROUTES: dict[str, tuple[Asked, type[BaseModel] | None, Any]] = {
    "GET /cluster": (ClusterApi.cluster, None, ClusterNow),
    "GET /topologies": (ClusterApi.topologies, None, list[TopologyRow]),
    "GET /topologies/{name}": (ClusterApi.topology, None, TopologyNow),
    "GET /topologies/{name}/components/{component}": (ClusterApi.component, None, doc.OneComponent),
    "GET /topologies/{name}/tasks": (ClusterApi.tasks, None, list[doc.TaskCounts]),
    "GET /topologies/{name}/history": (ClusterApi.history, doc.HistoryQuestion, HistoryDocument),
    "GET /topologies/{name}/errors": (ClusterApi.errors, None, doc.Errors),
    "GET /topologies/{name}/dead-letters": (ClusterApi.dead_letters, None, list[DeadLetter]),
    "GET /topologies/{name}/logs": (ClusterApi.logs, doc.LogsQuestion, list[doc.LogLine]),
    "GET /faults": (ClusterApi.faults, None, list[Kind]),
    "POST /topologies/{name}/activate": (ClusterApi.activate, None, doc.StatusAfter),
    "POST /topologies/{name}/deactivate": (ClusterApi.deactivate, None, doc.StatusAfter),
    "POST /topologies/{name}/rebalance": (ClusterApi.rebalance, doc.RebalanceOrder, doc.StatusAfter),
    "POST /topologies/{name}/kill": (ClusterApi.kill, doc.KillOrder, doc.StatusAfter),
    "POST /topologies/{name}/reset": (ClusterApi.reset, None, doc.StatusAfter),
    "POST /topologies/{name}/dead-letters/replay": (ClusterApi.replay, doc.ReplayOrder, list[DeadLetter]),
    "POST /inject": (ClusterApi.inject, doc.InjectOrder, list[FaultInForce]),
    "POST /heal": (ClusterApi.heal, doc.HealOrder, list[FaultInForce]),
    "POST /topologies/{name}/traces": (ClusterApi.begin_trace, doc.TraceOrder, doc.TraceDocument),
    "GET /traces/{trace_id}": (ClusterApi.trace, None, doc.TraceDocument),
    "POST /topologies/{name}/taps": (ClusterApi.begin_tap, doc.TapOrder, doc.TapDocument),
    "GET /taps/{tap_id}": (ClusterApi.tap, None, doc.TapDocument),
    "POST /topologies/{name}/profiles": (ClusterApi.profile, doc.ProfileOrder, doc.ProfileDocument),
}
"""Method and path -> what answers, what it may be told besides the parameters in the path, and the answer's type."""


def squall_router(api: ClusterApi, classes: dict[str, Any]) -> APIRouter:
    """The routes, which ask and tell `api`. `classes` gets the schemas to which their description refers."""

    def answer(kind: Any, **more: str) -> dict[str, Any]:
        schema, parts = schema_of(kind, "#/components/schemas/{name}")
        classes.update(parts)
        return {"content": {"application/json": {"schema": schema}}, **more}

    refusals: dict[int | str, dict[str, Any]] = {
        "4XX": answer(doc.RefusalDocument), 503: answer(doc.RefusalDocument, description="Nimbus is away"),
    }
    router = APIRouter(prefix=PREFIX, route_class=SquallRoute, responses=refusals)
    for route, (ask, order, kind) in _ROUTES.items():
        method, path = route.split()
        endpoint = _endpoint(api, method, path, ask, order)
        router.add_api_route(path, endpoint, methods=[method], response_model=None, responses={200: answer(kind)})

    @router.delete("/watches/{watch_id}", status_code=204)
    def end_watch(watch_id: str) -> None:
        """End a trace or a tap, and forget it."""
        api.end_watch(watch_id)

    @router.get("/profiles/{profile_id}", response_class=Response, responses={200: {"content": {SVG: {}}}})
    def profile_svg(profile_id: str) -> Response:
        """A flame graph. The last eight are kept."""
        return Response(api.profile_svg(profile_id), media_type=SVG, headers=_APART)

    return router


def _endpoint(api: ClusterApi, method: str, path: str, ask: Asked, order: type[BaseModel] | None) -> Asked:
    """Make a function for FastAPI with the parameters of `ask` that are in the path, and `order` for the others."""

    @functools.wraps(ask)
    def endpoint(order: BaseModel | None = None, **asked: Any) -> Response:
        answer = ask(api, **asked, **dict(order or ()))
        document = {"status": answer} if isinstance(answer, str) else answer
        return Response(msgspec.json.encode(document), media_type="application/json")

    parameters = [
        each for each in inspect.signature(ask, eval_str=True).parameters.values() if f"{{{each.name}}}" in path
    ]
    if order is not None:
        where = Query() if method == "GET" else Body()
        last = inspect.Parameter("order", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[order, where])
        parameters.append(last)
    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return endpoint
