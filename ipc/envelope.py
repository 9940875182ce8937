"""Signed envelopes of the control plane: their form on the wire, and which frames are accepted.

Guarantees: a frame is decoded, and anything of it remembered, only after its signature was verified.

Relies on: the key being known to the cluster's own processes only (a 0600 file in a 0700 directory).

ZeroMQ parts: ``[signature (32 bytes: HMAC-SHA256 of the envelope), envelope (msgpack)]``. A ROUTER sees the peer's
identity in front.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from squall.engine.errors import ProtocolError, UsageError

SESSION_BYTES = 16

Kind = Literal["request", "reply", "error", "event"]


class Nonce(NamedTuple):
    """What tells a frame from all others."""

    session: Annotated[bytes, msgspec.Meta(min_length=SESSION_BYTES, max_length=SESSION_BYTES)]
    """Of the sender: random, one per Sealer."""
    sequence: Annotated[int, msgspec.Meta(ge=1)]

    def follows(self, other: Nonce) -> bool:
        """Whether the same process has sent this frame later than the other."""
        return self.session == other.session and self.sequence > other.sequence


NO_NONCE = Nonce(b"", 0)
"""Of no frame; none follows it."""


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One control frame, without its signature."""

    kind: Kind
    id: Annotated[int, msgspec.Meta(ge=0)]
    """Number of the request that a reply or error answers; 0 in events."""
    method: Annotated[str, msgspec.Meta(max_length=100)]
    body: bytes
    """Msgpack of the message struct."""
    sender: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    nonce: Nonce


_DECODER = msgspec.msgpack.Decoder(Envelope)


class Sealer:
    """Makes the signed frames of one sender. Thread: its owner's. Use it on one side of a fork only."""

    def __init__(self, key: bytes, sender: str) -> None:
        self._key = key
        self._sender = sender
        self._sequence = 0
        self._encoder = msgspec.msgpack.Encoder()
        self.session = os.urandom(SESSION_BYTES)

    def seal(self, kind: Kind, id: int, method: str, body: msgspec.Struct) -> list[bytes]:
        """The two parts of a frame. UsageError if a value cannot be sent."""
        try:
            content = self._encoder.encode(body)
        except (OverflowError, TypeError, ValueError, RecursionError) as error:
            # A large integer, a foreign object, half a surrogate: a caller's argument.
            raise UsageError(f"control message {method} cannot be sent: {error}") from error
        self._sequence += 1
        envelope = self._encoder.encode(
            Envelope(kind, id, method, content, self._sender, Nonce(self.session, self._sequence))
        )
        return [sign(self._key, envelope), envelope]


def open_envelope(key: bytes, parts: Sequence[bytes]) -> Envelope:
    """The envelope in `parts`; ProtocolError if it is refused."""
    if len(parts) != 2 or not hmac.compare_digest(sign(key, parts[1]), parts[0]):
        raise ProtocolError("control frame with a wrong signature: the sender does not have this cluster's key")
    try:
        return _DECODER.decode(parts[1])
    except ValueError as error:
        raise ProtocolError(f"signed control frame that is no envelope: {error}") from None


def sign(key: bytes, envelope: bytes) -> bytes:
    """Signature of an encoded envelope."""
    return hmac.digest(key, envelope, "sha256")
