"""The permit to try suspects: the workers of a topology share one."""

from __future__ import annotations

from typing import Protocol


class TrialPermit(Protocol):
    """One worker's share of it, for all of its spout tasks."""

    def begin(self) -> bool:
        """Take the permit; whether this worker has it now. Asks for it if another one has it: call again."""

    def end(self) -> None:
        """Return the permit: the suspects on trial are acked or have failed."""

    def leave(self) -> None:
        """Withdraw the request: nothing is left to try."""

    def turned_since(self, at_ns: int) -> bool:
        """Whether every worker has taken a turn since then, so that none hangs on an earlier tuple."""


class OwnPermit:
    """The permit of a topology's only worker."""

    def __init__(self) -> None:
        self._taken = False

    def begin(self) -> bool:
        taken, self._taken = self._taken, True
        return not taken

    def end(self) -> None:
        self._taken = False

    def leave(self) -> None:
        """Do nothing: no other worker waits."""

    def turned_since(self, at_ns: int) -> bool:
        """True: the asking worker is the only one."""
        return True
