"""Frames between a supervisor and its forking parent, with descriptors attached.

Guarantees: frames arrive whole and in order, each with the descriptors that were sent with it, close-on-exec; `receive`
distinguishes the end of the peer (EOFError) from a frame that is not complete yet.

Relies on: an AF_UNIX stream socket pair, the kernel never joining bytes across a message that carries descriptors.
Every frame is a 4-byte little-endian length and a msgpack struct.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import NamedTuple

import msgspec

from squall.engine.errors import ProtocolError
from squall.scheduler.common.messages import Wire, WorkerBoot

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 16 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
MAX_DESCRIPTORS = 16


class ForkRequest(Wire, frozen=True, tag=True):
    """Supervisor to forking parent. `entry` is "module:function"; the function takes the boot, returns an exit code."""

    boot: WorkerBoot
    entry: str


class Forked(Wire, frozen=True, tag=True):
    """The answer; one descriptor comes with it, the child's pidfd."""

    port: int
    incarnation: int
    pid: int


class ForkRefused(Wire, frozen=True, tag=True):
    """The answer if there is no child."""

    port: int
    incarnation: int
    error: str


class ChildExited(Wire, frozen=True, tag=True):
    """A child was reaped. `status` is as from `os.waitpid`."""

    pid: int
    status: int


ForkingParentFrame = ForkRequest | Forked | ForkRefused | ChildExited


class Received(NamedTuple):
    frame: ForkingParentFrame
    descriptors: list[int]


class ForkingParentChannel:
    """One end of the socket pair. Thread: its process's loop."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ForkingParentFrame)
        self._buffer = bytearray()
        self._descriptors: deque[int] = deque()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, frame: ForkingParentFrame, descriptors: tuple[int, ...] = ()) -> None:
        """Send a frame; waits while the peer does not read. BrokenPipeError if the peer has gone."""
        body = self._encoder.encode(frame)
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(f"{type(frame).__name__} has {len(body)} bytes; allowed: at most {MAX_FRAME_BYTES}")
        data = len(body).to_bytes(LENGTH_BYTES, "little") + body
        sent = socket.send_fds(self.socket, [data], descriptors) if descriptors else 0
        self.socket.sendall(memoryview(data)[sent:])

    def receive(self) -> list[Received]:
        """The frames that have arrived. Does not wait if the socket is readable. EOFError when the peer has gone."""
        data, descriptors, flags, _ = socket.recv_fds(self.socket, CHUNK_BYTES, MAX_DESCRIPTORS)
        self._descriptors.extend(descriptors)
        if flags & socket.MSG_CTRUNC:
            raise ProtocolError(f"more than {MAX_DESCRIPTORS} descriptors came with one frame, or too many are open")
        if not data:
            raise EOFError("the other end of the forking parent's socket has gone")
        self._buffer += data
        return self._take_frames()

    def close(self) -> None:
        """Close the socket, and the descriptors that were not taken."""
        self.socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def _take_frames(self) -> list[Received]:
        received = []
        while len(self._buffer) >= LENGTH_BYTES:
            size = int.from_bytes(self._buffer[:LENGTH_BYTES], "little")
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes is announced; allowed: at most {MAX_FRAME_BYTES}")
            end = LENGTH_BYTES + size
            if len(self._buffer) < end:
                break
            frame = self._decode(bytes(self._buffer[LENGTH_BYTES:end]))
            del self._buffer[:end]
            taken = [self._descriptors.popleft()] if isinstance(frame, Forked) else []
            received.append(Received(frame, taken))
        return received

    def _decode(self, body: bytes) -> ForkingParentFrame:
        try:
            frame: ForkingParentFrame = self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"frame of the forking parent's socket is no known message: {error}") from None
        return frame
