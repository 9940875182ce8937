"""SIGINT and SIGTERM as something to ask for, instead of an exception in the middle of anything.

And the operator's interrupt told from a KeyboardInterrupt that users' code raised itself.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, NoReturn

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


class Interrupts:
    """Counts SIGINT and SIGTERM while it is entered: the first asks for a drain, the second for an end at once."""

    def __init__(self) -> None:
        self.count = 0
        self.exit_code = EXIT_INTERRUPTED
        self._before: dict[int, Any] = {}

    def _caught(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        self.exit_code = EXIT_TERMINATED if signum == signal.SIGTERM else EXIT_INTERRUPTED

    def __enter__(self) -> Interrupts:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._caught)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)


class NotedInterrupt:
    """Notes that SIGINT came while it is entered, which raises KeyboardInterrupt as ever."""

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def _caught(self, signum: int, frame: FrameType | None) -> NoReturn:
        self.came = True
        raise KeyboardInterrupt

    def __enter__(self) -> NotedInterrupt:
        # Where Python's own handler is not in place, somebody else decides what SIGINT does.
        ours = threading.current_thread() is threading.main_thread()
        if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._caught)
        return self

    def __exit__(self, *exc_info: object) -> None:
        # The code inside may have set a handler of its own, which stays.
        if self._before is not None and signal.getsignal(signal.SIGINT) == self._caught:
            signal.signal(signal.SIGINT, self._before)
