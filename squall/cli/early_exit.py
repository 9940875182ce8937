"""Turns `os._exit` in a topology file into an exception: else the command would end in silence, even with exit code 0.

Guarantees: inside an `ExitWatch` block, `os._exit` in its thread raises `EarlyExit`; in another thread of its process
it says so on stderr and ends the process with the exit code of wrong use. In a forked process, and after the block, it
is the true `os._exit` again, also for code that imported it by name or pickled it meanwhile.

Not caught: native code that ends the process.
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
"""The active watches, the innermost last."""


class EarlyExit(BaseException):
    """Raised if the file calls `os._exit`."""


class ExitWatch:
    """Watches for calls of `os._exit` inside its block."""

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
    """Stands in for `os._exit` inside a watch's block."""
    watch = _watches[-1] if _watches else None
    if watch is None or watch.process != os.getpid():
        _really_exit(status)
    text = f"os._exit({status!r:.20})"
    if watch.thread != threading.get_ident():
        note(plain(f"squall: {watch.doing} ended by {text} in a thread; a topology file must run to its end"))
        _really_exit(_EXIT_WRONG_USE)
    watch.came = EarlyExit(text)
    raise watch.came
