"""`os._exit` in a topology file: an exception there. The command would end by it in silence, perhaps with exit code 0.

Guarantees: while an `EarlyExit` watch is entered, `os._exit` in its thread raises `EarlyExit`; in another thread of its
process it says so on stderr and ends the process with the exit code of wrong use. In a forked process, and when the
watch is left, it is `os._exit`: also for those that have taken it by name meanwhile, and after being pickled.

Not seen: what native code ends.
"""

from __future__ import annotations

import os
import threading
from typing import NoReturn

from squall.cli.output import note
from squall.engine.foreign.plain_text import plain

_EXIT_WRONG_USE = 2
_really_exit = os._exit
_watches: list[ExitWatch] = []
"""Those entered, the innermost last."""


class EarlyExit(BaseException):
    """The file has called `os._exit`."""


class ExitWatch:
    """Notes that `os._exit` was called while it is entered."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.came: EarlyExit | None = None
        self.process, self.thread = os.getpid(), threading.get_ident()

    def __enter__(self) -> ExitWatch:
        _watches.append(self)
        os._exit = exit_watched
        return self

    def __exit__(self, *exc_info: object) -> None:
        _watches.remove(self)
        if not _watches:
            os._exit = _really_exit


def exit_watched(status: int) -> NoReturn:
    """What `os._exit` is meanwhile."""
    watch = _watches[-1] if _watches else None
    if watch is None or watch.process != os.getpid():
        _really_exit(status)
    text = f"os._exit({status!r:.20})"
    if watch.thread != threading.get_ident():
        note(plain(f"squall: {watch.doing} ended by {text} in a thread; a topology file must come to its end"))
        _really_exit(_EXIT_WRONG_USE)
    watch.came = EarlyExit(text)
    raise watch.came
