"""Frames between a supervisor and its forking parent.

Guarantees: frames arrive whole and in order. Every frame is a 4-byte little-endian length and a msgpack struct.

Relies on: a blocking AF_UNIX stream socket at either end. Its owner may limit how long the kernel waits for the peer
(`LIMITED_WAIT`): a peer that is stopped then raises OSError instead of holding up this process.
"""

from __future__ import annotations

import socket
import struct

import msgspec

from squall.scheduler.common.messages import Wire, WorkerBoot

_LENGTH_BYTES = 4
WAIT_SECS = 5
LIMITED_WAIT = struct.pack("ll", WAIT_SECS, 0)
"""Value of SO_SNDTIMEO and SO_RCVTIMEO."""


class ForkRequest(Wire, frozen=True, tag=True):
    """Supervisor to forking parent. `entry` is "module:function"; the function takes the boot, returns an exit code."""

    boot: WorkerBoot
    entry: str


class Forked(Wire, frozen=True, tag=True):
    """The answer. Pid and start time name the child for good; it may have ended since."""

    port: int
    incarnation: int
    pid: int
    started_ticks: int


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

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ForkingParentFrame)


def send(sock: socket.socket, frame: ForkingParentFrame) -> None:
    """Send a frame; waits while the peer does not read. OSError if the peer has gone."""
    body = _ENCODER.encode(frame)
    sock.sendall(len(body).to_bytes(_LENGTH_BYTES, "little") + body)


def receive(sock: socket.socket) -> ForkingParentFrame:
    """The next frame; waits for it. EOFError or OSError if the peer has gone, DecodeError if it sent something else."""
    size = int.from_bytes(_exactly(sock, _LENGTH_BYTES), "little")
    frame: ForkingParentFrame = _DECODER.decode(_exactly(sock, size))
    return frame


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        # A signal may cut short what MSG_WAITALL has begun.
        more = sock.recv(count - len(data), socket.MSG_WAITALL)
        if not more:
            raise EOFError("the other end of the forking parent's socket has gone")
        data += more
    return data
