"""Replaces `breakpoint()` in a worker, which has no terminal: logs where it was and what to do instead, and goes on.

A worker's stdin is /dev/null, so a debugger would end at once, by an unhelpful exception in the user's code. Each line
of code is reported once: a `breakpoint()` for each tuple would fill the log.

Thread: any.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def refuse_breakpoints(doing: Callable[[], str], tell: Callable[[str], None]) -> None:
    """Install the replacement in this process. `doing()` names the component that the worker's loop is in, `tell(text)`
    tells the operator."""
    told: set[tuple[str, int]] = set()
    loop = threading.current_thread()

    def breakpoint_in_worker(*arguments: object, **named: object) -> None:
        frame = sys._getframe(1)
        line = frame.f_code.co_filename, frame.f_lineno
        if line in told:
            return
        told.add(line)
        thread = threading.current_thread()
        who = doing() if thread is loop else thread.name
        tell(
            f"breakpoint() of {who} at {line[0]}:{line[1]} does nothing in a worker, which has no terminal; use "
            "`squall run --local` to stop there"
        )

    sys.breakpointhook = breakpoint_in_worker
