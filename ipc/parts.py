"""Parts of a frame as ZeroMQ carries them: none is long, so a socket need not make room for a long one.

Guarantees: of what `cut` made of a list of parts, `join` makes that list again. Parts that are short stay as they are,
uncopied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from squall.engine.errors import ProtocolError

PART_BYTES = 4 << 20
"""A part of exactly so many bytes goes on in the next one. Twice what a frame has by default if no tuple of it is big
itself."""


def cut(parts: Iterable[Any]) -> list[Any]:
    """These parts (bytes, or memoryviews of bytes), in pieces that may be sent."""
    pieces: list[Any] = []
    for part in parts:
        if len(part) < PART_BYTES:
            pieces.append(part)
            continue
        view = memoryview(part)
        # One more than fits whole: where nothing is left, an empty one ends the part.
        pieces += (view[at : at + PART_BYTES] for at in range(0, len(view) + 1, PART_BYTES))
    return pieces


def join(pieces: Sequence[bytes]) -> list[bytes]:
    """The parts that these are the pieces of. ProtocolError if the last one is not whole."""
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
