"""The receiving side of `ipc.arena`: payloads of other processes' arenas, copied out.

Guarantees: bytes are delivered only if the block that the descriptor names was live before and after they were copied;
otherwise, and for any descriptor that does not fit the arena it names, a `ProtocolError`. Memory outside live blocks
is never touched, so no descriptor can raise a SIGBUS. A mapping stays valid when the process that created it dies.

Relies on: the layout and the ordering that `ipc.arena` describes, and /proc/<pid>/fd being open to the same user.

Thread: the worker's loop. A reader holds one descriptor and one mapping per arena until `detach` or `close`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat

from squall.engine.errors import ClusterError, ProtocolError, UsageError
from squall.ipc import arena
from squall.ipc.arena import GRAIN_BITS, TABLE_WORD, BlockRef

MAX_ARENAS = 1024
_LINK_PREFIX = f"/memfd:{arena.MEMFD_NAME}"
_GRAIN_MASK = arena.GRAIN_BYTES - 1


class _Mapping:
    """One attached arena. It is unmapped with its last reference."""

    __slots__ = ("data_start", "memory", "pid", "size", "words")

    def __init__(self, pid: int, memory: mmap.mmap) -> None:
        self.pid = pid
        self.memory = memory
        self.size = len(memory)
        self.data_start = arena.table_bytes(self.size)
        self.words = memoryview(memory)[: self.data_start].cast("Q")


class ArenaReader:
    """Reads blocks of any arena of the same user. Thread: the worker's loop."""

    def __init__(self) -> None:
        self._mappings: dict[int, _Mapping] = {}  # by the nonce of the arena
        self._closed = False

    def copy(self, ref: BlockRef) -> bytes:
        """The payload of a block.

        ProtocolError: the block is gone or the descriptor is wrong. ClusterError: first block of an arena whose process
        is gone.
        """
        mapping, word = self._locate(ref)
        _, _, _, offset, length, generation = ref
        data = mapping.memory[offset : offset + length]
        if mapping.words[word] != generation:
            raise _reused(ref, "while it was read")
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
        pid, fd, nonce, offset, length, generation = ref
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
        path = f"/proc/{pid}/fd/{fd}"
        try:
            # Open only a memfd of our name: opening whatever else has that number by now could have side effects.
            target = os.readlink(path)
            if not target.startswith(_LINK_PREFIX):
                raise ProtocolError(f"descriptor {fd} of process {pid} is {target}, not an arena")
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            raise _unreachable(pid, fd, error) from error
        try:
            return _map(file, pid, nonce)
        except OSError as error:
            raise _unreachable(pid, fd, error) from error
        finally:
            os.close(file)


def _map(file: int, pid: int, nonce: int) -> _Mapping:
    """Map an open arena file, after checking that it cannot shrink and has the nonce that was meant."""
    status = os.fstat(file)
    size = status.st_size
    sealed = stat.S_ISREG(status.st_mode) and fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    if not sealed or not arena.MIN_SIZE_BYTES <= size <= arena.MAX_SIZE_BYTES or size & _GRAIN_MASK:
        raise ProtocolError(f"arena of process {pid}, {size} bytes: not sealed against shrinking, or of a wrong size")
    mapping = _Mapping(pid, mmap.mmap(file, size, prot=mmap.PROT_READ))
    header, expected = mapping.words[:4].tolist(), [arena.MAGIC, arena.VERSION, nonce, size]
    if header != expected:
        raise ProtocolError(f"arena of process {pid} has header {header}, expected {expected}: another arena by now")
    return mapping


def _unreachable(pid: int, fd: int, error: OSError) -> ClusterError:
    return ClusterError(f"cannot attach the arena of process {pid}, descriptor {fd}: {error.strerror}")


def _reused(ref: BlockRef, when: str) -> ProtocolError:
    return ProtocolError(f"arena block at {ref[3]}, generation {ref[5]} of process {ref[0]} was freed or reused {when}")
