"""Requests, replies and events between the cluster's processes, over Unix sockets.

Guarantees
    * `recv`, `call` and `recv_event` return only frames that were signed with the cluster's key (`ipc.envelope`); any
      other is dropped and counted in `refused`, and never decoded.
    * A reply answers its own request: late replies of a request that timed out are dropped.
    * No call waits longer than it was told, or for a server that its caller knows to be gone; every queue is bounded.
    * A process that died and came back under the same name is reached by its new connection; late frames of the old one
      do not lead back to it.

Not guaranteed: that a frame arrives. A request without an answer may or may not have been carried out; an event may be
lost when the peer dies. Frames of one sender arrive in order.

Relies on: one process serving a path (a second `ControlServer` on a live path is refused); ROUTER_MANDATORY, which
makes sending to a peer that has gone an error.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket as unix
import struct
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
import zmq

from squall.engine.errors import ClusterError, ProtocolError, UsageError
from squall.ipc.envelope import NO_NONCE, Kind, Nonce, Sealer, open_envelope
from squall.ipc.rundir import check_socket_path

QUEUE_FRAMES = 10_000
"""Frames queued per peer: hours of heartbeats, or the bursts of a large cluster. Beyond it, sends report failure."""
REFUSALS_PER_RECV = 100
"""Bad frames that one `recv` skips before it returns to its caller, which has other work."""
MOST_PEERS = 4096
"""Peers that a server remembers the way to; beyond, the one heard from longest ago is forgotten."""
RECONNECT_MS, RECONNECT_MAX_MS = 20, 500
"""Milliseconds between attempts to connect, at first and at most: a daemon that restarts is found again this soon."""
CLIENT_LINGER_SECS = 0.5
"""Longest that `ControlClient.close` waits for unsent frames, such as a worker's last words. Without any it returns at
once."""

GONE_LOOK_SECS = 0.05
"""Between two looks of a waiting call whether its server is gone, which take some 20 us each."""
_LAST_WORDS_MS = 100
"""Longest wait for an answer that a server gave right before its end, and that is still under way in this process."""

_CONNECTION_EVENT = struct.Struct("=H")
"""Beginning of a monitor's message. Parsed here because `zmq.utils.monitor` imports asyncio, which costs every daemon
and command 20 ms."""

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"
ErrorKind = Literal["UsageError", "NotStarted", "ClusterError"]
M = TypeVar("M", bound=msgspec.Struct)


class ControlError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of an "error" frame: which side is at fault, and the line to show."""

    kind: ErrorKind
    message: str


class NotStarted(ClusterError):
    """What is asked for is about to be there: ask again."""


class NoAnswer(ClusterError):
    """A request was not answered in time. It may or may not have been carried out."""


class ServerGone(NoAnswer):
    """The process that a request was for ended before it answered."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A frame whose signature was verified."""

    peer: str
    kind: Kind
    method: str
    id: int
    body: bytes
    route: bytes
    """ZeroMQ identity of the connection that brought it; empty at a client."""
    nonce: Nonce = NO_NONCE

    def decode(self, message_type: type[M]) -> M:
        """The message; ProtocolError if the body is not a valid `message_type`."""
        try:
            return msgspec.msgpack.decode(self.body, type=message_type)
        except ValueError as error:
            raise ProtocolError(f"{self.method} from {self.peer} is no {message_type.__name__}: {error}") from None


class _Route(NamedTuple):
    identity: bytes
    session: bytes
    replaced: bytes
    """The session before this one, whose late frames must not lead back to it."""


class _Endpoint(ABC):
    """What both ends have."""

    _socket_type: ClassVar[int]
    _takes: ClassVar[tuple[Kind, ...]]

    def __init__(self, path: Path, key: bytes, name: str, context: Context | None = None) -> None:
        self.path = check_socket_path(path)
        self.refused = 0
        """Frames that were dropped unverified."""
        self._sealer = Sealer(key, name)
        self._key = key
        self._owns_context = context is None
        self._context = zmq.Context() if context is None else context
        self.socket = self._context.socket(self._socket_type)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.set_hwm(QUEUE_FRAMES)
        try:
            self._open()
        except BaseException:
            self._close(0)
            raise

    @abstractmethod
    def _open(self) -> None:
        """Bind or connect. ClusterError if that is impossible."""

    def _send(self, frame: list[bytes]) -> bool:
        """Send without waiting. False if the peer has gone, or has stopped reading."""
        try:
            self.socket.send_multipart(frame, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def _receive(self) -> Incoming | None:
        """The next verified frame; None if there is none now."""
        for _ in range(REFUSALS_PER_RECV):
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return None
            route = parts.pop(0) if self._socket_type == zmq.ROUTER else b""
            with contextlib.suppress(ProtocolError):  # it is counted
                envelope = open_envelope(self._key, parts)
                if envelope.kind in self._takes:
                    return Incoming(
                        envelope.sender, envelope.kind, envelope.method, envelope.id, envelope.body, route,
                        envelope.nonce,
                    )
            self.refused += 1
        return None

    def _close(self, linger_secs: float) -> None:
        self.socket.close(linger=math.ceil(linger_secs * 1000))
        if self._owns_context:
            self._context.term()


class ControlServer(_Endpoint):
    """The serving end (ROUTER) of Nimbus or a supervisor. Thread: the daemon's loop."""

    _socket_type = zmq.ROUTER
    _takes = ("request", "event")

    def _open(self) -> None:
        self._routes: OrderedDict[str, _Route] = OrderedDict()
        _check_nobody_listens(self.path)
        try:
            self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self.socket.bind(f"ipc://{self.path}")
        except zmq.ZMQError as error:
            raise ClusterError(f"cannot listen on {self.path}: {error}") from None
        self._bound = self.path.stat()

    def recv(self) -> Incoming | None:
        """The next verified frame; None if there is none now. Does not wait. Call it when `socket` is readable, until
        it returns None."""
        incoming = self._receive()
        if incoming is not None:
            self._learn_route(incoming)
        return incoming

    def reply(self, incoming: Incoming, message: msgspec.Struct) -> bool:
        """Answer a request. False if the peer has gone."""
        return self._send([incoming.route, *self._sealer.seal("reply", incoming.id, incoming.method, message)])

    def reply_error(self, incoming: Incoming, message: str, kind: ErrorKind = "ClusterError") -> bool:
        """Make the peer's `call` raise. False if the peer has gone."""
        frame = self._sealer.seal("error", incoming.id, incoming.method, ControlError(kind, message))
        return self._send([incoming.route, *frame])

    def send_event(self, peer: str, message: msgspec.Struct) -> bool:
        """Send to the process that calls itself `peer`. False if it is unknown, has gone, or has stopped reading."""
        route = self._routes.get(peer)
        if route is None:
            return False
        return self._send([route.identity, *self._sealer.seal("event", 0, type(message).__name__, message)])

    def close(self, linger_secs: float = 0.0) -> None:
        """Stop listening and remove the socket file. `linger_secs`: longest wait for unsent frames."""
        self._close(linger_secs)
        # Remove our own file only: a successor may have bound the path already.
        if self.path.exists() and os.path.samestat(self.path.stat(), self._bound):
            self.path.unlink(missing_ok=True)

    def _learn_route(self, incoming: Incoming) -> None:
        session = incoming.nonce.session
        known = self._routes.get(incoming.peer)
        if known is not None and session == known.replaced:
            return
        if known is None or session != known.session:
            replaced = b"" if known is None else known.session
            self._routes[incoming.peer] = _Route(incoming.route, session, replaced)
        elif incoming.route != known.identity:
            self._routes[incoming.peer] = known._replace(identity=incoming.route)
        self._routes.move_to_end(incoming.peer)
        if len(self._routes) > MOST_PEERS:
            self._routes.popitem(last=False)


class ControlClient(_Endpoint):
    """The calling end (DEALER) of a supervisor, worker or client. Thread: the one that made it.

    Connecting does not wait: frames leave when the server is there. Whoever polls `socket` must also drain `recv_event`
    after each `call`: events that arrived meanwhile are no longer in the socket.
    """

    _socket_type = zmq.DEALER
    _takes = ("reply", "error", "event")

    def _open(self) -> None:
        self.answered_by = NO_NONCE
        """Of the frame that answered the last call."""
        self._last_id = 0
        self._events: deque[Incoming] = deque()
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        self.socket.connect(f"ipc://{self.path}")

    def call(
        self, method: str, body: msgspec.Struct, reply_type: type[M], timeout_secs: float,
        is_gone: Callable[[], bool] | None = None,
    ) -> M:
        """Ask and wait for the answer. UsageError or ClusterError as the server says; NoAnswer on timeout.

        `is_gone` says whether the process that the request is for has ended: ServerGone then.
        """
        deadline = time.monotonic() + timeout_secs
        self._last_id += 1
        if not self._send(self._sealer.seal("request", self._last_id, method, body)):
            raise ClusterError(f"{method}: {QUEUE_FRAMES} frames for {self.path} wait unsent; is its process alive?")
        gone = False
        while True:
            incoming = self._receive()
            if incoming is None:
                remaining_secs = deadline - time.monotonic()
                if gone:
                    raise ServerGone(f"{method}: the process that serves {self.path} ended before it answered")
                if remaining_secs <= 0:
                    raise NoAnswer(f"{method}: no answer on {self.path} within {timeout_secs:g} s")
                wait_secs = remaining_secs if is_gone is None else min(remaining_secs, GONE_LOOK_SECS)
                if not self.socket.poll(math.ceil(wait_secs * 1000)) and is_gone is not None and is_gone():
                    gone = True
                    self.socket.poll(_LAST_WORDS_MS)
            elif incoming.kind == "event":
                self._events.append(incoming)
            elif incoming.id == self._last_id:
                self.answered_by = incoming.nonce
                return _answer(incoming, reply_type)

    def send_event(self, message: msgspec.Struct) -> bool:
        """Send without waiting. False if the queue is full and the frame was dropped."""
        return self._send(self._sealer.seal("event", 0, type(message).__name__, message))

    def recv_event(self) -> Incoming | None:
        """The next event, or None if there is none now. Does not wait."""
        if self._events:
            return self._events.popleft()
        while (incoming := self._receive()) is not None:
            if incoming.kind == "event":
                return incoming
        return None

    def close(self, linger_secs: float = CLIENT_LINGER_SECS) -> None:
        """Disconnect. Waits for unsent frames, at most `linger_secs`."""
        self._close(linger_secs)


class ConnectionWatch:
    """Tells when the connection of one connecting socket is made and lost. Close it before the socket.

    Thread: the socket's.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self.source = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        """What to poll."""

    def changes(self) -> Iterator[bool]:
        """Changes since the last call: True for connected, False for lost."""
        while self.source.poll(0):
            (event,) = _CONNECTION_EVENT.unpack_from(self.source.recv_multipart()[0])
            yield event == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def close(self) -> None:
        self._socket.disable_monitor()
        self.source.close(linger=0)


def _answer(incoming: Incoming, reply_type: type[M]) -> M:
    if incoming.kind == "reply":
        return incoming.decode(reply_type)
    error = incoming.decode(ControlError)
    kinds = {"UsageError": UsageError, "NotStarted": NotStarted, "ClusterError": ClusterError}
    raise kinds[error.kind](error.message)


def _check_nobody_listens(path: Path) -> None:
    """Refuse a path with a live listener, from which libzmq would take it silently."""
    with unix.socket(unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return
        except BlockingIOError:
            pass  # the queue of connections is full, so a process listens
    raise ClusterError(f"another process listens on {path} already")
