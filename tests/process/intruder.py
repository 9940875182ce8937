"""Whoever talks to a ZeroMQ socket by hand, and says what no socket of ours would."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from types import TracebackType

PATIENCE_SECS = 20.0
COMMAND, MORE, LONG = 4, 1, 2
"""Flags of a ZMTP frame."""
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"


def greeting(mechanism: bytes) -> bytes:
    """What a connection begins with."""
    return _SIGNATURE + b"\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


def ready(kind: bytes) -> bytes:
    """The command that ends a handshake without a password: what kind of socket this is."""
    return zmtp(b"\x05READY" + b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind, COMMAND)


def zmtp(data: bytes, flags: int = 0) -> bytes:
    """One part, or command."""
    if len(data) < 256:
        return bytes([flags, len(data)]) + data
    return announcement(len(data), flags) + data


def announcement(size: int, flags: int = 0) -> bytes:
    """How a part of so many bytes begins."""
    return bytes([flags | LONG]) + size.to_bytes(8, "big")


def hello(user: bytes, password: bytes) -> bytes:
    """The command that gives a password."""
    said = b"\x05HELLO" + bytes([len(user)]) + user + bytes([len(password)]) + password
    return zmtp(said, COMMAND)


class Intruder:
    """A connection to a socket's path. A context manager."""

    def __init__(self, path: str | Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_SECS)
        self._socket.connect(str(path))

    def __enter__(self) -> Intruder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def say(self, data: bytes) -> bool:
        """Whether there is still somebody to say it to."""
        try:
            self._socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def await_end(self) -> None:
        """Until the other side has hung up."""
        with contextlib.suppress(ConnectionError):
            while self._socket.recv(4096):
                pass  # its side of the greeting
