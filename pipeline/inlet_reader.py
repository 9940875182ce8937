"""One reader for an inlet: the tasks of one spout of one topology.

::

    INLET/_reader    who reads, as JSON; each of its tasks holds a shared lock on it

Guarantees that a second spout is refused while a task of the first one lives and, if all of them were killed, until
their supervisor had the time to replace them: two would take the same rows, and a batch would count as acked when one
of them has acked it. What ends in order leaves no name, so the next one waits for nothing. Relies on flock, which ends
with the process that holds it, and on a run being known by the directory of its state. Thread: the task's.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import weakref
from pathlib import Path
from typing import NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.folder_lock import locked

READER_NAME = "_reader"
#: Time in which a reader that ends is gone, or one that was killed is replaced.
WAIT_SECS = 2.0
POLL_SECS = 0.05
sleep = time.sleep


class ReaderName(NamedTuple):
    """Which spout of which run."""

    topology: str
    component: str
    state: str
    """The directory above those of the tasks' states."""

    @property
    def may_come_back(self) -> bool:
        return os.path.isdir(self.state)


_NOBODY = ReaderName("", "", "")


class InletReader:
    """The part of one task in it."""

    def __init__(self, inlet: Path, name: ReaderName) -> None:
        """Wait for a former reader to be gone. UsageError if it is not."""
        self._inlet, self._name = inlet, name
        self._fd = os.open(inlet / READER_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # Also if the task is killed and its process is not, as in a simulation.
        self.drop = weakref.finalize(self, os.close, self._fd)
        try:
            self._enter()
        except BaseException:
            self.drop()
            raise

    def _enter(self) -> None:
        until = time.monotonic() + WAIT_SECS
        while True:
            is_late = time.monotonic() >= until
            with locked(self._inlet):  # no other task looks at its own lock meanwhile
                holder = self._holder()
                lives = holder != self._name and not self._is_free()
                if holder == self._name or (not lives and (is_late or not holder.may_come_back)):
                    self._write(json.dumps(self._name).encode())
                    fcntl.flock(self._fd, fcntl.LOCK_SH)
                    return
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            if is_late:
                raise UsageError(
                    f"inlet {self._inlet} is read by {repr_of(holder.component)} of topology "
                    f"{repr_of(holder.topology)} already, whose state is in {holder.state}; an inlet has one reader: "
                    "end that topology, or have the query feed another inlet"
                )
            sleep(POLL_SECS)

    def close(self) -> None:
        """Leave in order: the last one takes the name away."""
        if self.drop.alive:
            with locked(self._inlet):
                if self._is_free():
                    self._write(b"")
                self.drop()

    def _is_free(self) -> bool:
        """Whether no other task holds the lock; then this one does."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self) -> ReaderName:
        try:
            found = json.loads(os.pread(self._fd, 1 << 20, 0))
            return ReaderName(*(str(found[field]) for field in range(len(_NOBODY))))
        except (ValueError, TypeError, LookupError, RecursionError):
            return _NOBODY  # nobody, or one who was killed while it wrote

    def _write(self, data: bytes) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, data, 0)
