"""HttpSource: a webhook's endpoint, which answers a request when what it brought is processed.

Guarantees
    * 204 means that every record of the request is acked. Any other answer, and none, means that its sender is to send
      it again, but for those that would be refused again (4xx without 429).
    * At most `max_open` requests are in process; others are answered 429. No request has more than `max_bytes`.
    * With ids of senders, a request that comes again while the first is in process is answered with it. The ids of what
      is done are never forgotten by state: nobody knows when a sender has had its answer.

Each connection has a thread of the standard library's server, which waits for the answer; as senders keep connections,
there may be `_CONNECTIONS` for each request that may be in process. More are closed.

Thread: that of the source; the loop's for `ack_batch` and `on_dead_letter`; those of the server for `_Handler`. They
share a queue of what has come.
"""

from __future__ import annotations

import contextlib
import gzip
import hmac
import io
import queue
import re
import socket
import socketserver
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from squall.connect.outside import check_secret
from squall.connect.source import Source, read_json
from squall.engine.api.replaying import Record
from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of, text_of_error

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.failure import Failure

BODIES: dict[str, Callable[[bytes], Any]] = {"text": bytes.decode, "json": read_json, "bytes": bytes}
_WRONG = {LookupError: HTTPStatus.UNSUPPORTED_MEDIA_TYPE, OverflowError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
LINES = "application/x-ndjson"
BY_DELIVERY = "none"
_CONNECTIONS = 2
_IDLE_SECS, _LOOK_SECS = 30.0, 0.1
"""Longest waits: for a sender to send, or to take its answer; for something to come."""
_DISCARDED = 1 << 8
"""Most parts, of 64 KiB, that are read of a request which is answered before its end."""
_RESERVED = 1 << 20
"""Numbers of records that are reserved at a time: a later life uses none of them."""


class HttpSource(Source):
    """A spout that gets what is sent to it by POST: `HttpSource(8080, "/events")`. The first task listens."""

    away = (ConnectionError,)
    outputs = ("body",)
    pause_secs = 0
    record_identity: str | None = None
    identity_remedy = (
        'set identity="Idempotency-Key" if each sender names its requests in this header, or identity="none" to count '
        "at least once"
    )
    max_bytes: int = 1 << 20
    """Longest body, as sent and unpacked; longer ones are answered 413."""
    answer_secs: float = 30.0
    """Time after which a request that is still in process is answered 503."""
    _server: _Server | None = None

    def __init__(
        self, port: int, path: str = "/", *, host: str = "127.0.0.1", body: str = "text", token: str = "",
        max_open: int = 256, identity: str | None = None,
    ) -> None:
        """`body`: "text", "json" or "bytes". `token`: `${NAME}`, what senders must have as `Authorization: Bearer ...`.
        `max_open`: requests that may be in process. `identity`, for state that counts each record once: the name of the
        header by which senders tell requests apart, the same when one is sent again; or "none": what is sent again
        counts again. UsageError for what is none of these."""
        if body not in BODIES:
            raise UsageError(f"HttpSource has body {repr_of(body)}; allowed: {', '.join(BODIES)}")
        if type(port) is not int or not 0 < port < 1 << 16 or type(max_open) is not int or max_open < 1:
            raise UsageError(f"HttpSource has port {port!r}, max_open {max_open!r}; allowed: 1 to 65535, 1 and more")
        if token:
            check_secret("HttpSource", "token", token)
        if identity is not None and not (isinstance(identity, str) and re.fullmatch("[A-Za-z0-9-]+", identity)):
            raise UsageError(
                f'HttpSource has identity {repr_of(identity)}; expected the name of a header, "{BY_DELIVERY}" or None'
            )
        self.counts_at_least_once = identity == BY_DELIVERY
        self.id_header = "" if identity in (None, BY_DELIVERY) else identity
        """The header by which senders name their requests, or "" if they do not."""
        if identity is not None:
            self.record_identity = "name" if self.id_header else "partition"
        self._address, self._token = (host, port), token
        self.path, self.body, self.max_open = path, body, max_open

    def connect(self, context: TopologyContext) -> None:
        self.came: queue.SimpleQueue[Posted | None] = queue.SimpleQueue()
        self.room = threading.Semaphore(self.max_open)
        self._open: dict[Any, Posted] = {}
        """The request of each record in process, by its position: (row, id), or a number that is used once."""
        self._first: dict[str, Posted] = {}
        """The requests in process whose senders name them, by id."""
        self.authorization = f"Bearer {self.fill(self._token)}".encode() if self._token else b""
        try:
            self._server = _Server(self._address, self)
        except OSError as error:
            raise ConnectionError(f"cannot listen at {self._address}: {text_of_error(error)}") from error
        name = f"{context.component_id}[{context.task_id}] listens"
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_SECS,), name=name, daemon=True).start()

    def read_from(self, position: Any) -> Iterator[Record | None]:
        numbers = self._numbers(0 if self.id_header else position or 0)
        while True:
            with contextlib.suppress(queue.Empty):
                request = self.came.get(timeout=_LOOK_SECS)
                while request is not None:
                    first = self._first.setdefault(request.id, request) if request.id else request
                    if first is not request:
                        first.again.append(request)
                    else:
                        ids = ((row, request.id) for row in count()) if request.id else numbers
                        for row, id_ in zip(request.rows, ids, strict=False):
                            self._open[id_] = request
                            yield id_, (row,)
                    request = self.came.get_nowait()
            yield None

    def _numbers(self, first: int) -> Iterator[int]:
        for number in count(first):
            if number % _RESERVED == 0:
                self.commit(number + _RESERVED)
            yield number

    def confirm(self, positions: Sequence[Any]) -> None:
        for position in positions:
            request = self._open.pop(position)
            request.left -= 1
            if not request.left:
                self._first.pop(request.id, None)
                for each in (request, *request.again):
                    self.room.release()
                    each.status = request.status
                    each.answered.set()

    def confirmed(self) -> Sequence[Any]:
        return ()

    def ack_batch(self, message_ids: list[Any]) -> None:
        super().ack_batch(message_ids)
        self.came.put(None)  # so that they are confirmed at once

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self._open[message_id].status = HTTPStatus.UNPROCESSABLE_ENTITY
        super().on_dead_letter(message_id, failure)

    def disconnect(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            waiting = {each for request in self._open.values() for each in (request, *request.again)}
            while not self.came.empty():
                waiting.update(filter(None, (self.came.get(),)))
            for request in waiting:
                request.status = HTTPStatus.SERVICE_UNAVAILABLE
                request.answered.set()


class Posted:
    """What a request brought."""

    def __init__(self, rows: list[Any], id_: str) -> None:
        """`id_`: as its sender names it; "" without such a header."""
        self.rows, self.left, self.id = rows, len(rows), id_
        self.again = list[Posted]()
        """Requests of the same id that have come since, and are answered with it."""
        self.status = HTTPStatus.NO_CONTENT
        self.answered = threading.Event()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], source: HttpSource) -> None:
        self.source = source
        self._connections = set[Any]()
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self._connections.add(request)
        return len(self._connections) <= _CONNECTIONS * self.source.max_open

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a sender that is gone sends again
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Reads the requests of one connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECS
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        length, most = self.headers.get("Content-Length", ""), self.server.source.max_bytes
        if "Transfer-Encoding" in self.headers or not re.fullmatch("[0-9]{1,18}", length):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "needs a Content-Length")
        elif int(length) > most:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"has {length} bytes; allowed: {most}")
        elif len(body := self.rfile.read(int(length))) == int(length):
            self._answer(*self._taken(body))

    def _taken(self, body: bytes) -> tuple[HTTPStatus, str]:
        """Have a body processed; return the answer."""
        source = self.server.source
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if source.authorization and not hmac.compare_digest(given, source.authorization):
            return HTTPStatus.UNAUTHORIZED, "needs the right token"
        if self.path.partition("?")[0] != source.path:
            return HTTPStatus.NOT_FOUND, f"has the wrong path; allowed: {source.path}"
        id_ = self.headers.get(source.id_header, "") if source.id_header else ""
        if source.id_header and not id_:
            return HTTPStatus.BAD_REQUEST, f"needs a header {source.id_header}, the same when it is sent again"
        try:
            request = Posted(list(map(BODIES[source.body], self._records(body))), id_)
        except (*_WRONG, msgspec.MsgspecError, ValueError, RecursionError, OSError, EOFError, zlib.error) as error:
            return _WRONG.get(type(error), HTTPStatus.BAD_REQUEST), f"cannot be decoded: {text_of_error(error)}"
        if not request.rows:
            return HTTPStatus.NO_CONTENT, ""
        if not source.room.acquire(blocking=False):
            return HTTPStatus.TOO_MANY_REQUESTS, "is one too many at a time"
        source.came.put(request)
        if source._server is None or not request.answered.wait(source.answer_secs):
            return HTTPStatus.SERVICE_UNAVAILABLE, "is not processed yet"
        return request.status, ""

    def _records(self, body: bytes) -> Iterable[bytes]:
        """Return what a body holds, unpacked."""
        source, coding = self.server.source, self.headers.get("Content-Encoding", "identity").lower()
        is_lines, charset = self.headers.get_content_type() == LINES, self.headers.get_content_charset()
        if coding in ("gzip", "x-gzip"):
            body = gzip.GzipFile(fileobj=io.BytesIO(body)).read(source.max_bytes + 1)
            if len(body) > source.max_bytes:
                raise OverflowError(f"it has more than {source.max_bytes} bytes when unpacked")
        elif coding != "identity":
            raise LookupError(f"unknown encoding: {coding}; allowed: gzip")
        if source.body != "bytes" and not charset and (at := body.find(0)) >= 0:
            raise LookupError(f"it has a NUL at byte {at}, as UTF-16 does; declare its charset")
        if source.body != "bytes" or (is_lines and charset):
            # Before lines are told apart: in UTF-16, half of U+0A05 is a line's end.
            body = body.decode(charset or "utf-8").removeprefix("\ufeff").encode()
        return filter(bytes.strip if source.body == "json" else None, body.splitlines()) if is_lines else (body,)

    def _answer(self, status: HTTPStatus, why: str) -> None:
        text = f"this request {why}\n".encode() if why else b""
        self.send_response(status)
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            self.send_header("Retry-After", "1")
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(text)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer before the end of a request. What is unread when a connection is closed takes the answer with it."""
        self.close_connection = True
        self._answer(status, why)
        self.connection.shutdown(socket.SHUT_WR)
        any(not self.rfile.read1(1 << 16) for _ in range(_DISCARDED))

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""
