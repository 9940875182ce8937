"""ZeroMQ in memory: as much of PUSH and PULL over ipc as the data plane uses, in an order that a seed decides.

Guarantees: what one PUSH socket sent arrives in order; what several sent to one PULL socket arrives in any order among
them; what is under way to a socket that closes is gone.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

Message = list[bytes]
_READABLE = open(os.devnull)  # noqa: SIM115
"""Its descriptor always says that there may be news: whoever looks there has to ask the socket."""


class Wire:
    """What lies between the workers: all that is under way."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.late = 0.0
        """How likely it is that what is under way has not arrived when somebody looks."""
        self.queues: dict[str, list[deque[Message]]] = {}
        """What is under way to each address, by sending socket."""
        self.sent: Callable[[str, Message], None] = lambda address, message: None
        """Called with each message that is on its way."""

    def under_way(self) -> bool:
        return any(queue for queues in self.queues.values() for queue in queues)

    def has_input(self, socket: Socket) -> bool:
        """Whether something is under way to it, which would wake who polls it."""
        return any(self.queues[socket.address])


class Context:
    """Stands in for the `zmq.Context` of one worker."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.sending: list[Socket] = []
        """Its open PUSH sockets."""

    def socket(self, kind: int) -> Socket:
        socket = Socket(self, kind)
        if kind == zmq.PUSH:
            self.sending.append(socket)
        return socket

    def die(self) -> None:
        """The process is killed: the last of what it sent may not have left."""
        for socket in self.sending:
            for _ in range(self.wire.rng.randrange(len(socket.queue) + 1)):
                socket.queue.pop()


class Socket:
    """One end."""

    def __init__(self, context: Context, kind: int) -> None:
        self.context = context
        self.wire = context.wire
        self.kind = kind
        self.address = ""
        self.queue: deque[Message] = deque()
        self.parts: Message = []

    def set_hwm(self, value: int) -> None:
        assert value == 0, "the data plane relies on no high-water mark"

    def setsockopt(self, option: int, value: int | bytes) -> None:
        assert option in (zmq.LINGER, zmq.MAXMSGSIZE, zmq.HANDSHAKE_IVL, zmq.PLAIN_USERNAME, zmq.PLAIN_PASSWORD)

    def bind(self, address: str) -> None:
        self.address = address
        self.wire.queues.setdefault(address, [])

    def connect(self, address: str) -> None:
        # Before or after the other end is bound.
        self.address = address
        self.wire.queues.setdefault(address, []).append(self.queue)

    def send(self, data: bytes, flags: int = 0) -> None:
        self._put([bytes(data)])

    def send_multipart(self, parts: Any, flags: int = 0, copy: bool = True) -> None:
        self._put([bytes(part) for part in parts])

    def _put(self, message: Message) -> None:
        self.queue.append(message)
        self.wire.sent(self.address, message)

    def fileno(self) -> int:
        return _READABLE.fileno()

    def getsockopt(self, option: int) -> int:
        if option == zmq.RCVMORE:
            return bool(self.parts)
        assert option == zmq.EVENTS
        return zmq.POLLIN if self.wire.has_input(self) and self.wire.rng.random() >= self.wire.late else 0

    def recv(self, flags: int = 0) -> bytes:
        if not self.parts:
            self.parts = self.wire.rng.choice([queue for queue in self.wire.queues[self.address] if queue]).popleft()
        return self.parts.pop(0)

    def close(self, linger: int | None = None) -> None:
        if self.kind == zmq.PULL:
            self.wire.queues.pop(self.address, None)
        else:
            self.context.sending.remove(self)
