"""Whose turn it is to try a suspect, among the workers of a topology."""

from __future__ import annotations

from typing import Protocol


class TrialTurn(Protocol):
    """One worker's turns. All of its spout tasks share them."""

    def begin(self) -> bool:
        """Whether a suspect may go out now. Asks for the turn if it is somebody else's; call again."""

    def end(self) -> None:
        """The suspect is acked or has failed."""

    def leave(self) -> None:
        """Nothing more to try."""

    def turned_since(self, at_ns: int) -> bool:
        """Whether every worker has come round since then, so that none hangs on what it was sent before."""


class OwnTurn:
    """Turns in a worker that is alone."""

    def __init__(self) -> None:
        self._taken = False

    def begin(self) -> bool:
        taken, self._taken = self._taken, True
        return not taken

    def end(self) -> None:
        self._taken = False

    def leave(self) -> None:
        """Nobody waits."""

    def turned_since(self, at_ns: int) -> bool:
        """A worker that is alone and asks has."""
        return True
