"""Named steps of code that changes files or starts processes, at which a test or an operator can have the process die.

Guarantees
    * Off (the default), a step costs one `if`: whether SQUALL_FAULT_DIR is in the environment.
    * On, that variable names a directory. A file in it with the name of a point and the text "N" arms the point: of all
      processes with this environment, the one that makes the N-th pass kills itself there with SIGKILL, so nothing
      after that point happens. The file then says "0 PID". A point fires once each time that it is armed, also if the
      process is started again.

Relies on: `scheduler.common.fault_points`, which lists every point and says where it is. Process: any.
"""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

from squall.engine.errors import UsageError

ENVIRONMENT = "SQUALL_FAULT_DIR"
_MOST_BYTES = 64


def pass_point(name: str) -> None:
    """Pass a point; die if it is armed and this is the pass."""
    if ENVIRONMENT in os.environ and _is_due(name):
        _die()


def tear(name: str, fd: int, data: bytes) -> None:
    """Pass a point before `data` is written; the death comes in the middle of that write."""
    if ENVIRONMENT in os.environ and _is_due(name):
        os.write(fd, data[: len(data) // 2])
        _die()


def arm(directory: Path, name: str, nth_pass: int = 1) -> None:
    """Have the process that makes the n-th pass of a point from now on die there."""
    temporary = directory / f".{name}"
    temporary.write_text(str(nth_pass))
    temporary.rename(directory / name)


def disarm(directory: Path, name: str) -> None:
    """Nobody dies at this point any more."""
    (directory / name).unlink(missing_ok=True)


def hit_by(directory: Path, name: str) -> int:
    """The pid of the process that died at a point since it was armed; 0 if none has."""
    try:
        left, _, pid = (directory / name).read_text().partition(" ")
    except FileNotFoundError:
        return 0
    return int(pid) if left == "0" and pid else 0


def _is_due(name: str) -> bool:
    """Count a pass; whether it is the armed one."""
    path = os.path.join(os.environ[ENVIRONMENT], name)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UsageError(f"{ENVIRONMENT}: cannot open {path}: {error.strerror}") from error
    try:
        # Two processes may pass at once: each counts.
        fcntl.flock(fd, fcntl.LOCK_EX)
        said = os.read(fd, _MOST_BYTES).partition(b" ")[0].strip()
        if not said.isdigit():
            raise UsageError(f"{path} says {said!r}, allowed is the number of the pass at which a process dies")
        left = int(said)
        if left < 1:
            return False
        text = f"{left - 1} {os.getpid() if left == 1 else ''}".strip()
        # With one call and never shorter than before, so that no reader sees half of it.
        os.pwrite(fd, text.encode().ljust(_MOST_BYTES), 0)
        return left == 1
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _die() -> None:
    signal.raise_signal(signal.SIGKILL)
