"""Effects of a process on the world outside, and a process that is killed at any of them: for tests of what it leaves.

An effect is a write, a sync, a rename, a removal, a transaction, a signal, a message, a fork. Nobody names them: they
are counted, in shipped code, by doubles of the functions that every effect goes through. A process dies before its n-th
effect, or, if that is a write, in the middle of it (which counts as one more).

Relies on: product code calling these functions by their modules (`os.rename`).
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import zmq

CALLS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("fdatasync", "fork", "fsync", "ftruncate", "kill", "killpg", "link", "mkdir", "posix_fallocate", "pwrite",
          "remove", "rename", "replace", "rmdir", "symlink", "truncate", "unlink")),
    (signal, ("pidfd_send_signal",)),
    (socket.socket, ("send", "sendall", "sendmsg")),
    (subprocess.Popen, ("__init__",)),
    (zmq.Socket, ("send", "send_multipart")),
)  # fmt: skip


class Happens(Protocol):
    """Called with the name of each effect before it happens. If the process dies now, `last` is done first."""

    def __call__(self, name: str, last: Callable[[], object] | None = None) -> None: ...


def count_effects(happens: Happens) -> None:
    """From now on, and for good, `happens` is called before each effect of this process."""
    for owner, names in CALLS:
        for name in names:
            setattr(owner, name, _told(f"{owner.__name__}.{name}", getattr(owner, name), happens))
    os.write = _torn(os.write, happens)
    os.open = _opened(os.open, happens)
    builtins.open = io.open = _file_opened(io.open, happens)
    sqlite3.connect = _connected(sqlite3.connect, happens)


def _told(name: str, genuine: Callable[..., Any], happens: Happens) -> Callable[..., Any]:
    def told(*arguments: Any, **options: Any) -> Any:
        happens(name)
        return genuine(*arguments, **options)

    return told


def _torn(genuine: Callable[[int, Any], int], happens: Happens) -> Callable[[int, Any], int]:
    def torn(fd: int, data: Any) -> int:
        happens("os.write")
        if stat.S_ISREG(os.fstat(fd).st_mode):
            happens("half of a write", lambda: genuine(fd, bytes(data)[: len(data) // 2]))
        return genuine(fd, data)

    return torn


def _opened(genuine: Callable[..., int], happens: Happens) -> Callable[..., int]:
    def opened(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            happens("os.open")
        return genuine(path, flags, *rest, **options)

    return opened


def _file_opened(genuine: Callable[..., Any], happens: Happens) -> Callable[..., Any]:
    def opened(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if mode[0] != "r" and not isinstance(file, int):
            happens("open")
        return genuine(file, mode, *rest, **options)

    return opened


def _connected(genuine: Callable[..., Any], happens: Happens) -> Callable[..., Any]:
    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if not sql.lstrip().startswith(("SELECT", "PRAGMA")):
                happens(f"sqlite {sql.split(maxsplit=1)[0]}")
            return super().execute(sql, *values)

        def executescript(self, sql: str) -> sqlite3.Cursor:
            happens("sqlite script")
            return super().executescript(sql)

        def backup(self, *arguments: Any, **options: Any) -> None:
            happens("sqlite backup")
            super().backup(*arguments, **options)

    return lambda *arguments, **options: genuine(*arguments, factory=Connection, **options)


# ---- a child that dies ----


def effects_of(work: Callable[[], object]) -> list[str]:
    """Do `work` in a child; the names of its effects, in order. AssertionError if it raised."""
    ours, theirs = os.pipe()
    write = os.write
    assert not _dies(work, lambda name, last=None: write(theirs, f"{name}\n".encode()) and None)
    os.close(theirs)
    with open(ours) as names:
        return names.read().splitlines()


def dies_at(nth: int, work: Callable[[], object]) -> bool:
    """Do `work` in a child that dies before its n-th effect, from 1; whether it came so far. AssertionError if it
    raised."""
    left = nth

    def happens(name: str, last: Callable[[], object] | None = None) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            if last is not None:
                last()
            signal.raise_signal(signal.SIGKILL)

    return _dies(work, happens)


def _dies(work: Callable[[], object], happens: Happens) -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            count_effects(happens)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert died or os.WEXITSTATUS(status) == 0, "the work failed"
    return died


def copy_of(path: Path, to: Path) -> Path:
    """A copy of a directory, in place of what is there."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(path, to, symlinks=True)
    return to
