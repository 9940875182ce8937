"""What `ps` and /proc show as the command line of a process that was forked, not executed.

Guarantees: `/proc/PID/cmdline` and `ps` show what they would show of a process executed with these arguments. A command
line that needs more room than the process's own had is cut.

Relies on: Linux, where the command line is read from the process's own memory, at addresses that /proc tells.

PyPI's `setproctitle` does not do. It takes the room of /proc/PID/environ, and empties it for the process and all that
are forked from it: `scheduler.cluster.daemons.is_marked` knows a cluster's processes by it. It joins arguments by
blanks, which paths may hold, and changes the name that `pgrep` and `ps -C` look for. Told to spare the environment
(SPT_NOENV), it cuts a title at the room of the command line, as this does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_ARG_START, _ARG_END = 48, 49
"""Fields of /proc/PID/stat, counted from 1."""


def size_bytes(arguments: Sequence[str]) -> int:
    """Room that a command line takes."""
    return len(_encoded(arguments))


def set_title(arguments: Sequence[str]) -> None:
    """Be shown with this command line from now on. Any thread."""
    # The command name, in brackets, may itself contain brackets and blanks: count the fields after its end.
    fields_from_third = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
    start, end = (int(fields_from_third[field - 3]) for field in (_ARG_START, _ARG_END))
    room = end - start
    # The last byte must be NUL, or the kernel takes what follows, the environment, for more of the command line.
    text = _encoded(arguments)[: room - 1].ljust(room, b"\0")
    ctypes.memmove(start, text, room)


def _encoded(arguments: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
