"""Tells when a socket's connection comes and goes.

Relies on: the socket's monitor, which sees the handshake's end and the loss of the connection. Owner: the thread that
owns the socket; to be closed before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import zmq

_EVENT = struct.Struct("=H")
"""How a monitor's message begins. `zmq.utils.monitor` reads it too, and imports asyncio, which costs every daemon and
command 20 ms."""


class ConnectionWatch:
    """Of one connecting socket."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self.source = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        """What to poll."""

    def changes(self) -> Iterator[bool]:
        """What has happened since the last call: True, connected; False, the peer has gone."""
        while self.source.poll(0):
            (event,) = _EVENT.unpack_from(self.source.recv_multipart()[0])
            yield event == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def close(self) -> None:
        self._socket.disable_monitor()
        self.source.close(linger=0)
