"""FixedSpout: a spout that emits a fixed list, and can crash its worker or pause at given places of it.

Guarantees: every tuple is emitted, in the order of the list, with its position as message id, and again after each
failure until it is acked. After its worker's death the spout continues from the first tuple that was not acked.

`CRASH` in the list kills the worker's process with SIGKILL when the spout reaches it, once. At `PAUSE` the spout emits
no new tuple until the test calls `release`; failed ones are still emitted again. Several tasks take the list's items in
turn.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.api.prefix import AckedPrefix
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.api.stream import DEFAULT_STREAM, Emit, Outputs
from squall.engine.errors import ComponentError, UsageError
from squall.testing.mail import new_directory
from squall.testing.waiting import wait_for

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext

CRASH = "<crash>"
"""In a FixedSpout's list: kill the worker here, once. A string, so that it is equal in every process."""
PAUSE = "<pause>"
"""In a FixedSpout's list: wait here until the test calls `release`."""


class FixedSpout(ReplayingSpout):
    """Emits `tuples`: a list for the default stream, or stream name -> list, one after the other."""

    first_delay_secs = 0.0

    def __init__(
        self, outputs: Outputs, tuples: Iterable[Any] | Mapping[str, Iterable[Any]],
        directory: str | Path | None = None,
    ) -> None:
        self.outputs = outputs
        streams = tuples if isinstance(tuples, Mapping) else {DEFAULT_STREAM: tuples}
        self._items = [(stream, item) for stream, items in streams.items() for item in items]
        self._made_in = os.getpid()
        self._directory = new_directory(directory)
        """For the marks that were reached."""

    # ---- the test's side ----

    @property
    def paused_at(self) -> int | None:
        """The position in the list where the spout is paused; None if it is not."""
        reached = sorted(int(mark.name.partition("-")[2]) for mark in self._directory.glob("paused-*"))
        waiting = [position for position in reached if not (self._directory / f"released-{position}").exists()]
        return waiting[0] if waiting else None

    def wait_until_paused(self, timeout_secs: float = 20.0) -> int:
        """Wait until the spout has reached a PAUSE. Returns its position in the list."""
        wait_for("the spout to pause", lambda: self.paused_at is not None, timeout_secs)
        position = self.paused_at
        assert position is not None, "only this test releases it"
        return position

    def release(self) -> None:
        """Let a paused spout continue."""
        position = self.paused_at
        if position is None:
            raise UsageError("the spout is not paused; wait_until_paused() first")
        (self._directory / f"released-{position}").touch()

    # ---- the spout's side ----

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        tasks = context.component_tasks(context.component_id)
        self._mine: Sequence[int] = range(context.task_index, len(self._items), len(tasks))
        # A simulation without state directories has no position to keep.
        self._position = None if context.state_root is None else Path(context.state_dir) / "position"
        at = self._position
        self._prefix = AckedPrefix(int(at.read_text()) if at is not None and at.exists() else 0)

    def read(self) -> Iterator[Any]:
        for position in self._mine[self._prefix.committable :]:
            stream, item = self._items[position]
            if not _is_mark(item):
                yield position, Emit(item, stream)
                continue
            while not self._passes(item, position):
                yield None
            self._done(position)

    def _passes(self, mark: str, position: int) -> bool:
        """Act on CRASH or PAUSE. Returns whether the spout continues."""
        if mark == PAUSE:
            (self._directory / f"paused-{position}").touch()
            return (self._directory / f"released-{position}").exists()
        crashed = self._directory / f"crashed-{position}"
        if not crashed.exists():
            if os.getpid() == self._made_in:
                raise ComponentError(
                    "CRASH would kill the process of the test itself; use SimulatedCluster.kill where there are no "
                    "worker processes"
                )
            crashed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        self._done(message_id)

    def _done(self, position: int) -> None:
        if self._prefix.ack(self._mine.index(position)) and self._position is not None:
            fresh = self._position.with_suffix(".new")
            fresh.write_text(str(self._prefix.committable))
            fresh.replace(self._position)


def _is_mark(item: Any) -> bool:
    return isinstance(item, str) and item in (CRASH, PAUSE)
