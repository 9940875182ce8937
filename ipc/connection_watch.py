"""Tells when a socket's connection is made and lost.

Relies on: the socket's monitor, which reports the end of the handshake and the loss of the connection. Close the watch
before the socket. Thread: the socket's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import zmq

_EVENT = struct.Struct("=H")
"""Beginning of a monitor's message. Parsed here because `zmq.utils.monitor` imports asyncio, which costs every daemon
and command 20 ms."""


class ConnectionWatch:
    """Watches one connecting socket."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self.source = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        """What to poll."""

    def changes(self) -> Iterator[bool]:
        """Changes since the last call: True for connected, False for lost."""
        while self.source.poll(0):
            (event,) = _EVENT.unpack_from(self.source.recv_multipart()[0])
            yield event == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def close(self) -> None:
        self._socket.disable_monitor()
        self.source.close(linger=0)
