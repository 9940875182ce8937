"""The status board: one shared-memory table per topology, written by its workers, read by anyone on the machine.

Guarantees
    * Every cell is one aligned unsigned 64-bit word with exactly one writer, so a reader sees an old or a new value and
      never a torn one. Totals outlive the worker that wrote them: its replacement goes on counting from there.
    * Reading and writing take no lock and send no message; they cost the hot path nothing.

Relies on: x86-64/arm64 writing aligned 8-byte words in one piece; the file being fully allocated before it is mapped
(a hole would turn a full disk into SIGBUS).

Layout, in words::

    header   [magic, version, n_slots, n_tasks]                      padded to HEADER_WORDS
    slots    n_slots  x SLOT_WORDS     supervisor: identity; worker: heartbeat, progress, queues
    links    n_slots  x n_slots x 2    what slot i sent to slot j, and what j has processed of it
    lanes    see ipc.ack_lanes         what slots tell each other's ackers
    tasks    n_tasks  x TASK_WORDS     counters, gauges, latency histogram of one task
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple

from engine.errors import ClusterError
from engine.metrics import HISTOGRAM_BUCKETS, TASK_COUNTERS
from ipc.ack_lanes import lanes_words

MAGIC = 0x5351_5541_4C4C_0001
VERSION = 4
HEADER_WORDS = 8
WORD_BYTES = 8
_HEADER = struct.Struct("=4Q")

STARTING, READY, DEAD, STOPPED = 1, 2, 3, 4
STATE_NAMES = {0: "empty", STARTING: "starting", READY: "ready", DEAD: "dead", STOPPED: "stopped"}

# Words of a slot's row. The first two are the supervisor's, the rest the worker's.
(
    SLOT_IDENTITY, SLOT_PID, SLOT_HEARTBEAT_NS, SLOT_PROGRESS, SLOT_BACKLOG, SLOT_CONGESTED, SLOT_QUIET, SLOT_ACTIVE,
    SLOT_RSS_BYTES,
) = range(9)
SLOT_TRIAL = 9
"""When this worker asked for its turn to try a suspect, 0 = it does not; odd if trials may end in a dead letter."""
SLOT_EXPLAINED = 10
"""`incarnation << 1` of the last that ended by an exception; odd if it was charged to a tuple that has a limit."""
SLOT_LINKS = 11
"""First of the words of LINK_COUNTERS: frames that came wrongly or not at all, over all incarnations."""
LINK_COUNTERS = ("lost", "repeated", "refused", "reconnects")
SLOT_WORKING_NS = 15
"""When the present worker was first seen to have emitted or executed a tuple, 0 = not yet."""
SLOT_AT_HAND = 16
"""The task whose code the worker's loop is in, 0 = none."""
SLOT_WORDS = 17

TASK_WORDS = len(TASK_COUNTERS) + HISTOGRAM_BUCKETS


class BoardMissing(ClusterError):
    """There is no board of that name: its topology has gone, or has moved to another."""


class SlotCell(NamedTuple):
    """Who lives in a slot. Incarnation 0 means that nobody ever has."""

    incarnation: int
    state: int
    pid: int


class Board:
    """A mapped board. May be used by any process; each word by one writer only."""

    def __init__(self, path: str, mapping: mmap.mmap) -> None:
        self.path = path
        self._mapping = mapping
        self.words = memoryview(mapping).cast("Q")
        self.n_slots = self.words[2]
        self.n_tasks = self.words[3]
        self._links_at = HEADER_WORDS + self.n_slots * SLOT_WORDS
        self._lanes_at = self._links_at + 2 * self.n_slots * self.n_slots
        self._tasks_at = self._lanes_at + lanes_words(self.n_slots)

    @classmethod
    def create(cls, path: str, n_slots: int, n_tasks: int) -> Board:
        """Make a zeroed board at `path` (atomically: it appears complete or not at all); ClusterError if it cannot."""
        size = _size_bytes(n_slots, n_tasks)
        temporary = f"{path}.new"
        try:
            fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, size)
                os.pwrite(fd, _HEADER.pack(MAGIC, VERSION, n_slots, n_tasks), 0)
                os.rename(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
            finally:
                os.close(fd)
        except OSError as error:
            raise ClusterError(f"cannot create status board {path} of {size} bytes: {error.strerror}") from error
        return cls.attach(path)

    @classmethod
    def attach(cls, path: str) -> Board:
        """Map an existing board; BoardMissing if there is none, ClusterError if it is not a whole one."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BoardMissing(f"status board {path} does not exist; is the topology running?") from None
        except OSError as error:
            raise ClusterError(f"cannot open status board {path}: {error.strerror}") from error
        try:
            _check(path, os.pread(fd, _HEADER.size, 0), os.fstat(fd).st_size)
            mapping = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        return cls(path, mapping)

    def continue_from(self, former: Board) -> None:
        """Take over what outlives a move of the topology: tasks' totals, and incarnations, which go on rising.

        Called by the maker, before anybody else knows this board.
        """
        if self.n_tasks != former.n_tasks:
            raise ClusterError(f"{self.path} has {self.n_tasks} tasks, {former.path} has {former.n_tasks}")
        self.words[self._tasks_at :] = former.words[former._tasks_at :]
        latest = max((former.slot(index).incarnation for index in range(former.n_slots)), default=0)
        for index in range(self.n_slots):
            self.set_slot(index, latest, STOPPED, 0)

    def close(self) -> None:
        """Unmap. The board itself lives on until its file and last mapping are gone."""
        self.words.release()
        self._mapping.close()

    # ---- slots ----

    def slot_at(self, index: int) -> int:
        """First word of slot `index`'s row, for writers that keep it."""
        if not 0 <= index < self.n_slots:
            raise IndexError(f"slot {index} of a board with {self.n_slots} slots")
        return HEADER_WORDS + index * SLOT_WORDS

    def set_slot(self, index: int, incarnation: int, state: int, pid: int) -> None:
        """Say who lives in a slot. Called by that slot's supervisor only."""
        at = self.slot_at(index)
        self.words[at + SLOT_PID] = pid
        self.words[at + SLOT_IDENTITY] = incarnation << 8 | state

    def slot(self, index: int) -> SlotCell:
        at = self.slot_at(index)
        identity = self.words[at + SLOT_IDENTITY]
        return SlotCell(identity >> 8, identity & 0xFF, self.words[at + SLOT_PID])

    def explained(self, index: int, incarnation: int) -> bool:
        """Whether an incarnation ended by an exception, and said so."""
        return incarnation > 0 and self.words[self.slot_at(index) + SLOT_EXPLAINED] >> 1 == incarnation

    def excused(self, index: int, incarnation: int) -> bool:
        """Whether the death of an incarnation brings a dead letter nearer: it was a known tuple's doing, or a suspect
        was on trial."""
        mine = self.words[self.slot_at(index) + SLOT_EXPLAINED] == incarnation << 1 | 1
        return mine or any(self.words[self.slot_at(slot) + SLOT_TRIAL] & 1 for slot in range(self.n_slots))

    def at_hand(self, index: int) -> memoryview[int]:
        """The word in which a worker says whose code its loop is in."""
        at = self.slot_at(index) + SLOT_AT_HAND
        return self.words[at : at + 1]

    def link_counts(self, index: int) -> dict[str, int]:
        """What went wrong on the links to a worker."""
        at = self.slot_at(index) + SLOT_LINKS
        return dict(zip(LINK_COUNTERS, self.words[at : at + len(LINK_COUNTERS)], strict=True))

    def identity(self, index: int) -> int:
        """`incarnation << 8 | state` of a slot: one word, cheap enough to poll on every turn of a loop."""
        return self.words[HEADER_WORDS + index * SLOT_WORDS]

    def column(self, word: int) -> memoryview[int]:
        """One word of every slot's row, by index: a view, to be read again and again."""
        return self.words[HEADER_WORDS + word : self._links_at : SLOT_WORDS]

    # ---- links ----

    def link_at(self, sender: int, receiver: int) -> int:
        """First of two words: position sent (written by the sender), position processed (by the receiver)."""
        return self._links_at + 2 * (sender * self.n_slots + receiver)

    @property
    def lanes(self) -> memoryview[int]:
        """The memory of the ack lanes."""
        return self.words[self._lanes_at : self._tasks_at]

    # ---- tasks ----

    def task_at(self, task: int) -> int:
        """First word of a task's row. Task ids begin at 1."""
        if not 1 <= task <= self.n_tasks:
            raise IndexError(f"task {task} of a board with {self.n_tasks} tasks")
        return self._tasks_at + (task - 1) * TASK_WORDS

    def task_counters(self, task: int) -> dict[str, int]:
        at = self.task_at(task)
        return dict(zip(TASK_COUNTERS, self.words[at : at + len(TASK_COUNTERS)], strict=True))

    def task_histogram(self, task: int) -> list[int]:
        at = self.task_at(task) + len(TASK_COUNTERS)
        return self.words[at : at + HISTOGRAM_BUCKETS].tolist()


def _size_bytes(n_slots: int, n_tasks: int) -> int:
    return WORD_BYTES * (
        HEADER_WORDS + n_slots * SLOT_WORDS + 2 * n_slots * n_slots + lanes_words(n_slots) + n_tasks * TASK_WORDS
    )


def _check(path: str, header: bytes, size: int) -> None:
    """Refuse what is no board of this layout: it would be read beyond its end, or nonsense would be read."""
    magic, version, n_slots, n_tasks = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
    if magic != MAGIC:
        raise ClusterError(f"{path} is not a status board")
    if version != VERSION:
        raise ClusterError(f"status board {path} has version {version}; this is version {VERSION}")
    expected = _size_bytes(n_slots, n_tasks)
    if size != expected:
        raise ClusterError(f"status board {path} has {size} bytes; {n_slots} slots and {n_tasks} tasks take {expected}")
