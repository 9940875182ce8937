"""SIGINT and SIGTERM as something to ask for, instead of an exception in the middle of anything."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

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
