"""Sets what `ps` and /proc show as the command line of a process that was forked, not executed.

Guarantees: `/proc/PID/cmdline` and `ps` show the same as for a process executed with these arguments. A command line
that is longer than the process's original one is cut.

Relies on: Linux, which reads the command line from the process's own memory, at addresses that /proc tells.

PyPI's `setproctitle` does not serve. It overwrites /proc/PID/environ for the process and all its forks, by which
`scheduler.common.mark` finds a cluster's processes. It joins arguments by blanks, which paths may hold, and changes the
name that `pgrep` and `ps -C` look for. Told to spare the environment (SPT_NOENV), it cuts a title where this does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_ARG_START, _ARG_END = 48, 49
"""Fields of /proc/PID/stat, counted from 1."""


def size_bytes(arguments: Sequence[str]) -> int:
    """Bytes that a command line takes."""
    return len(_encoded(arguments))


def set_title(arguments: Sequence[str]) -> None:
    """Show this command line from now on. Thread: any."""
    # Count fields from the end of the command name: in its brackets, it may contain brackets and blanks.
    fields_from_third = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
    start, end = (int(fields_from_third[field - 3]) for field in (_ARG_START, _ARG_END))
    room = end - start
    # End with NUL, or the kernel takes the environment, which follows, for more of the command line.
    text = _encoded(arguments)[: room - 1].ljust(room, b"\0")
    ctypes.memmove(start, text, room)


def _encoded(arguments: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
