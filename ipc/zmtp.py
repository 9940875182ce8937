"""The bytes of a ZeroMQ connection, for who talks to a socket by hand: ZMTP 3.0 with the PLAIN mechanism (RFC 23, 24).

Guarantees: nothing of what it makes is checked. No process of ours talks like this, but those that test others.
"""

from __future__ import annotations

MORE, LONG, COMMAND = 1, 2, 4
"""Flags of a ZMTP frame."""
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"


def greeting(mechanism: bytes) -> bytes:
    """The beginning of a connection."""
    return _SIGNATURE + b"\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


def zmtp(data: bytes, flags: int = 0) -> bytes:
    """One part, or command."""
    if len(data) < 256:
        return bytes([flags, len(data)]) + data
    return announcement(len(data), flags) + data


def announcement(size: int, flags: int = 0) -> bytes:
    """The beginning of a part of so many bytes."""
    return bytes([flags | LONG]) + size.to_bytes(8, "big")


def hello(user: bytes, password: bytes) -> bytes:
    """The command that gives a password."""
    said = b"\x05HELLO" + bytes([len(user)]) + user + bytes([len(password)]) + password
    return zmtp(said, COMMAND)


def initiate(kind: bytes) -> bytes:
    """The command after a password: the type of this socket."""
    return zmtp(b"\x08INITIATE" + _socket_type(kind), COMMAND)


def ready(kind: bytes) -> bytes:
    """The command that ends a handshake without a password: the type of this socket."""
    return zmtp(b"\x05READY" + _socket_type(kind), COMMAND)


def message(parts: list[bytes]) -> bytes:
    """A whole message."""
    return b"".join(zmtp(part, MORE) for part in parts[:-1]) + zmtp(parts[-1])


def _socket_type(kind: bytes) -> bytes:
    return b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
