"""Big buffers beside a frame: in the sender's arena, or inline where there is no room in it, or none for it.

Guarantees: a buffer that was writable at the sender (a bytearray, an array) is writable at the receiver, unless the
receiver's bolt takes views: then none is. A block is freed when its frame was processed or its receiver is gone; a lent
one when no view of it is left, or its receiver is gone. An arena is unmapped when its sender is gone and no view of it
is left. A buffer that is sent to several workers in one turn is written once, if it is still the same.

Relies on: `ipc.arena` to tell a block that is gone from the one that was meant. Thread: the worker's loop.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from squall.engine.errors import ClusterError, ProtocolError
from squall.ipc.arena import Arena, BlockRef
from squall.ipc.arena_reader import ArenaReader
from squall.ipc.checksum import UNCHECKED, digest
from squall.ipc.codec import Buffers
from squall.ipc.loans import Loans

_MOST_REMEMBERED = 64
_PAUSE_BUFFERS = 100


class _Descriptor(msgspec.Struct, array_like=True, frozen=True):
    """One buffer of a frame."""

    readonly: bool
    ref: BlockRef | None
    """Its block in the arena; None: it follows inline."""
    digest: int = UNCHECKED
    """Of the block's content."""
    loan: tuple[int, int] | None = None
    """Slot and serial, if the block is to be read in place."""


class _Table(msgspec.Struct, array_like=True, frozen=True):
    to_view: int
    """So many of the buffers, the first ones, are of values that are read in place."""
    buffers: list[_Descriptor]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Table)


class Payloads:
    """The big buffers of one worker's data plane, both ways."""

    def __init__(self, arena_bytes: int, counts: Counter[str]) -> None:
        self._arena_bytes = arena_bytes
        self._counts = counts
        self._arena: Arena | None = None
        self._loans: Loans | None = None
        self.exhausted = False
        """On purpose: the arena takes nothing, as if it had no room."""
        self._pause = 0
        """Buffers until the system is asked again for what it has refused."""
        self._remembered: dict[int, tuple[Any, BlockRef, int]] = {}
        """Identity of an object that was put in lately -> the object, its block and digest."""
        self._reader = ArenaReader()
        self._pids: dict[int, int] = {}
        """Worker -> pid of the process whose arena is mapped for it."""

    # ---- sending ----

    def attach(
        self, buffers: Buffers, to_view: Buffers = (), receiver: int = -1, frame: int = 0
    ) -> tuple[list[Any], Callable[[], None] | None]:
        """The parts of a frame that carry these buffers, and what frees the blocks that are to be copied. Blocks
        `to_view` are lent to the receiver of the frame, by its number."""
        refs: list[BlockRef] = []
        inline: list[Any] = []
        lend_to = receiver, frame
        descriptors = [self._descriptor(buffer.raw(), inline, refs, lend_to) for buffer in to_view]
        descriptors += [self._descriptor(buffer.raw(), inline, refs, None) for buffer in buffers]
        for way, many in (("buffers inline", len(inline)), ("buffers in arena", len(descriptors) - len(inline))):
            if many:
                self._counts[way] += many
        parts = [_ENCODER.encode(_Table(len(to_view), descriptors)), *inline]
        arena = self._arena
        if arena is None or not refs:
            return parts, None

        def release() -> None:
            for ref in refs:
                arena.free(ref)

        return parts, release

    def _descriptor(
        self, raw: memoryview, inline: list[Any], refs: list[BlockRef], lend_to: tuple[int, int] | None
    ) -> _Descriptor:
        """Store a buffer, and say where; one that is to be copied goes to `refs` or `inline`."""
        stored = self._store(raw)
        if stored is None:
            inline.append(raw)
            return _Descriptor(raw.readonly, None)
        ref, proof = stored
        loan = None if lend_to is None else self._lend(ref, *lend_to)
        if loan is None:
            refs.append(ref)
        return _Descriptor(raw.readonly, ref, proof, loan)

    def _store(self, raw: memoryview) -> tuple[BlockRef, int] | None:
        """Put a buffer in the arena, or find it there: its block and digest. None if there is no room."""
        if not self._arena_bytes or self.exhausted:
            return None
        arena = self._made_arena()
        if arena is None:
            return None
        value = raw.obj
        remembered = self._remembered.get(id(value))
        if remembered is not None and self._is_still(raw, *remembered):
            arena.share(remembered[1])
            return remembered[1:]
        loans = self._loans
        if loans:
            loans.settle()
        ref = arena.put(raw)
        if ref is None and loans:
            loans.settle(everything=True)
            ref = arena.put(raw)
        if ref is None:
            return None
        proof = digest(raw)
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[id(value)] = value, ref, proof
        return ref, proof

    def _made_arena(self) -> Arena | None:
        """The arena. None while the system has no memory or descriptor for one, or forbids files of its size."""
        if self._arena is None:
            if self._pause:
                self._pause -= 1
                return None
            try:
                self._arena = Arena.create(self._arena_bytes)
            except ClusterError:
                self._pause = _PAUSE_BUFFERS
        return self._arena

    def _is_still(self, raw: memoryview, value: Any, ref: BlockRef, proof: int) -> bool:
        """Whether an object's block is live and holds what the object holds now."""
        if raw.obj is not value or raw.nbytes != ref.length or self._arena is None or not self._arena.is_live(ref):
            return False
        if type(value) is bytes and len(value) == raw.nbytes:
            return True
        return digest(raw) == proof

    def _lend(self, ref: BlockRef, receiver: int, frame: int) -> tuple[int, int] | None:
        loans = self._loans
        if loans is None and self._arena is not None:
            if self._pause:
                self._pause -= 1
                return None
            try:
                loans = self._loans = Loans(self._arena)
            except ClusterError:
                self._pause = _PAUSE_BUFFERS
        return None if loans is None else loans.lend(ref, receiver, frame)

    def forget_sent(self) -> None:
        """Keep no object that was sent."""
        if self._remembered:
            self._remembered.clear()

    def frames_lost(self, receiver: int, first: int, last: int) -> None:
        """A receiver has not got these frames, and never will: what they lent is free."""
        if self._loans is not None:
            self._loans.lost(receiver, first, last)

    def receiver_gone(self, receiver: int) -> None:
        """An incarnation that blocks were lent to is dead."""
        if self._loans is not None:
            self._loans.forget(receiver)

    # ---- receiving ----

    def collect(self, sender: int, parts: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Reverse `attach`: buffers, and buffers to view. Raises whatever foreign parts can cause."""
        table = _DECODER.decode(parts[0])
        inline = iter(parts[1:])
        taken: list[Any] = []
        try:
            for number, each in enumerate(table.buffers):
                data = next(inline) if each.ref is None else None
                taken.append(self._take(sender, each, number < table.to_view, data))
        except BaseException:
            # What is lent by the others, too, must be given back.
            for each in table.buffers[len(taken) + 1 :]:
                if each.loan is not None:
                    with contextlib.suppress(ClusterError, ProtocolError):
                        self._take(sender, each, True, None)
            raise
        return taken[table.to_view :], taken[: table.to_view]

    def _take(self, sender: int, each: _Descriptor, to_view: bool, data: Any) -> Any:
        readonly = each.readonly or to_view
        if each.ref is None:
            return data if readonly else bytearray(data)
        ref = each.ref
        taken: bytes | bytearray | memoryview
        if each.loan is not None:
            taken = self._reader.view(ref, each.digest, *each.loan)
        elif readonly:
            taken = self._reader.copy(ref, each.digest)
        else:
            taken = self._reader.copy_to_change(ref, each.digest)
        self._pids[sender] = ref.pid
        return taken

    def forget(self, sender: int) -> None:
        """Unmap the arena of a peer's incarnation that is dead."""
        pid = self._pids.pop(sender, None)
        if pid is not None:
            self._reader.detach(pid)

    def close(self) -> None:
        """Unmap everything but what is viewed. Closing again does nothing."""
        self.forget_sent()
        if self._loans is not None:
            self._loans.close()
        if self._arena is not None:
            self._arena.close()
        self._reader.close()
