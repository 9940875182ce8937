"""Lets a connection into a listening socket only with the password, before ZeroMQ takes a message from it.

Guarantees
    * Of a connection that has not given the password, ZeroMQ holds one handshake command, at most MAXMSGSIZE long, and
      nothing reaches the socket. The comparison takes constant time.
    * A connection that ended without the password is counted in `refused`, once. One may be missed if ZeroMQ ended it
      without giving a reason while another was let in.

Relies on: the PLAIN mechanism with a ZAP handler (RFC 24 and 27), of which a context has one: so one door per context.
Without the handler ZeroMQ lets nobody in. The connecting side cannot tell whether the right process asks for the
password.

Not guaranteed: a bound on the number of connections. Each takes a descriptor, and ZeroMQ aborts the process that has
none left.
"""

from __future__ import annotations

import hmac
import struct
from typing import TypeAlias

import zmq

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

USER = b"squall"
"""The user that every connection gives."""
CONTROL_PLANE, DATA_PLANE = b"control plane", b"data plane"
"""Kinds of connections, each with a password of its own."""
_HANDLER = "inproc://zeromq.zap.01"
_MONITOR = "inproc://squall.door"
_EVENT = struct.Struct("=HI")
_ACCEPTED, _LET_IN, _ENDED = (
    int(zmq.EVENT_ACCEPTED), int(zmq.EVENT_HANDSHAKE_SUCCEEDED), int(zmq.EVENT_DISCONNECTED)
)  # fmt: skip
_WRONG_PASSWORD = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_WRONG_WORDS, _LEFT = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL), int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
"""Of a connection that ends in the handshake; the event of its end follows. A ZeroMQ peer without a password hangs up
by itself."""
_EVENTS = _ACCEPTED | _LET_IN | _ENDED | _WRONG_PASSWORD | _WRONG_WORDS | _LEFT
_POLLIN, _WHAT_IS_THERE = int(zmq.POLLIN), int(zmq.EVENTS)


def password_of(secret: bytes, what: bytes) -> bytes:
    """The password of one kind of connection. It does not reveal the secret."""
    return hmac.digest(secret, b"connection\0" + what, "sha256").hex().encode()


def knock(socket: zmq.Socket[bytes], password: bytes, handshake_ms: int = 0) -> None:
    """Have a socket give this password wherever it connects from now on. It waits to be let in, or connects anew after
    `handshake_ms` milliseconds."""
    socket.setsockopt(zmq.PLAIN_USERNAME, USER)
    socket.setsockopt(zmq.PLAIN_PASSWORD, password)
    socket.setsockopt(zmq.HANDSHAKE_IVL, handshake_ms)


class Door:
    """The door of one socket. Make it before the socket is bound, close it before the socket; poll `knocks` too.

    A connection waits until `take` is called. Where that may take long, give it all the time: `handshake_ms=0`.
    Thread: the socket's.
    """

    def __init__(self, context: Context, socket: zmq.Socket[bytes], password: bytes, handshake_ms: int = 0) -> None:
        """`handshake_ms`: close a connection that was not let in by then; 0 = never."""
        self.refused = 0
        """Connections that were not let in, as of the last `take`."""
        self._password = password
        self._socket = socket
        self.knocks: zmq.Socket[bytes] = context.socket(zmq.REP)
        """Socket to poll: when it is readable, call `take`. Ended connections may be counted later."""
        self.knocks.setsockopt(zmq.LINGER, 0)
        self.knocks.bind(_HANDLER)
        socket.setsockopt(zmq.PLAIN_SERVER, 1)
        socket.setsockopt(zmq.HANDSHAKE_IVL, handshake_ms)
        socket.monitor(_MONITOR, _EVENTS)
        self._monitor = context.socket(zmq.PAIR)
        # With a limit, ZeroMQ's thread would wait for this one in the middle of its work.
        self._monitor.set_hwm(0)
        self._monitor.connect(_MONITOR)
        self._accepted: dict[int, int] = {}
        """Descriptor of a connection -> how many had been let in when it arrived."""
        self._welcome = self._let_in = 0
        """Connections that gave the password, and those of them that were let in by now. The remaining ones are about
        to be, or have left."""
        self._left = 0
        """Connections that left before they were let in, with the password or without."""
        self._refused = 0
        """Other connections that were not let in."""
        self._still_open = 0
        """Those of `_refused` that gave a wrong password and have not ended yet."""
        self._has_left = self._has_failed = False
        """Why the connection ended whose end is the next event."""

    def take(self) -> None:
        """Answer the connections that knock, and count those that have ended."""
        while _has_input(self._monitor):
            self._count(*_EVENT.unpack_from(self._monitor.recv_multipart()[0]))
        # After the events: a connection that is known to have left has knocked before.
        while _has_input(self.knocks):
            self._answer()
        # While a connection is being let in, one that has left may look as if it had the password.
        self.refused = max(self.refused, self._refused + self._left - (self._welcome - self._let_in))

    def close(self) -> None:
        """Let no connection in any more. Closing again does nothing."""
        if not self.knocks.closed:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
            self.knocks.close(linger=0)

    def _answer(self) -> None:
        version, request, *_, password = self.knocks.recv_multipart()
        is_welcome = hmac.compare_digest(password, self._password)
        self._welcome += is_welcome
        # "Try again later": do not tell a stranger that the password is wrong.
        self.knocks.send_multipart([version, request, b"200" if is_welcome else b"300", b"", b"", b""])

    def _count(self, event: int, value: int) -> None:
        if event == _ENDED:
            self._count_end(value)
        elif event == _ACCEPTED:
            self._accepted[value] = self._let_in
        elif event == _LET_IN:
            self._let_in += 1
        elif event == _WRONG_PASSWORD:
            self._refused += 1
            self._still_open += 1
        elif event == _LEFT:
            self._left += 1
            self._has_left = True
        else:
            self._has_failed = True

    def _count_end(self, descriptor: int) -> None:
        """ZeroMQ does not tell whether a connection that ends had been let in: not if none was since it arrived."""
        is_refusal = self._accepted.pop(descriptor, -1) == self._let_in or self._has_failed
        if is_refusal and not self._has_left:
            if self._still_open:
                self._still_open -= 1
            else:
                self._refused += 1
        self._has_left = self._has_failed = False


def _has_input(socket: zmq.Socket[bytes]) -> bool:
    return bool(socket.getsockopt(_WHAT_IS_THERE) & _POLLIN)  # type: ignore[operator]
