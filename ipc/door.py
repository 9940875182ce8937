"""Lets into a listening socket only who knows a password, before ZeroMQ takes a message from it.

Guarantees
    * Of a connection that has not given the password, ZeroMQ holds one handshake command, not longer than MAXMSGSIZE;
      nothing of it reaches the socket. The comparison takes as long whichever byte is wrong.
    * A connection that ended without being let in is counted in `refused`, once, unless it had given the password. Only
      one that ZeroMQ ended without giving a reason, while another was let in, may be missed.

Relies on: the PLAIN mechanism with a ZAP handler (RFC 24 and 27), of which a context has one: so one door per context.
Without the handler ZeroMQ lets nobody in. A password that is sent is not proven to be asked for by the right process.

Not guaranteed: a bound on the number of connections. Each takes a descriptor, and ZeroMQ aborts the process that has
none left.
"""

from __future__ import annotations

import hmac
import struct
from typing import TypeAlias

import zmq

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

_USER = b"squall"
_HANDLER = "inproc://zeromq.zap.01"
_MONITOR = "inproc://squall.door"
_EVENT = struct.Struct("=HI")
_ACCEPTED, _LET_IN, _ENDED = (
    int(zmq.EVENT_ACCEPTED), int(zmq.EVENT_HANDSHAKE_SUCCEEDED), int(zmq.EVENT_DISCONNECTED)
)  # fmt: skip
_WRONG_PASSWORD = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_WRONG_WORDS, _LEFT = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL), int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
"""Of a connection that ends in the handshake; that it has ended is told right after it. A peer of ZeroMQ's that was not
going to give a password hangs up by itself."""
_EVENTS = _ACCEPTED | _LET_IN | _ENDED | _WRONG_PASSWORD | _WRONG_WORDS | _LEFT
_POLLIN, _WHAT_IS_THERE = int(zmq.POLLIN), int(zmq.EVENTS)


def password_of(secret: bytes, what: bytes) -> bytes:
    """The password of one kind of connection; it does not tell the secret."""
    return hmac.digest(secret, b"connection\0" + what, "sha256").hex().encode()


def knock(socket: zmq.Socket[bytes], password: bytes, handshake_ms: int = 0) -> None:
    """Have a socket that is not connected yet give this password wherever it connects to. It waits to be let in, or
    begins anew after so many milliseconds."""
    socket.setsockopt(zmq.PLAIN_USERNAME, _USER)
    socket.setsockopt(zmq.PLAIN_PASSWORD, password)
    socket.setsockopt(zmq.HANDSHAKE_IVL, handshake_ms)


class Door:
    """Of one socket. Made before the socket is bound, closed before the socket is; the owner polls `knocks` too.

    Who is to be let in waits until the owner looks. Where that may take long, nobody hurries: `handshake_ms` is 0.
    """

    def __init__(self, context: Context, socket: zmq.Socket[bytes], password: bytes, handshake_ms: int = 0) -> None:
        """`handshake_ms`: when a connection is closed that has not been let in; 0, never."""
        self.refused = 0
        """Connections that were not let in, as of the last `take`."""
        self._password = password
        self._socket = socket
        self.knocks: zmq.Socket[bytes] = context.socket(zmq.REP)
        """What to poll: when somebody knocks, `take` is due. Who has gone need not be counted at once."""
        self.knocks.setsockopt(zmq.LINGER, 0)
        self.knocks.bind(_HANDLER)
        socket.setsockopt(zmq.PLAIN_SERVER, 1)
        socket.setsockopt(zmq.HANDSHAKE_IVL, handshake_ms)
        socket.monitor(_MONITOR, _EVENTS)
        self._monitor = context.socket(zmq.PAIR)
        # Or ZeroMQ's thread would wait for this one in the middle of its work.
        self._monitor.set_hwm(0)
        self._monitor.connect(_MONITOR)
        self._accepted: dict[int, int] = {}
        """How many had been let in when a connection came, by its descriptor."""
        self._welcome = self._let_in = 0
        """Connections that gave the password, and those of them that were let in by now. The others are about to be, or
        have left."""
        self._left = 0
        """Connections that left before they were let in, welcome or not."""
        self._refused = 0
        """Others that were not let in."""
        self._still_open = 0
        """Those of them that gave a wrong password and have not ended."""
        self._has_left = self._has_failed = False
        """Why the connection ends whose end is told next."""

    def take(self) -> None:
        """Answer those who knock, and count those who have gone."""
        while _has_input(self._monitor):
            self._count(*_EVENT.unpack_from(self._monitor.recv_multipart()[0]))
        # After the events: who is known to have left has knocked before.
        while _has_input(self.knocks):
            self._answer()
        # While somebody is let in, one who has left may seem to have been welcome.
        self.refused = max(self.refused, self._refused + self._left - (self._welcome - self._let_in))

    def close(self) -> None:
        """Let nobody in any more. Closing again does nothing."""
        if not self.knocks.closed:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
            self.knocks.close(linger=0)

    def _answer(self) -> None:
        version, request, *_, password = self.knocks.recv_multipart()
        is_welcome = hmac.compare_digest(password, self._password)
        self._welcome += is_welcome
        # "Try again later": whoever has a wrong password is not told so.
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
        """ZeroMQ does not say whether a connection that ends had been let in: it had not, if none was since it came."""
        is_refusal = self._accepted.pop(descriptor, -1) == self._let_in or self._has_failed
        if is_refusal and not self._has_left:
            if self._still_open:
                self._still_open -= 1
            else:
                self._refused += 1
        self._has_left = self._has_failed = False


def _has_input(socket: zmq.Socket[bytes]) -> bool:
    return bool(socket.getsockopt(_WHAT_IS_THERE) & _POLLIN)  # type: ignore[operator]
