"""Tells of deaths of workers, and of their replacements, once each, while they happen."""

from __future__ import annotations

from collections.abc import Iterable

from squall.engine.foreign.plain_text import plain
from squall.scheduler.common.messages import RestartRecord


class DeathNews:
    """The deaths of one topology that people have been told of."""

    def __init__(self, known: Iterable[RestartRecord] = ()) -> None:
        """`known`: deaths of before, which are not news."""
        self._replaced: dict[tuple[str, int], bool] = {
            (death.slot, death.incarnation): death.ready_after_secs is not None for death in known
        }

    def lines(self, deaths: Iterable[RestartRecord]) -> list[str]:
        """One line for each death and each replacement since the last call."""
        told = []
        for death in deaths:
            worker = death.slot, death.incarnation
            if worker not in self._replaced:
                self._replaced[worker] = False
                error = death.error.partition("\n")[0]
                told.append(plain(f"worker {death.slot} died: {death.reason}{f': {error}' if error else ''}"))
            if death.ready_after_secs is not None and not self._replaced[worker]:
                self._replaced[worker] = True
                told.append(f"worker {death.slot} is back, ready after {death.ready_after_secs * 1000:.1f} ms")
        return told
