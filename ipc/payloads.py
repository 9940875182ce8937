"""Big buffers beside a frame: in the sender's arena, or inline where there is no room in it, or none for it.

Guarantees: a buffer that was writable at the sender (a bytearray, an array) is writable at the receiver. A block is
freed when its frame was processed or its receiver is gone, an arena unmapped when its sender is gone. A buffer that is
sent to several workers in one turn is written once, if it is still the same.

Relies on: `ipc.arena` to tell a block that is gone from the one that was meant. Thread: the worker's loop.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.arena import Arena, BlockRef, digest, may_be_read
from squall.ipc.arena_reader import ArenaReader
from squall.ipc.codec import Buffers

_MOST_REMEMBERED = 64
_PAUSE_BUFFERS = 100


class _Descriptor(msgspec.Struct, array_like=True, frozen=True):
    """One buffer of a frame."""

    readonly: bool
    ref: BlockRef | None
    """Its block in the arena; None: it follows inline."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_Descriptor])


class Payloads:
    """The big buffers of one worker's data plane, both ways."""

    def __init__(self, arena_bytes: int, counts: Counter[str]) -> None:
        self._arena_bytes = arena_bytes
        self._counts = counts
        self._arena: Arena | None = None
        self._pause = 0
        """Buffers until the system is asked again for what it has refused."""
        self._remembered: dict[int, tuple[Any, BlockRef]] = {}
        """Identity of an object that was put in lately -> the object and its block."""
        self._reader = ArenaReader()
        self._pids: dict[int, int] = {}
        """Worker -> pid of the process whose arena is mapped for it."""

    # ---- sending ----

    def attach(self, buffers: Buffers) -> tuple[list[Any], Callable[[], None] | None]:
        """The parts of a frame that carry these buffers, and what frees their blocks once they were copied."""
        descriptors: list[_Descriptor] = []
        refs: list[BlockRef] = []
        inline: list[Any] = []
        for buffer in buffers:
            raw = buffer.raw()
            stored = self._store(raw)
            if stored is None:
                inline.append(raw)
            else:
                refs.append(stored)
            descriptors.append(_Descriptor(raw.readonly, stored))
        for way, stored_so in (("buffers inline", inline), ("buffers in arena", refs)):
            if stored_so:
                self._counts[way] += len(stored_so)
        parts = [_ENCODER.encode(descriptors), *inline]
        arena = self._arena
        if arena is None or not refs:
            return parts, None

        def release() -> None:
            for ref in refs:
                arena.free(ref)

        return parts, release

    def _store(self, raw: memoryview) -> BlockRef | None:
        """Put a buffer in the arena, or find it there. None if there is no room."""
        arena = self._made_arena()
        if arena is None:
            return None
        value = raw.obj
        remembered = self._remembered.get(id(value))
        if remembered is not None and self._is_still(raw, *remembered):
            arena.share(remembered[1])
            return remembered[1]
        ref = arena.put(raw)
        if ref is None:
            return None
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[id(value)] = value, ref
        return ref

    def _made_arena(self) -> Arena | None:
        """The arena. None if the settings allow none, or nobody could read it, and while the system has no memory or
        descriptor for one, or forbids files of its size."""
        if self._arena_bytes and not may_be_read():
            self._arena_bytes = 0
            sys.stderr.write("the kernel hides our memory: long values go through sockets (squall doctor)\n")
        if self._arena is None and self._arena_bytes:
            if self._pause:
                self._pause -= 1
                return None
            try:
                self._arena = Arena.create(self._arena_bytes)
            except ClusterError:
                self._pause = _PAUSE_BUFFERS
        return self._arena if self._arena_bytes else None

    def _is_still(self, raw: memoryview, value: Any, ref: BlockRef) -> bool:
        """Whether an object's block is live and holds what the object holds now."""
        if raw.obj is not value or raw.nbytes != ref.length or self._arena is None or not self._arena.is_live(ref):
            return False
        if type(value) is bytes and len(value) == raw.nbytes:
            return True
        return digest(raw) == ref.digest

    def forget_sent(self) -> None:
        """Keep no object that was sent."""
        if self._remembered:
            self._remembered.clear()

    # ---- receiving ----

    def collect(self, sender: int, parts: Sequence[Any]) -> list[Any]:
        """Reverse `attach`. Raises whatever foreign parts can cause."""
        inline = iter(parts[1:])
        return [self._take(sender, each, inline) for each in _DECODER.decode(parts[0])]

    def _take(self, sender: int, each: _Descriptor, inline: Iterator[Any]) -> Any:
        if each.ref is None:
            data = next(inline)
            return data if each.readonly else bytearray(data)
        taken = self._reader.copy(each.ref, bytes if each.readonly else bytearray)
        self._pids[sender] = each.ref.pid
        return taken

    def forget(self, sender: int) -> None:
        """Unmap the arena of a peer's incarnation that is dead."""
        pid = self._pids.pop(sender, None)
        if pid is not None:
            self._reader.detach(pid)

    def close(self) -> None:
        """Unmap everything. Closing again does nothing."""
        self.forget_sent()
        if self._arena is not None:
            self._arena.close()
        self._reader.close()
