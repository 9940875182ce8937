"""Removes code that no topology runs, when no submission under way can need it.

Guarantees: nothing is removed while a client holds the code store for a submission (`CodeStore.held`), nor while there
are topologies that Nimbus does not know. Unused code is removed soon after.

Thread: Nimbus's loop.
"""

from __future__ import annotations

from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.files import NimbusFiles

RETRY_SECS = 0.1
"""Between two tries: a submission takes some milliseconds from its first file to Nimbus's answer."""


class CodeSweep:
    """A sweep that is due or not."""

    def __init__(self, nimbus: Nimbus, files: NimbusFiles) -> None:
        self._nimbus = nimbus
        self._files = files
        self._due_at: float | None = None

    def ask(self, now: float) -> None:
        """Ask for a sweep: code may have become unused."""
        self._due_at = now
        self.tick(now)

    def tick(self, now: float) -> None:
        """Sweep if it is due."""
        if self._due_at is None or now < self._due_at or self._nimbus.unknown:
            return
        done = self._files.keep_code(self._nimbus.cluster().topologies)
        self._due_at = None if done else now + RETRY_SECS

    def next_deadline(self) -> float | None:
        return None if self._nimbus.unknown else self._due_at
