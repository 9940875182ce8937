"""The process of the web page and the REST API, by itself or as a daemon of a cluster's keeper: puts their application
together and serves it. It is a client like any other: that it dies or hangs is nothing to the topologies.

Guarantees
    * At most `CONNECTIONS` are open at once, web sockets included; further ones are closed as they come. One that has
      not said its first request within `HEADERS_SECS` is closed; strangers say no second one.
    * It serves another address than loopback only with TLS, or if told that it may do without.
    * Every handler that may wait for Nimbus is a plain function, which FastAPI gives to a thread.
    * It ends within a second of SIGTERM, SIGINT or the end of the lifeline.

Relies on: `ui.access` before everything. Thread: main; looks at the cluster are made by the sampler's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.daemon import daemon_parser, run_daemon, tell_ready
from squall.scheduler.common.role import RoleKind
from squall.ui.access import Access, Guard, UiAddress, last_address, running_address, token_of, write_address
from squall.ui.cluster_api import ClusterApi
from squall.ui.history import History
from squall.ui.measured import metrics_router
from squall.ui.rest.squall_api import squall_router
from squall.ui.rest.storm_api import storm_router
from squall.ui.sampler import Sampler

FIRST_PORT, PORTS_TRIED = 8090, 100
CONNECTIONS = 200
HEADERS_SECS = 10.0
HEADERS_BYTES = 32 << 10
FRAME_BYTES = 1 << 20


@dataclass(frozen=True)
class UiOptions:
    """How to serve."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: the one of the process before, or the first free one."""
    read_only: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    otlp: str | None = None
    """Where metrics are sent, too."""

    def check(self) -> None:
        """UsageError if passwords of a session would go over a network in the clear, unless that is wanted."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("--tls-cert and --tls-key go together")
        if self.tls_cert is None and not self.insecure and not _is_loopback(self.host):
            raise UsageError(
                f"{self.host} can be reached from other machines: give --tls-cert and --tls-key, or --insecure"
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Connection(H11Protocol):
    """One of a limited number, which begins with a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= CONNECTIONS:
            transport.abort()
            self.transport = transport
            return
        super().connection_made(transport)
        self._late = self.loop.call_later(HEADERS_SECS, self._end_if_silent)

    def _end_if_silent(self) -> None:
        # A web socket that opens its connection takes it over: without a request here, it is not silent.
        if self.cycle is None and self.transport.get_protocol() is self:
            self.transport.abort()


class _Server(uvicorn.Server):
    """Leaves signals to `serve`, and tells when the page can be opened."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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


def application(api: ClusterApi, access: Access, names: set[str]) -> Guard:
    """The whole application: pages, REST, and the guard before them."""
    from squall.ui.pages import add_pages

    app = api_app(api)
    add_pages(app, api)
    return Guard(app, access, names, api.read_only)


def listen(run_dir: RunDir, options: UiOptions) -> socket.socket:
    """A socket at the wanted port, or at the first free one. UsageError if there is none."""
    earlier = last_address(run_dir)
    ports = [*([earlier.port] if earlier else []), *range(FIRST_PORT, FIRST_PORT + PORTS_TRIED)]
    why = ""
    for port in ports if options.port is None else [options.port]:
        try:
            family = socket.getaddrinfo(options.host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((options.host, port), family=family, backlog=CONNECTIONS)
        except OSError as error:
            why = f"cannot serve at {options.host}:{port}: {error.strerror}"
    raise UsageError(why)


def _otlp_sender(api: ClusterApi, endpoint: str) -> Any:
    try:
        from squall.ui.otlp import OtlpSender
    except ImportError as error:
        raise UsageError(f"--otlp needs more packages: pip install 'squall[otlp]' ({error})") from None
    return OtlpSender(api, endpoint)


def serve(
    run_dir: RunDir, options: UiOptions, tell: Callable[[UiAddress], None], lifeline: int | None = None,
) -> None:
    """Serve until told to end. `tell` is called when the page can be opened."""
    options.check()
    if running_address(run_dir) is not None:
        raise UsageError(f"a web page runs for the cluster in {run_dir.path} already: `squall ui --link` prints a link")
    with (
        contextlib.closing(History(run_dir.ui_history)) as history,
        contextlib.closing(Sampler(run_dir, history.add)) as sampler,
        contextlib.closing(ClusterApi(sampler, options.read_only, history)) as api,
        contextlib.nullcontext() if options.otlp is None else contextlib.closing(_otlp_sender(api, options.otlp)),
        listen(run_dir, options) as listener,
    ):
        asyncio.run(_serve(api, options, listener, tell, lifeline))


async def _serve(
    api: ClusterApi, options: UiOptions, listener: socket.socket, tell: Callable[[UiAddress], None],
    lifeline: int | None,
) -> None:
    run_dir, port = api.run_dir, listener.getsockname()[1]
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = write_address(run_dir, f"http{'s' if options.tls_cert else ''}://{shown}:{port}")
    access = Access(partial(token_of, run_dir), address)
    names = {options.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    tls: dict[str, Any] = {"ssl_certfile": options.tls_cert, "ssl_keyfile": options.tls_key} if options.tls_cert else {}
    for name in ("uvicorn", "nicegui"):
        # Warnings of uvicorn are about what clients send.
        logging.getLogger(name).setLevel(logging.ERROR)
    server = _Server(uvicorn.Config(
        application(api, access, names), http=_Connection,
        h11_max_incomplete_event_size=HEADERS_BYTES, ws_max_size=FRAME_BYTES, ws_per_message_deflate=False,
        timeout_graceful_shutdown=1, log_config=None, access_log=False, server_header=False, proxy_headers=False, **tls,
    ), lambda: tell(address))
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True
        if lifeline is not None:
            loop.remove_reader(lifeline)

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, end)
    if lifeline is not None:
        # Nobody writes to it: it is readable at its end.
        loop.add_reader(lifeline, end)
    await loop.run_in_executor(None, api.sampler.start)
    await server.serve(sockets=[listener])
    if not server.started:
        raise ClusterError("the web server did not start; see its log")


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = daemon_parser(RoleKind.UI, "the cluster's web page")
    parser.add_argument("--port", type=int, help="port; by default the first free one")
    return parser.parse_args(arguments)


def _work(options: argparse.Namespace) -> None:
    run_dir = RunDir.open(options.dir)
    serve(run_dir, UiOptions(port=options.port), lambda _: tell_ready(options.ready_fd), options.lifeline)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_daemon(RoleKind.UI, lambda: _parsed(arguments), _work)


if __name__ == "__main__":
    sys.exit(main())
