"""Runs Python so that every process of a cluster can be killed at its effects: shipped code, counted from outside.

`dying_interpreter` makes a script that stands for `sys.executable`. What is executed with it, and whatever that
executes or forks in its turn, counts its effects in a `Book` that all share; a test arms the n-th of a kind of process.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import runpy
import shlex
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    # Not the directory of this file: what a daemon imports must be what it imports otherwise.
    sys.path[0] = str(ROOT)

from squall.scheduler.common.role import RoleKind, role_in  # noqa: E402
from tests.effects import count_effects  # noqa: E402

_CELL = struct.Struct("=qqq")
_KINDS = list(RoleKind)


class Book:
    """For each kind of process: effects counted, effects left until one dies, and who died."""

    def __init__(self, path: Path) -> None:
        self._path = path
        size = _CELL.size * len(_KINDS)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.truncate(fd, size)
            self._memory = mmap.mmap(fd, size)
        finally:
            os.close(fd)

    def close(self) -> None:
        self._memory.close()

    def counted(self) -> dict[RoleKind, int]:
        return {kind: self._cell(kind)[0] for kind in _KINDS}

    def arm(self, kind: RoleKind, nth: int) -> None:
        """Have the process of this kind that comes to the n-th effect from now on die there; 0: nobody."""
        self._put(kind, self._cell(kind)[0], nth, 0)

    def died(self, kind: RoleKind) -> int:
        """The pid of the process that died since then; 0 if none has."""
        return self._cell(kind)[2]

    def happens(self, kind: RoleKind) -> bool:
        """Count an effect; whether the process dies of it."""
        # Opened each time: a forked daemon has none of its parent's descriptors.
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX)
            counted, left, died = self._cell(kind)
            self._put(kind, counted + 1, max(left - 1, 0), os.getpid() if left == 1 else died)
            return left == 1
        finally:
            os.close(fd)

    def _cell(self, kind: RoleKind) -> tuple[int, int, int]:
        counted, left, died = _CELL.unpack_from(self._memory, _CELL.size * _KINDS.index(kind))
        return counted, left, died

    def _put(self, kind: RoleKind, *cell: int) -> None:
        _CELL.pack_into(self._memory, _CELL.size * _KINDS.index(kind), *cell)


def dying_interpreter(directory: Path) -> tuple[str, Book]:
    """A script that stands for Python, and the book of all that is executed with it."""
    path = directory / "book"
    script = directory / "python"
    command = shlex.join([sys.executable, __file__, str(path), str(script)])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o700)
    return str(script), Book(path)


def main(book_path: str, script: str, *arguments: str) -> None:
    sys.executable = script
    book = Book(Path(book_path))

    def happens(name: str, last: Callable[[], object] | None = None) -> None:
        role = role_in(Path("/proc/self/cmdline").read_text().split("\0"))
        if role is None or (last is not None and role.kind is RoleKind.WORKER):
            # What users' code writes may be torn.
            return
        if book.happens(role.kind):
            if last is not None:
                last()
            signal.raise_signal(signal.SIGKILL)

    count_effects(happens)
    module = arguments.index("-m") + 1
    sys.argv = list(arguments[module:])
    runpy.run_module(arguments[module], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
