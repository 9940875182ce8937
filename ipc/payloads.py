"""Big buffers beside a frame: in the sender's arena, or inline where there is no room in it.

Guarantees: a buffer that was writable at the sender (a bytearray, an array) is writable at the receiver; a block is
freed when its frame was processed or its receiver is gone; an arena is unmapped when its sender is gone.

Relies on: `ipc.arena` to tell a block that is gone from the one that was meant. Thread: the worker's loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from squall.ipc.arena import Arena, BlockRef
from squall.ipc.arena_reader import ArenaReader
from squall.ipc.codec import Buffers

_DESCRIPTORS = msgspec.msgpack.Decoder(list[tuple[bool, tuple[int, ...] | None]])
"""For each buffer: whether it was read-only, and its block in the arena (None: it follows inline)."""


class Payloads:
    """The big buffers of one worker's data plane, both ways."""

    def __init__(self, arena_bytes: int, counts: Counter[str]) -> None:
        self._arena_bytes = arena_bytes
        self._counts = counts
        self._arena: Arena | None = None
        self.exhausted = False
        """On purpose: the arena takes nothing, as if it had no room."""
        self._reader = ArenaReader()
        self._pids: dict[int, int] = {}
        """Worker -> pid of the process whose arena is mapped for it."""

    def attach(self, buffers: Buffers) -> tuple[list[Any], Callable[[], None] | None]:
        """The parts of a frame that carry these buffers, and what frees their blocks."""
        refs: list[BlockRef] = []
        descriptors: list[tuple[bool, tuple[int, ...] | None]] = []
        inline = []
        for buffer in buffers:
            raw = buffer.raw()
            ref = self._store(raw)
            descriptors.append((raw.readonly, None if ref is None else tuple(ref)))
            if ref is None:
                self._counts["buffers inline"] += 1
                inline.append(raw)
            else:
                self._counts["buffers in arena"] += 1
                refs.append(ref)
        parts = [msgspec.msgpack.encode(descriptors), *inline]
        arena = self._arena
        if arena is None or not refs:
            return parts, None

        def release() -> None:
            for ref in refs:
                arena.free(ref)

        return parts, release

    def _store(self, raw: memoryview) -> BlockRef | None:
        if not self._arena_bytes or self.exhausted:
            return None
        if self._arena is None:
            self._arena = Arena.create(self._arena_bytes)
        return self._arena.put(raw)

    def collect(self, sender: int, parts: Sequence[Any]) -> list[Any]:
        """Reverse `attach`. Raises whatever foreign parts can cause."""
        inline = iter(parts[1:])
        buffers: list[Any] = []
        for readonly, ref in _DESCRIPTORS.decode(parts[0]):
            data = next(inline) if ref is None else self._read(sender, BlockRef(*ref))
            buffers.append(data if readonly else bytearray(data))
        return buffers

    def _read(self, sender: int, ref: BlockRef) -> bytes:
        data = self._reader.copy(ref)
        self._pids[sender] = ref.pid
        return data

    def forget(self, sender: int) -> None:
        """Unmap the arena of a peer's incarnation that is dead."""
        pid = self._pids.pop(sender, None)
        if pid is not None:
            self._reader.detach(pid)

    def close(self) -> None:
        """Unmap everything. Closing again does nothing."""
        if self._arena is not None:
            self._arena.close()
        self._reader.close()
