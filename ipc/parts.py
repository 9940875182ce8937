"""Parts of a frame as ZeroMQ carries them: all are short, so a socket never allocates for a long one.

Guarantees: `join` reverses `cut`. Short parts pass unchanged, uncopied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from squall.engine.errors import ProtocolError

PART_BYTES = 4 << 20
"""A part of exactly so many bytes continues in the next one. Twice the default size of a frame without big tuples, so
that most need no cut."""


def cut(parts: Iterable[Any]) -> list[Any]:
    """Cut parts (bytes, or memoryviews of bytes) into pieces that may be sent."""
    pieces: list[Any] = []
    for part in parts:
        if len(part) < PART_BYTES:
            pieces.append(part)
            continue
        view = memoryview(part)
        # One piece more than fits whole: if nothing is left over, an empty one ends the part.
        pieces += (view[at : at + PART_BYTES] for at in range(0, len(view) + 1, PART_BYTES))
    return pieces


def join(pieces: Sequence[bytes]) -> list[bytes]:
    """Join pieces to the parts that were cut. ProtocolError if the last part is not whole."""
    parts: list[bytes] = []
    open_pieces: list[bytes] = []
    for piece in pieces:
        if len(piece) == PART_BYTES:
            open_pieces.append(piece)
        elif open_pieces:
            parts.append(b"".join([*open_pieces, piece]))
            open_pieces = []
        else:
            parts.append(piece)
    if open_pieces:
        n_bytes = len(open_pieces) * PART_BYTES
        raise ProtocolError(f"frame that ends in the middle of a part, after {n_bytes} bytes of it")
    return parts
