"""The receiving side of `ipc.arena`: payloads of other processes' arenas, copied out or read in place.

Guarantees: bytes are delivered only if the block that the descriptor names was live before and after they were copied,
and they are those that were put in, if there is something to check them with; otherwise, and for any descriptor that
does not fit the arena it names, a `ProtocolError`. Memory outside live blocks is never touched, so no descriptor can
raise a SIGBUS. A mapping stays valid when the process that created it dies.

A view shows its block, and nothing else, for as long as it exists: the block is given back when the view and all that
was made of it (slices, arrays) are gone, in this process. Nobody can write through a view.

Relies on: the layout and the ordering that `ipc.arena` describes, and /proc/<pid>/fd being open to the same user.

Thread: the worker's loop; views may go in any thread. A reader holds one mapping per arena until `detach` or `close`,
and that lives on as long as views of it do.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import stat
import weakref
from functools import partial

from squall.engine.errors import ClusterError, ProtocolError, UsageError
from squall.ipc import arena, loans
from squall.ipc.arena import GRAIN_BITS, LOANS_WORD, TABLE_WORD, BlockRef
from squall.ipc.checksum import UNCHECKED, digest

MAX_ARENAS = 1024
_ARENA, _LOANS = (f"/memfd:{name}" for name in (arena.MEMFD_NAME, loans.MEMFD_NAME))
_GRAIN_MASK = arena.GRAIN_BYTES - 1
_NO_SHRINK = fcntl.F_SEAL_SHRINK


class _Mapping:
    """One attached arena. It is unmapped with its last reference."""

    __slots__ = ("bytes", "data_start", "lent", "loans", "memory", "pid", "size", "words")

    def __init__(self, pid: int, memory: mmap.mmap) -> None:
        self.pid = pid
        self.memory = memory
        self.bytes = memoryview(memory)
        self.size = len(memory)
        self.data_start = arena.table_bytes(self.size)
        self.words = self.bytes[: self.data_start].cast("Q")
        self.loans: memoryview | None = None
        """The table of loans, writable, once a loan has come."""
        self.lent: dict[int, weakref.ref[memoryview]] = {}
        """Serial -> what goes when all views of the block are gone."""


class ArenaReader:
    """Reads blocks of any arena of the same user. Thread: the worker's loop."""

    def __init__(self) -> None:
        self._mappings: dict[int, _Mapping] = {}  # by the nonce of the arena
        self._closed = False

    def copy(self, ref: BlockRef, proof: int = UNCHECKED) -> bytes:
        """The payload of a block.

        ProtocolError: the block is gone, or damaged, or the descriptor is wrong. ClusterError: first block of an arena
        whose process is gone.
        """
        mapping, word = self._locate(ref)
        data = mapping.memory[ref.offset : ref.offset + ref.length]
        self._verify(mapping, word, ref, data, proof)
        return data

    def copy_to_change(self, ref: BlockRef, proof: int = UNCHECKED) -> bytearray:
        """The payload of a block, for an object that may be written to. Raises as `copy` does."""
        mapping, word = self._locate(ref)
        data = bytearray(mapping.bytes[ref.offset : ref.offset + ref.length])
        self._verify(mapping, word, ref, data, proof)
        return data

    def view(self, ref: BlockRef, proof: int, slot: int, serial: int) -> memoryview:
        """The payload of a block in place; the loan is given back when all views of it are gone. Raises as `copy`
        does, and then it has been given back."""
        mapping, word = self._locate(ref)
        table = mapping.loans
        if table is None:
            table = mapping.loans = self._attach_loans(mapping, ref.nonce)
        if not loans.FIRST_WORD <= slot < len(table):
            raise ProtocolError(f"loan in slot {slot}; allowed: {loans.FIRST_WORD} to {len(table) - 1}")
        block = mapping.bytes[ref.offset : ref.offset + ref.length]
        # Only this one is watched: views of a `PickleBuffer` of it are not views of the whole arena, but of this.
        mapping.lent[serial] = weakref.ref(block, partial(_give_back, os.getpid(), mapping.lent, table, slot, serial))
        view = memoryview(pickle.PickleBuffer(block))
        self._verify(mapping, word, ref, block, proof)
        return view

    @staticmethod
    def _verify(mapping: _Mapping, word: int, ref: BlockRef, data: bytes | bytearray | memoryview, proof: int) -> None:
        if mapping.words[word] != ref.generation:
            raise _reused(ref, "while it was read")
        if proof != UNCHECKED and digest(data) != proof:
            raise ProtocolError(
                f"arena block at {ref.offset}, generation {ref.generation} of process {ref.pid} is damaged: "
                f"its {ref.length} bytes are not those that were put in"
            )

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
        file = -1
        try:
            file = _open(pid, fd, _ARENA, os.O_RDONLY)
            return _map(file, pid, nonce)
        except OSError as error:
            raise _unreachable(pid, fd, error) from error
        finally:
            if file >= 0:
                os.close(file)

    @staticmethod
    def _attach_loans(mapping: _Mapping, nonce: int) -> memoryview:
        fd = mapping.words[LOANS_WORD]
        file = -1
        try:
            file = _open(mapping.pid, fd, _LOANS, os.O_RDWR)
            if os.fstat(file).st_size != loans.TABLE_BYTES or not fcntl.fcntl(file, fcntl.F_GET_SEALS) & _NO_SHRINK:
                raise ProtocolError(f"loans of process {mapping.pid}: not sealed against shrinking, or of a wrong size")
            words = memoryview(mmap.mmap(file, loans.TABLE_BYTES)).cast("Q")
        except OSError as error:
            raise _unreachable(mapping.pid, fd, error) from error
        finally:
            if file >= 0:
                os.close(file)
        if words[:2].tolist() != [loans.MAGIC, nonce]:
            raise ProtocolError(f"loans of process {mapping.pid} are another arena's by now")
        return words


def _give_back(
    pid: int, lent: dict[int, weakref.ref[memoryview]], table: memoryview, slot: int, serial: int,
    _: weakref.ref[memoryview],
) -> None:
    """All views are gone. Any thread."""
    # A process that was forked from this one has copies of the views, which are not the ones that count.
    if os.getpid() == pid:
        lent.pop(serial, None)
        table[slot] = serial


def _open(pid: int, fd: int, name: str, flags: int) -> int:
    """Open a memfd of another process, if it has this name: opening whatever else has that number by now could have
    side effects."""
    path = f"/proc/{pid}/fd/{fd}"
    target = os.readlink(path)
    if not target.startswith(name):
        raise ProtocolError(f"descriptor {fd} of process {pid} is {target}, not an arena")
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


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


def _unreachable(pid: int, fd: int, error: OSError) -> ClusterError:
    return ClusterError(f"cannot attach the arena of process {pid}, descriptor {fd}: {error.strerror}")


def _reused(ref: BlockRef, when: str) -> ProtocolError:
    return ProtocolError(f"arena block at {ref[3]}, generation {ref[5]} of process {ref[0]} was freed or reused {when}")
