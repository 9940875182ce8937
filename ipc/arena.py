"""A worker's send arena: shared memory that carries big payloads while ZeroMQ carries only their descriptors.

Guarantees:

- A block is published only after it was written, and a freed block is invalidated before its room can be used again, so
  a reader (`ipc.payloads`) gets either the payload that its descriptor names or a `ProtocolError`.
- Room that does not exist is a `None` from `put`, never a SIGBUS: memory is reserved by `posix_fallocate` in steps, on
  first need, and the file is sealed against shrinking.
- Nothing is left behind: the memory has no name and belongs to the kernel, which frees it with the last process that
  maps it, however that process ends. Readers cannot write to it.

Relies on: Linux 5.1 (memfd with F_SEAL_FUTURE_WRITE), processes of one user in one pid namespace, and a processor that
keeps the order of stores and of loads (x86-64): the generation check, which finds reuse, depends on it.

Thread: the worker's loop. An arena does not survive a fork: a child must create its own.

Layout of the file, in grains of 4 KiB; the words outside the blocks cannot be forged by a payload::

    word 0..7   magic, version, nonce, file size, four unused
    word 8..    per grain: generation of the block that starts there (0 = none), its length in bytes
    grains      blocks, each a whole number of grains
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from squall.engine.errors import ClusterError, ProtocolError, UsageError

MEMFD_NAME = "squall-arena"
MAGIC = 0x414E4552_41515153
VERSION = 1
WORD_BYTES = 8
TABLE_WORD = 8
"""Index of the first word of the table; grain g has words `TABLE_WORD + 2 * g` and the one after it."""
GRAIN_BITS = 12
GRAIN_BYTES = 1 << GRAIN_BITS
DEFAULT_SIZE_BYTES = 64 << 20
MIN_SIZE_BYTES = 16 * GRAIN_BYTES
MAX_SIZE_BYTES = 4 << 30

_GROWTH_GRAINS = (2 << 20) // GRAIN_BYTES
"""Reserve 2 MiB at a time: about 0.6 ms, which is small against a turn."""
_GROWTH_RETRY_PUTS = 1024
NOT_DUMPABLE = "the kernel keeps this process's memory from others (setcap, PR_SET_DUMPABLE)"
_LIBC, _PR_GET_DUMPABLE = ctypes.CDLL(None), 3
_F_SEAL_FUTURE_WRITE = 0x10  # the fcntl module does not name it
_OUT_OF_MEMORY = frozenset((errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG))


def may_be_read() -> bool:
    """Return True if the kernel lets others of the same user open this process's arena: not after `setcap` on its
    program or `prctl(PR_SET_DUMPABLE, 0)` in it. A third of a microsecond."""
    return bool(_LIBC.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 1)


class BlockRef(NamedTuple):
    """Descriptor of a block: seven integers, as `BlockRef(*row)` makes them again after any encoding."""

    pid: int
    fd: int
    nonce: int
    """Random 64 bits of the arena: tells it from a later one with the same pid and descriptor number."""
    offset: int
    length: int
    generation: int
    """Unique within the arena: tells a block from later ones at the same offset."""
    digest: int
    """Of the block's content."""


def digest(block: Any) -> int:
    """64 bits over a block's content. All are checked: xxh3 reads at some 60 GB/s (zlib's crc32: 4.5)."""
    return xxh3_64_intdigest(block)


def table_bytes(size_bytes: int) -> int:
    """Bytes of header and table at the start of an arena file of this size, in whole grains."""
    words = TABLE_WORD + 2 * (size_bytes >> GRAIN_BITS)
    return -(-words * WORD_BYTES // GRAIN_BYTES) * GRAIN_BYTES


class FreeSpace:
    """Runs of free grains, coalesced at once and binned by the power of two below their length.

    The run that was freed last is used first, as it is the one still in the processor's cache. `take` looks at one run
    unless all that is left are runs of the same power of two; then it looks through those, so it finds any that fits.
    """

    __slots__ = ("_bins", "_filled", "_lengths", "_starts")

    def __init__(self) -> None:
        self._bins: list[dict[int, None]] = [{} for _ in range(64)]
        self._filled = 0  # bit i: bin i has runs
        self._lengths: dict[int, int] = {}  # start of a run -> its length
        self._starts: dict[int, int] = {}  # end of a run -> its start

    def take(self, grains: int) -> int:
        """Start of a run of so many grains, which is no longer free; -1 if there is none."""
        index = grains.bit_length() - 1
        if candidates := self._bins[index]:
            start = next(reversed(candidates))
            if self._lengths[start] >= grains:
                return self._split(start, grains)
        if larger := self._filled >> (index + 1):
            index += (larger & -larger).bit_length()
            return self._split(next(reversed(self._bins[index])), grains)
        for start in candidates:
            if self._lengths[start] >= grains:
                return self._split(start, grains)
        return -1

    def give(self, start: int, grains: int) -> None:
        """Add a run, joined with the free runs on both sides of it."""
        left = self._starts.get(start)
        if left is not None:
            grains += self._remove(left)
            start = left
        if start + grains in self._lengths:
            grains += self._remove(start + grains)
        self._insert(start, grains)

    def length_before(self, end: int) -> int:
        """Length of the free run that ends at this grain, 0 if none does."""
        return end - self._starts.get(end, end)

    def _split(self, start: int, grains: int) -> int:
        length = self._remove(start)
        if length > grains:
            self._insert(start + grains, length - grains)
        return start

    def _insert(self, start: int, length: int) -> None:
        index = length.bit_length() - 1
        self._bins[index][start] = None
        self._filled |= 1 << index
        self._lengths[start] = length
        self._starts[start + length] = start

    def _remove(self, start: int) -> int:
        length = self._lengths.pop(start)
        del self._starts[start + length]
        index = length.bit_length() - 1
        bin_ = self._bins[index]
        del bin_[start]
        if not bin_:
            self._filled ^= 1 << index
        return length


class Arena:
    """Shared memory of one sending worker. Thread: the worker's loop."""

    def __init__(self, fd: int, memory: mmap.mmap) -> None:
        """Use `Arena.create`. Takes over a sealed memfd whose header and table are reserved, and its mapping."""
        size = len(memory)
        first = table_bytes(size) >> GRAIN_BITS
        self._fd = fd
        self._memory = memory
        self._pid = os.getpid()
        self._nonce = int.from_bytes(os.urandom(8), "little") or 1
        self._words = memoryview(memory)[: first << GRAIN_BITS].cast("Q")
        struct.pack_into("4Q", memory, 0, MAGIC, VERSION, self._nonce, size)
        self._grains = size >> GRAIN_BITS
        self._reserved_grains = first
        self._generation = 0
        self._free = FreeSpace()
        self._blocks: dict[int, tuple[int, int]] = {}  # first grain -> grains, generation
        self._shared: dict[int, int] = {}  # first grain -> frees beyond the first that it takes to free it
        self._growth_pause_puts = 0
        self._closed = False

    @classmethod
    def create(cls, size_bytes: int = DEFAULT_SIZE_BYTES) -> Arena:
        """An empty arena that may grow to `size_bytes`, rounded up to whole grains; the table is included."""
        if not MIN_SIZE_BYTES <= size_bytes <= MAX_SIZE_BYTES:
            raise UsageError(f"arena size is {size_bytes} bytes; allowed: {MIN_SIZE_BYTES} to {MAX_SIZE_BYTES}")
        size_bytes = -(-size_bytes // GRAIN_BYTES) * GRAIN_BYTES
        fd = -1
        try:
            fd = os.memfd_create(MEMFD_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size_bytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            os.posix_fallocate(fd, 0, table_bytes(size_bytes))
            memory = mmap.mmap(fd, size_bytes)
            # After the mapping: the seal leaves the mapping above writable and forbids writable ones from now on.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            raise ClusterError(f"cannot create an arena of {size_bytes} bytes: {error.strerror}") from error
        return cls(fd, memory)

    def put(self, buffer: bytes | bytearray | memoryview) -> BlockRef | None:
        """Copy a payload in; None when there is no room and it must be sent inline."""
        source = memoryview(buffer)
        if source.format != "B" or source.ndim != 1 or not source.c_contiguous:
            source = _flat(source)
        length = len(source)
        grains = (length + GRAIN_BYTES - 1) >> GRAIN_BITS or 1
        start = self._free.take(grains)
        if start < 0:
            start = self._take_from_growth(grains)
            if start < 0:
                return None
        offset = start << GRAIN_BITS
        self._memory[offset : offset + length] = source
        self._generation = generation = self._generation + 1
        word = TABLE_WORD + 2 * start
        self._words[word + 1] = length
        self._words[word] = generation
        self._blocks[start] = (grains, generation)
        return BlockRef(self._pid, self._fd, self._nonce, offset, length, generation, digest(source))

    def is_live(self, ref: BlockRef) -> bool:
        """Whether the block was not freed yet."""
        block = self._blocks.get(ref.offset >> GRAIN_BITS)
        return block is not None and block[1] == ref.generation and ref.nonce == self._nonce

    def share(self, ref: BlockRef) -> None:
        """One more reader gets a live block: it must be freed once more."""
        start = ref.offset >> GRAIN_BITS
        self._shared[start] = self._shared.get(start, 0) + 1

    def free(self, ref: BlockRef) -> None:
        """One reader is done with a block, whose room is free after the last one. ProtocolError if it is not live."""
        start = ref.offset >> GRAIN_BITS
        block = self._blocks.get(start)
        if block is None or block[1] != ref.generation or ref.nonce != self._nonce:
            raise ProtocolError(
                f"arena block at {ref.offset}, generation {ref.generation} is not live: "
                "freed before, or of another arena"
            )
        others = self._shared.pop(start, 0)
        if others:
            if others > 1:
                self._shared[start] = others - 1
            return
        # Invalidate before freeing: a late reader sees the zero no later than the next payload.
        self._words[TABLE_WORD + 2 * start] = 0
        del self._blocks[start]
        self._free.give(start, block[0])

    def close(self) -> None:
        """Unmap and forget everything; readers that are attached keep their mapping. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._free = FreeSpace()
        self._blocks.clear()
        self._reserved_grains = 0
        self._words.release()
        self._memory.close()
        os.close(self._fd)

    def _take_from_growth(self, grains: int) -> int:
        """`FreeSpace.take` after reserving more memory, as much as the limit and the machine allow."""
        if self._closed:
            raise UsageError("put into an arena that is closed")
        if self._growth_pause_puts:
            self._growth_pause_puts -= 1
            return -1
        reserved = self._reserved_grains
        tail = self._free.length_before(reserved)
        step = min(max(grains - tail, _GROWTH_GRAINS), self._grains - reserved)
        if tail + step < grains:
            return -1
        try:
            os.posix_fallocate(self._fd, reserved << GRAIN_BITS, step << GRAIN_BITS)
        except OSError as error:
            if error.errno not in _OUT_OF_MEMORY:
                raise ClusterError(f"cannot reserve arena memory: {error.strerror}") from error
            # A refusal costs the kernel as much as a success, so do not ask on every put.
            self._growth_pause_puts = _GROWTH_RETRY_PUTS
            return -1
        self._reserved_grains = reserved + step
        self._free.give(reserved, step)
        return self._free.take(grains)


def _flat(source: memoryview) -> memoryview:
    """The same memory as a flat row of bytes."""
    try:
        return source.cast("B")
    except TypeError as error:
        raise UsageError(f"arena payload of shape {source.shape} is not contiguous in memory") from error
