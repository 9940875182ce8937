"""Big buffers beside a frame: in the sender's arena, or inline where there is no room in it, or none for it.

Guarantees: a buffer that was writable at the sender (a bytearray, an array) is writable at the receiver. A block is
freed when its frame was processed or its receiver is gone, an arena unmapped when its sender is gone. A buffer that is
sent to several workers in one turn is written once, if it is still the same. Bytes are delivered only if the block that
their descriptor names was live before and after they were copied, and they are those that were put in; otherwise, and
for any descriptor that does not fit the arena it names, a `ProtocolError`. Memory outside live blocks is never touched,
so no descriptor can raise a SIGBUS. A mapping stays valid when the process that created it dies.

Relies on: the layout and the ordering that `ipc.arena` describes, and /proc/<pid>/fd being open to the same user, which
the sender checks (`arena.may_be_read`). Thread: the worker's loop.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from squall.engine.errors import ClusterError, ProtocolError, UsageError
from squall.ipc.arena import (
    GRAIN_BITS,
    GRAIN_BYTES,
    MAGIC,
    MAX_SIZE_BYTES,
    MEMFD_NAME,
    MIN_SIZE_BYTES,
    TABLE_WORD,
    VERSION,
    Arena,
    BlockRef,
    digest,
    may_be_read,
    table_bytes,
)
from squall.ipc.codec import Buffers

MAX_ARENAS = 1024
_FILE = f"/memfd:{MEMFD_NAME}"
_GRAIN_MASK = GRAIN_BYTES - 1
_NO_SHRINK = fcntl.F_SEAL_SHRINK
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


class _Mapping:
    """One attached arena. It is unmapped with its last reference."""

    __slots__ = ("bytes", "data_start", "pid", "size", "words")

    def __init__(self, pid: int, memory: mmap.mmap) -> None:
        self.pid = pid
        self.bytes = memoryview(memory)
        self.size = len(memory)
        self.data_start = table_bytes(self.size)
        self.words = self.bytes[: self.data_start].cast("Q")


class ArenaReader:
    """Reads blocks of any arena of the same user. Thread: the worker's loop."""

    def __init__(self) -> None:
        self._mappings: dict[int, _Mapping] = {}  # by the nonce of the arena
        self._closed = False

    def copy(self, ref: BlockRef, kind: type[bytes] | type[bytearray] = bytes) -> bytes | bytearray:
        """The payload of a block.

        ProtocolError: the block is gone, or damaged, or the descriptor is wrong. ClusterError: first block of an arena
        whose process is gone.
        """
        mapping, word = self._locate(ref)
        data = kind(mapping.bytes[ref.offset : ref.offset + ref.length])
        if mapping.words[word] != ref.generation:
            raise _reused(ref, "while it was read")
        if digest(data) != ref.digest:
            raise ProtocolError(
                f"arena block at {ref.offset}, generation {ref.generation} of process {ref.pid} is damaged: "
                f"its {ref.length} bytes are not those that were put in"
            )
        return data

    def detach(self, pid: int) -> None:
        """Unmap the arenas of a process that is dead or no longer a peer. Unknown processes are fine."""
        for nonce in [nonce for nonce, mapping in self._mappings.items() if mapping.pid == pid]:
            del self._mappings[nonce]

    def close(self) -> None:
        """Unmap everything. Closing again does nothing."""
        self._closed = True
        self._mappings.clear()

    def _locate(self, ref: BlockRef) -> tuple[_Mapping, int]:
        """The mapping of a live block and the index of its generation word."""
        pid, fd, nonce, offset, length, generation, _ = ref
        mapping = self._mappings.get(nonce)
        if mapping is None:
            mapping = self._mappings[nonce] = self._attach(pid, fd, nonce)
        size = mapping.size
        if not mapping.data_start <= offset < size or offset & _GRAIN_MASK or not 0 <= length <= size - offset:
            raise ProtocolError(f"arena descriptor {tuple(ref)} does not fit an arena of {size} bytes")
        word = TABLE_WORD + 2 * (offset >> GRAIN_BITS)
        words = mapping.words
        if words[word] != generation or words[word + 1] != length or generation <= 0 or pid != mapping.pid:
            raise _reused(ref, "before it was read")
        return mapping, word

    def _attach(self, pid: int, fd: int, nonce: int) -> _Mapping:
        if self._closed:
            raise UsageError("read through an arena reader that is closed")
        if len(self._mappings) >= MAX_ARENAS:
            raise ClusterError(f"{MAX_ARENAS} arenas are attached: no more are allowed, detach those of dead processes")
        file = -1
        try:
            file = _open(pid, fd)
            return _map(file, pid, nonce)
        except OSError as error:
            raise ClusterError(
                f"cannot attach the arena of process {pid}, descriptor {fd}: {error.strerror}"
            ) from error
        finally:
            if file >= 0:
                os.close(file)


def _open(pid: int, fd: int) -> int:
    """Open the arena of another process, if the descriptor is one: opening whatever else has that number by now could
    have side effects."""
    path = f"/proc/{pid}/fd/{fd}"
    target = os.readlink(path)
    if not target.startswith(_FILE):
        raise ProtocolError(f"descriptor {fd} of process {pid} is {target}, not an arena")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def _map(file: int, pid: int, nonce: int) -> _Mapping:
    """Map an open arena file, after checking that it cannot shrink and has the nonce that was meant."""
    status = os.fstat(file)
    size = status.st_size
    sealed = stat.S_ISREG(status.st_mode) and fcntl.fcntl(file, fcntl.F_GET_SEALS) & _NO_SHRINK
    if not sealed or not MIN_SIZE_BYTES <= size <= MAX_SIZE_BYTES or size & _GRAIN_MASK:
        raise ProtocolError(f"arena of process {pid}, {size} bytes: not sealed against shrinking, or of a wrong size")
    mapping = _Mapping(pid, mmap.mmap(file, size, prot=mmap.PROT_READ))
    header, expected = mapping.words[:4].tolist(), [MAGIC, VERSION, nonce, size]
    if header != expected:
        raise ProtocolError(f"arena of process {pid} has header {header}, expected {expected}: another arena by now")
    return mapping


def _reused(ref: BlockRef, when: str) -> ProtocolError:
    return ProtocolError(f"arena block at {ref[3]}, generation {ref[5]} of process {ref[0]} was freed or reused {when}")
