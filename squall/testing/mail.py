"""Carries records between a test and the spouts that it feeds, through files that both see.

Guarantees: each record fed is taken by one spout task, once, in the order fed; answers are seen in the order of
writing. Readers see whole records only, even if a process is killed at any point.

Relies on: values that can be pickled; renaming and appending to a file being atomic.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any


@functools.cache
def _own_directory() -> str:
    path = tempfile.mkdtemp(prefix="squall-testing-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def new_directory(directory: str | Path | None) -> Path:
    """Make a directory for a test and its workers, in `directory` or in one that goes when this process ends."""
    return Path(tempfile.mkdtemp(dir=directory or _own_directory()))


class Mail:
    """The mailbox that a test and the tasks of a spout share. Each has a copy of its own."""

    def __init__(self, directory: str | Path | None) -> None:
        self._path = new_directory(directory)
        self._fed = self._next = 0
        """Records that this copy has fed, and records that it knows to be taken."""

    # ---- the test's side ----

    def feed(self, record: Any) -> None:
        """Leave a record for the spout."""
        fresh = self._path / "fresh"
        fresh.write_bytes(pickle.dumps(record, 5))
        fresh.rename(self._path / f"fed-{self._fed}")
        self._fed += 1

    def finish(self) -> None:
        """End the feed."""
        (self._path / "finished").touch()

    def answers(self) -> list[Any]:
        """All answers so far."""
        found = []
        with open(self._path / "answers", "a+b") as file:
            file.seek(0)
            # Until the end, or a record that is being written.
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                while True:
                    found.append(pickle.load(file))
        return found

    @property
    def waiting(self) -> int:
        """Number of records not taken yet."""
        return len(list(self._path.glob("fed-*")))

    # ---- the spout's side ----

    def take(self) -> Any | None:
        """Take the next record, or None."""
        while True:
            taken = self._path / f"taken-{self._next}"
            try:
                os.rename(self._path / f"fed-{self._next}", taken)
            except FileNotFoundError:
                if not taken.exists():
                    return None
                self._next += 1
            else:
                self._next += 1
                return pickle.loads(taken.read_bytes())

    def answer(self, record: Any) -> None:
        """Leave an answer for the test."""
        with open(self._path / "answers", "ab", buffering=0) as file:
            file.write(pickle.dumps(record, 5))

    @property
    def finished(self) -> bool:
        """Whether the feed has ended and every record is taken."""
        return (self._path / "finished").exists() and not self.waiting
