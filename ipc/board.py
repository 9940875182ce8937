"""The status board: one shared-memory table per topology, written by its workers, read by anyone on the machine.

Guarantees
    * Every cell is one aligned unsigned 64-bit word with exactly one writer, so a reader sees an old or a new value and
      never a torn one. Totals outlive the worker that wrote them: its replacement goes on counting from there.
    * Reading and writing take no lock and send no message; they cost the hot path nothing.

Relies on: x86-64/arm64 writing aligned 8-byte words in one piece; the file being fully allocated before it is mapped
(a hole would turn a full disk into SIGBUS).

Layout, in words::

    header   [magic, version, n_slots, n_tasks, faults, watches]     padded to HEADER_WORDS
    slots    n_slots  x SLOT_WORDS     supervisor: identity, verdict; worker: heartbeat, progress, queues
    links    n_slots  x n_slots x 2    what slot i sent to slot j, and what j has processed of it
    rings    see ipc.ack_rings         what slots tell each other's ackers
    flow     n_slots  x n_tasks x 2    tuples without a tree that slot i sent to task t, and those of them it dropped
    full     n_tasks  x 1              whether the queue of a bolt task is full
    waits    n_tasks  x 1              how long a tuple waits for a bolt task, about
    tasks    n_tasks  x TASK_WORDS     counters, gauges, latency histogram of one task
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

from squall.engine.errors import ClusterError
from squall.engine.report.metrics import ACCOUNT_COLUMNS, HISTOGRAM_BUCKETS, TASK_COUNTERS
from squall.ipc.ack_rings import rings_words
from squall.ipc.private import gone_if_failed

MAGIC = 0x5351_5541_4C4C_0001
VERSION = 12
HEADER_WORDS = 8
WORD_BYTES = 8
HEADER_FAULTS = 4
"""Nimbus counts here how often it has written the file of the faults in force (`scheduler.faults`)."""
HEADER_WATCHES = 5
"""Whoever begins a watch (`scheduler.records.watches`) writes another number here, at which workers look for it."""
_HEADER = struct.Struct("=4Q")

STARTING, READY, DEAD, STOPPED = 1, 2, 3, 4
STATE_NAMES = {0: "empty", STARTING: "starting", READY: "ready", DEAD: "dead", STOPPED: "stopped"}

# Words of a slot's row. Identity, pid, start time and verdict are the supervisor's, the rest the worker's.
(
    SLOT_IDENTITY, SLOT_PID, SLOT_HEARTBEAT_NS, SLOT_PROGRESS, SLOT_BACKLOG, SLOT_CONGESTED, SLOT_QUIET, SLOT_ACTIVE,
    SLOT_RSS_BYTES,
) = range(9)
SLOT_TRIAL = 9
"""When this worker asked to try a suspect, in monotonic ns; 0 = not. Odd if a trial may end in a dead letter."""
SLOT_EXPLAINED = 10
"""`incarnation << 1` of the last one that ended by an exception; odd if a tuple with a limit was charged with it."""
SLOT_LINKS = 11
"""First of the words of LINK_COUNTERS: frames that were lost, repeated or refused, over all incarnations."""
LINK_COUNTERS = ("lost", "repeated", "refused", "reconnects")
SLOT_WORKING_NS = 15
"""When the present worker had first emitted or executed a tuple, in monotonic ns; 0 = not yet."""
SLOT_AT_HAND = 16
"""The task whose code the worker's loop is in, 0 = none."""
SLOT_STARTED = 17
"""When the process of SLOT_PID was started, in clock ticks since boot; tagged like the pid."""
SLOT_HELD_BYTES = 18
"""Bytes of memory that the queues of this worker hold, about."""
SLOT_VERDICT = 19
"""The supervisor's: `deaths << 1` of the topology in a row without progress, on its node; odd if that is hopeless."""
SLOT_OPENING, SLOT_OPENING_NS = 20, 21
"""The task that the worker is opening (`open`, `prepare`, `setup`), 0 = none, tagged like the pid; since when, in
monotonic ns."""
SLOT_ACCUSED = 22
"""The supervisor's: the last incarnation that ended by a cause that a tuple can have, such as a crash."""
SLOT_MARKS, MARKS = 23, 4
"""First of the words in which a worker names the roots of the last messages that it has chosen to follow."""
SLOT_WORDS = 27
_TAG_SHIFT = 48
"""Bits. Pid and start time carry the low 16 bits of their incarnation on top, so a reader knows whose they are."""
_VALUE_MASK = (1 << _TAG_SHIFT) - 1
_MOST_LOOKS = 100
"""How often to read a row again whose words belong to different incarnations: its writer is between two writes, or was
killed there."""

TASK_WORDS = len(TASK_COUNTERS) + HISTOGRAM_BUCKETS


class BoardMissing(ClusterError):
    """There is no board at that path: the topology has gone, or has moved to another board."""


class SlotCell(NamedTuple):
    """The worker in a slot. Incarnation 0: there has been none yet."""

    incarnation: int
    state: int
    pid: int
    """0: no process yet, or none that is known."""
    started_ticks: int = 0
    """When that process was started, in clock ticks since boot: with the pid it names a process for good."""


class Board:
    """A mapped board. Process: any; each word has one writer."""

    def __init__(self, path: Path, mapping: mmap.mmap, file: tuple[int, int]) -> None:
        """`file`: device and inode of what is mapped."""
        self.path = path
        self._file = file
        self._mapping = mapping
        self.words = memoryview(mapping).cast("Q")
        self.n_slots = self.words[2]
        self.n_tasks = self.words[3]
        self._links_at = HEADER_WORDS + self.n_slots * SLOT_WORDS
        self._rings_at = self._links_at + 2 * self.n_slots * self.n_slots
        self._flow_at = self._rings_at + rings_words(self.n_slots)
        self._full_at = self._flow_at + 2 * self.n_slots * self.n_tasks
        self._waits_at = self._full_at + self.n_tasks
        self._tasks_at = self._waits_at + self.n_tasks

    @classmethod
    def create(cls, path: Path, n_slots: int, n_tasks: int) -> Board:
        """Make a zeroed board at `path`; it appears complete or not at all. ClusterError if that fails."""
        size = _size_bytes(n_slots, n_tasks)
        temporary = f"{path}.new"
        try:
            with gone_if_failed(temporary):
                fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                try:
                    os.posix_fallocate(fd, 0, size)
                    os.pwrite(fd, _HEADER.pack(MAGIC, VERSION, n_slots, n_tasks), 0)
                    os.rename(temporary, path)
                finally:
                    os.close(fd)
        except OSError as error:
            raise ClusterError(f"cannot create status board {path} of {size} bytes: {error.strerror}") from error
        return cls.attach(path)

    @classmethod
    def attach(cls, path: Path) -> Board:
        """Map an existing board; BoardMissing if there is none, ClusterError if it is damaged or of another version."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BoardMissing(f"status board {path} does not exist; is the topology running?") from None
        except OSError as error:
            raise ClusterError(f"cannot open status board {path}: {error.strerror}") from error
        try:
            _check(path, os.pread(fd, _HEADER.size, 0), os.fstat(fd).st_size)
            mapping = mmap.mmap(fd, 0)
            found = os.fstat(fd)
        finally:
            os.close(fd)
        return cls(path, mapping, (found.st_dev, found.st_ino))

    @property
    def is_there(self) -> bool:
        """Whether the path still leads to this board: False once its topology, or that version of it, has gone."""
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_dev, found.st_ino) == self._file

    def continue_from(self, former: Board) -> None:
        """Take over what outlives a move of the topology: tasks' totals, and incarnations, which go on rising.

        Called by the process that made this board, before any other knows it.
        """
        if self.n_tasks != former.n_tasks:
            raise ClusterError(f"{self.path} has {self.n_tasks} tasks, {former.path} has {former.n_tasks}")
        self.words[self._tasks_at :] = former.words[former._tasks_at :]
        # Sum up in one row: readers need the receiver of a tuple, not its sender.
        for task in range(1, self.n_tasks + 1):
            at = self._flow_at + 2 * task - 2
            self.words[at], self.words[at + 1] = former.untracked(task)
        latest = max((former.slot(index).incarnation for index in range(former.n_slots)), default=0)
        for index in range(self.n_slots):
            self.set_slot(index, latest, STOPPED, 0)

    def close(self) -> None:
        """Unmap. The board itself lives on until its file and last mapping are gone."""
        self.words.release()
        self._mapping.close()

    # ---- slots ----

    def slot_at(self, index: int) -> int:
        """Index of the first word of a slot's row, for writers that remember it."""
        if not 0 <= index < self.n_slots:
            raise IndexError(f"slot {index} of a board with {self.n_slots} slots")
        return HEADER_WORDS + index * SLOT_WORDS

    def set_slot(
        self, index: int, incarnation: int, state: int, pid: int, started_ticks: int = 0, accused: bool = False
    ) -> None:
        """Publish which worker a slot has; `accused`: a tuple may have ended it. Called by its supervisor only."""
        at = self.slot_at(index)
        if accused:
            # First: a reader that sees the death then sees its cause.
            self.words[at + SLOT_ACCUSED] = incarnation
        # Write the start time first: a reader that sees the pid then reads the start time that belongs to it.
        self.words[at + SLOT_STARTED] = _tagged(incarnation, started_ticks)
        self.words[at + SLOT_PID] = _tagged(incarnation, pid)
        self.words[at + SLOT_IDENTITY] = incarnation << 8 | state

    def slot(self, index: int) -> SlotCell:
        """The worker in a slot. Its pid is that of this incarnation or 0, never another's."""
        at = self.slot_at(index)
        for _ in range(_MOST_LOOKS):
            identity, pid, started = (self.words[at + word] for word in (SLOT_IDENTITY, SLOT_PID, SLOT_STARTED))
            tag = identity >> 8 & 0xFFFF
            if pid >> _TAG_SHIFT == started >> _TAG_SHIFT == tag:
                return SlotCell(identity >> 8, identity & 0xFF, pid & _VALUE_MASK, started & _VALUE_MASK)
        return SlotCell(identity >> 8, identity & 0xFF, 0)

    def explained(self, index: int, incarnation: int) -> bool:
        """Whether an incarnation has published that it ended by an exception."""
        return incarnation > 0 and self.column(SLOT_EXPLAINED)[index] >> 1 == incarnation

    def accused(self, index: int, incarnation: int) -> bool:
        """Whether an incarnation ended by a cause that a tuple can have."""
        return self.column(SLOT_ACCUSED)[index] == incarnation

    def nearer(self, index: int, incarnation: int) -> bool:
        """Whether the death of an incarnation brings a dead letter nearer: a tuple was charged with it, or a suspect
        was on trial."""
        mine = self.column(SLOT_EXPLAINED)[index] == incarnation << 1 | 1
        return mine or any(asked & 1 for asked in self.column(SLOT_TRIAL))

    def at_hand(self, index: int) -> memoryview[int]:
        """The word in which a worker publishes the task whose code its loop is in."""
        at = self.slot_at(index) + SLOT_AT_HAND
        return self.words[at : at + 1]

    def set_opening(self, index: int, incarnation: int, task: int, since_ns: int) -> None:
        """Publish which task a worker is opening, 0 = none, and since when. Called by the slot's worker only."""
        at = self.slot_at(index)
        self.words[at + SLOT_OPENING_NS] = since_ns
        self.words[at + SLOT_OPENING] = _tagged(incarnation, task)

    def opening(self, index: int, incarnation: int) -> tuple[int, int]:
        """The task that an incarnation is opening, 0 = none, and since when in monotonic ns."""
        at = self.slot_at(index)
        word, since_ns = self.words[at + SLOT_OPENING], self.words[at + SLOT_OPENING_NS]
        return (word & _VALUE_MASK, since_ns) if word >> _TAG_SHIFT == incarnation & 0xFFFF else (0, 0)

    def link_counts(self, index: int) -> dict[str, int]:
        """Frames lost, repeated and refused on the links to a worker, and its reconnects."""
        at = self.slot_at(index) + SLOT_LINKS
        return dict(zip(LINK_COUNTERS, self.words[at : at + len(LINK_COUNTERS)], strict=True))

    def column(self, word: int) -> memoryview[int]:
        """One word of every slot's row, by index, as a live view."""
        return self.words[HEADER_WORDS + word : self._links_at : SLOT_WORDS]

    def marked(self) -> set[int]:
        """Roots of messages that workers have chosen to follow."""
        marks = (self.column(SLOT_MARKS + number) for number in range(MARKS))
        return {root for column in marks for root in column if root}

    # ---- links ----

    def link_at(self, sender: int, receiver: int) -> int:
        """First of two words: position sent (written by the sender), position processed (written by the receiver)."""
        return self._links_at + 2 * (sender * self.n_slots + receiver)

    @property
    def rings(self) -> memoryview[int]:
        """The memory of the ack rings."""
        return self.words[self._rings_at : self._flow_at]

    # ---- tasks ----

    @property
    def full(self) -> memoryview[int]:
        """Whether the queue of each task is full, written by its worker; the first word is task 1's."""
        return self.words[self._full_at : self._waits_at]

    @property
    def waits(self) -> memoryview[int]:
        """About how many ns a tuple would wait for each task that a shuffle chooses; the first word is task 1's."""
        return self.words[self._waits_at : self._tasks_at]

    def task_at(self, task: int) -> int:
        """First word of a task's row. Task ids begin at 1."""
        if not 1 <= task <= self.n_tasks:
            raise IndexError(f"task {task} of a board with {self.n_tasks} tasks")
        return self._tasks_at + (task - 1) * TASK_WORDS

    def task_counters(self, task: int) -> dict[str, int]:
        at = self.task_at(task)
        return dict(zip(TASK_COUNTERS, self.words[at : at + len(TASK_COUNTERS)].tolist(), strict=True))

    def account(self, task: int) -> memoryview[int]:
        """A task's columns of `engine.report.metrics`."""
        at = self.task_at(task)
        return self.words[at : at + len(ACCOUNT_COLUMNS)]

    def said_quiet(self, slot: int) -> memoryview[int]:
        """The word in which a slot's worker publishes that it is quiet."""
        at = self.slot_at(slot) + SLOT_QUIET
        return self.words[at : at + 1]

    def flow(self, slot: int) -> memoryview[int]:
        """`WorkerCore.untracked` of a slot's worker, summed over its incarnations."""
        at = self._flow_at + 2 * slot * self.n_tasks
        return self.words[at : at + 2 * self.n_tasks]

    def untracked(self, task: int) -> tuple[int, int]:
        """Tuples without a tree that were sent to a task, and those of them that were dropped before they left."""
        at, step = self._flow_at + 2 * task - 2, 2 * self.n_tasks
        return sum(self.words[at : self._full_at : step]), sum(self.words[at + 1 : self._full_at : step])

    def all_untracked(self) -> list[int]:
        """`untracked` of one task after the other."""
        return list(map(sum, zip(*(self.flow(slot).tolist() for slot in range(self.n_slots)), strict=True)))

    def task_histogram(self, task: int) -> list[int]:
        at = self.task_at(task) + len(TASK_COUNTERS)
        return self.words[at : at + HISTOGRAM_BUCKETS].tolist()


def _tagged(incarnation: int, value: int) -> int:
    return (incarnation & 0xFFFF) << _TAG_SHIFT | value


def _size_bytes(n_slots: int, n_tasks: int) -> int:
    return WORD_BYTES * (
        HEADER_WORDS + n_slots * SLOT_WORDS + 2 * n_slots * n_slots + rings_words(n_slots) + 2 * n_slots * n_tasks
        + n_tasks * (2 + TASK_WORDS)
    )


def _check(path: Path, header: bytes, size: int) -> None:
    """Refuse a file that is not a board of this layout: reads would go beyond its end or return nonsense."""
    magic, version, n_slots, n_tasks = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
    if magic != MAGIC:
        raise ClusterError(f"{path} is not a status board")
    if version != VERSION:
        raise ClusterError(
            f"status board {path} has version {version}; this is version {VERSION}: another version of Squall runs "
            f"there; use its commands, or end the cluster by `squall down` and start it again"
        )
    expected = _size_bytes(n_slots, n_tasks)
    if size != expected:
        raise ClusterError(f"status board {path} has {size} bytes; {n_slots} slots and {n_tasks} tasks take {expected}")
