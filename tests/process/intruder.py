"""Whoever talks to a ZeroMQ socket by hand, and says what no socket of ours would."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from types import TracebackType

PATIENCE_SECS = 20.0


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
