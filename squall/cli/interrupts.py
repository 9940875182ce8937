"""Makes SIGINT, SIGTERM and SIGHUP states to check, instead of exceptions at any point of the code."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143
_EXIT_CODES = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED, signal.SIGHUP: 129}


class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP inside its block: the first asks for a drain, the second for an immediate end.

    A SIGHUP that is ignored stays so, for `nohup`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.exit_code = EXIT_INTERRUPTED
        """That of a command that was cut short by the last signal."""
        self._before: dict[int, Any] = {}

    def _caught(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        self.exit_code = _EXIT_CODES[signal.Signals(signum)]

    def code_after_drain(self, outcome: int) -> int:
        """The exit code of a command that runs until told to end, and then drains; `outcome` if nothing told it.

        One SIGTERM is how service managers and containers end a service: it ends by its own outcome, not by the signal.
        """
        if not self.count or (self.count == 1 and self.exit_code == EXIT_TERMINATED):
            return outcome
        return self.exit_code

    def __enter__(self) -> Interrupts:
        for signum in _EXIT_CODES:
            if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._caught)
        return self

    def again(self) -> None:
        """Count on, after other code has set handlers of its own."""
        for signum in self._before:
            signal.signal(signum, self._caught)

    def __exit__(self, *exc_info: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
