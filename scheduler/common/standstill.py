"""Whether a worker goes on, and where it hung or crashed: how long its heartbeat, or a thread's sign of life, has stood
still, for an observer that may sleep; and the Python stacks that the interpreter wrote to the worker's log.

Guarantees
    * Only time in which the observer was awake counts. If the machine, or the supervisor, was stopped for a minute, no
      worker is taken for dead because of it.
    * A log is read from a given offset on, so an earlier incarnation's stack is never taken for this one's; a log that
      cannot be read gives an empty text.

Relies on: `faulthandler` writing to the worker's log, on a crash or when asked to by `DUMP_SIGNAL`.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass

DUMP_SIGNAL = signal.SIGUSR2
"""Makes a worker write the stacks of all its threads to its log, even in the middle of user code."""
CRASH_SIGNALS = frozenset((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL))
_READ_BYTES = 64 * 1024
_MAX_CHARS = 4000
_CRASH = "Fatal Python error: "
_FORK = "/scheduler/forking/child.py"
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_STACK_LINE = re.compile(r'^(?:Fatal Python error: .*|(?:Current thread|Thread) 0x.*|  File ".*|  \.\.\.|)$')


def log_size(path: str) -> int:
    """Size of the log in bytes; 0 if there is none."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def python_stack(path: str, since: int) -> str:
    """The stacks written to a log after offset `since`: a line with the innermost frame, then all threads."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # A log that is shorter than it was has been turned over since.
            file.seek(max(since if since <= size else 0, size - _READ_BYTES))
            return stack_in(file.read().decode("utf-8", "replace"))
    except OSError:
        return ""


def stack_in(text: str) -> str:
    """The last crash, else all dumps; "" if there are none."""
    begin = text.rfind(_CRASH)
    if begin < 0:
        thread = _THREAD.search(text)
        if thread is None:
            return ""
        begin = thread.start()
    lines: list[str] = []
    in_ancestors = False
    for line in text[begin:].splitlines():
        # A worker is forked by a fork of a fork, whose frames are below its own, and tell nothing.
        in_ancestors = (in_ancestors or _FORK in line) and line.startswith("  File")
        # Skip them, faulthandler's list of extension modules, and output of user code in between.
        if _STACK_LINE.match(line) and not in_ancestors:
            lines.append(line)
    stack = "\n".join(lines).strip()[:_MAX_CHARS]
    if stack.startswith(_CRASH):
        return stack
    frames = [line.strip() for line in lines if line.startswith("  File")]
    # Threads are written newest first; the worker's loop runs on the oldest.
    last_thread = stack.rfind("hread 0x")
    innermost = next((line for line in stack[last_thread:].splitlines() if line.startswith("  File")), "")
    return f"hung at {(innermost or frames[0]).strip() if frames else 'an unknown place'}\n{stack}"


@dataclass
class _Seen:
    value: int
    at: float
    still_secs: float = 0.0


class ProgressWatch:
    """Ask it regularly: a gap longer than `longest_gap_secs` between two looks counts as that long."""

    def __init__(self, longest_gap_secs: float) -> None:
        self._longest_gap_secs = longest_gap_secs
        self._seen: dict[int, _Seen] = {}

    def still_secs(self, key: int, value: int, now: float) -> float:
        """Seconds for which the value has been observed unchanged."""
        seen = self._seen.get(key)
        if seen is None or seen.value != value:
            self._seen[key] = _Seen(value, now)
            return 0.0
        seen.still_secs += min(now - seen.at, self._longest_gap_secs)
        seen.at = now
        return seen.still_secs

    def forget(self, key: int) -> None:
        """Stop observing this key."""
        self._seen.pop(key, None)
