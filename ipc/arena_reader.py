"""The receiving side of `ipc.arena`: payloads copied out of other processes' arenas.

Guarantees: bytes are delivered only if the block that the descriptor names was live before and after they were copied,
and they are those that were put in; otherwise, and for any descriptor that does not fit the arena it names, a
`ProtocolError`. Memory outside live blocks is never touched, so no descriptor can raise a SIGBUS. A mapping stays valid
when the process that created it dies.

Relies on: the layout and the ordering that `ipc.arena` describes, and /proc/<pid>/fd being open to the same user, which
the sender checks (`arena.may_be_read`).

Thread: the worker's loop. A reader holds one mapping per arena until `detach` or `close`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat

from squall.engine.errors import ClusterError, ProtocolError, UsageError
from squall.ipc import arena
from squall.ipc.arena import GRAIN_BITS, TABLE_WORD, BlockRef, digest

MAX_ARENAS = 1024
_FILE = f"/memfd:{arena.MEMFD_NAME}"
_GRAIN_MASK = arena.GRAIN_BYTES - 1
_NO_SHRINK = fcntl.F_SEAL_SHRINK


class _Mapping:
    """One attached arena. It is unmapped with its last reference."""

    __slots__ = ("bytes", "data_start", "pid", "size", "words")

    def __init__(self, pid: int, memory: mmap.mmap) -> None:
        self.pid = pid
        self.bytes = memoryview(memory)
        self.size = len(memory)
        self.data_start = arena.table_bytes(self.size)
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
    if not sealed or not arena.MIN_SIZE_BYTES <= size <= arena.MAX_SIZE_BYTES or size & _GRAIN_MASK:
        raise ProtocolError(f"arena of process {pid}, {size} bytes: not sealed against shrinking, or of a wrong size")
    mapping = _Mapping(pid, mmap.mmap(file, size, prot=mmap.PROT_READ))
    header, expected = mapping.words[:4].tolist(), [arena.MAGIC, arena.VERSION, nonce, size]
    if header != expected:
        raise ProtocolError(f"arena of process {pid} has header {header}, expected {expected}: another arena by now")
    return mapping


def _reused(ref: BlockRef, when: str) -> ProtocolError:
    return ProtocolError(f"arena block at {ref[3]}, generation {ref[5]} of process {ref[0]} was freed or reused {when}")
