"""The application of the REST APIs: Squall's own below /api/squall/v1, Storm's below /api/v1.

Guarantees: every handler that may wait for Nimbus is a plain function, which FastAPI gives to a thread. Who may ask is
not decided here: see `ui.access`.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from squall.ui.cluster_api import ClusterApi
from squall.ui.metrics.prometheus import metrics_router
from squall.ui.rest.squall_api import squall_router
from squall.ui.rest.storm_api import storm_router


def api_app(api: ClusterApi) -> FastAPI:
    """An application of both APIs and /metrics, to be served or mounted. Its description is at
    /api/squall/v1/openapi.json."""
    app = FastAPI(title="Squall", version="1", openapi_url="/api/squall/v1/openapi.json", docs_url=None, redoc_url=None)
    classes: dict[str, Any] = {}
    for router in (squall_router(api, classes), storm_router(api), metrics_router(api)):
        app.include_router(router)
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        """FastAPI's description, with the classes that it does not know. Made anew whenever a route was added."""
        document = describe()
        document["components"]["schemas"].update(classes)
        return document

    app.openapi = openapi  # type: ignore[method-assign]

    @app.api_route("/api/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    def nothing(path: str) -> JSONResponse:
        return JSONResponse({"error": f"there is no /api/{path}, or not by this method: see {app.openapi_url}"}, 404)

    return app
