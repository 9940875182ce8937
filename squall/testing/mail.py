"""Carries records between a test and the spouts that it feeds: through memory in one process, else through files.

Guarantees: each record fed is taken by one spout task, once, in the order fed; each answer is seen once, in the order
of writing. Readers see whole records only.

Relies on: between processes, a directory that all of them see, and values that can be pickled.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from squall.testing.sharing import Shared

_HEADER_BYTES = 8


class Mail(Protocol):
    """The mailbox that a spout under test and its test share."""

    def feed(self, record: Any) -> None:
        """Leave a record for the spout. Called by the test."""

    def take(self) -> Any | None:
        """Take the next record, or None. Called by any spout task."""

    def answer(self, record: Any) -> None:
        """Leave an answer for the test. Called by a spout task."""

    def answers(self) -> list[Any]:
        """All answers so far."""

    @property
    def waiting(self) -> int:
        """Number of records not taken yet."""

    def finish(self) -> None:
        """End the feed."""

    @property
    def finished(self) -> bool:
        """Whether the feed has ended and every record is taken."""


class MemoryMail(Shared):
    """Mail within one process and thread."""

    refusal = (
        "a FeederSpout without directory= cannot be sent to worker processes; give it a directory that they can see too"
    )

    def __init__(self) -> None:
        self._fed: deque[Any] = deque()
        self._answers: list[Any] = []
        self._closed = False

    def feed(self, record: Any) -> None:
        self._fed.append(record)

    def take(self) -> Any | None:
        return self._fed.popleft() if self._fed else None

    def answer(self, record: Any) -> None:
        self._answers.append(record)

    def answers(self) -> list[Any]:
        return list(self._answers)

    @property
    def waiting(self) -> int:
        return len(self._fed)

    def finish(self) -> None:
        self._closed = True

    @property
    def finished(self) -> bool:
        return self._closed and not self._fed


class FileMail:
    """Mail between processes: two files that only grow, and one with the position up to which the first was read."""

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="mail-", dir=directory))

    def feed(self, record: Any) -> None:
        self._append("fed", record)

    def take(self) -> Any | None:
        if not self._unread():
            return None
        with self._locked("position") as fd:
            for record, end in self._read("fed", self._position()):
                os.pwrite(fd, end.to_bytes(_HEADER_BYTES, "big"), 0)
                return record
        return None

    def answer(self, record: Any) -> None:
        self._append("answers", record)

    def answers(self) -> list[Any]:
        return [record for record, _ in self._read("answers", _HEADER_BYTES)]

    @property
    def waiting(self) -> int:
        return sum(1 for _ in self._read("fed", self._position()))

    def finish(self) -> None:
        (self.path / "finished").touch()

    @property
    def finished(self) -> bool:
        return (self.path / "finished").exists() and not self._unread()

    def _position(self) -> int:
        """The position up to which `fed` was taken."""
        return self._word("position") or _HEADER_BYTES

    def _unread(self) -> bool:
        return self._word("fed") > self._position()

    def _word(self, name: str) -> int:
        """The number at the start of a file; 0 if there is none."""
        try:
            with open(self.path / name, "rb") as file:
                return int.from_bytes(file.read(_HEADER_BYTES), "big")
        except FileNotFoundError:
            return 0

    def _append(self, name: str, record: Any) -> None:
        data = pickle.dumps(record, 5)
        with self._locked(name) as fd:
            end = int.from_bytes(os.pread(fd, _HEADER_BYTES, 0), "big") or _HEADER_BYTES
            # The file's first word is the end of its whole records, so a writer killed here leaves no torn one.
            end += os.pwrite(fd, len(data).to_bytes(_HEADER_BYTES, "big") + data, end)
            os.pwrite(fd, end.to_bytes(_HEADER_BYTES, "big"), 0)

    def _read(self, name: str, position: int) -> Iterator[tuple[Any, int]]:
        """(record, its end) of each whole record from a position on."""
        end = self._word(name)
        if position >= end:
            return
        with open(self.path / name, "rb") as file:
            file.seek(position)
            while file.tell() < end:
                length = int.from_bytes(file.read(_HEADER_BYTES), "big")
                yield pickle.loads(file.read(length)), file.tell()

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[int]:
        fd = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)
