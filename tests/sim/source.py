"""The user's spout in the model: offsets 0, 1 ...; what failed is due again; what is committed outlives the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.engine.api.failure import Failure

if TYPE_CHECKING:
    from tests.sim.world import World


class ReplayingSource:
    """A finite source that can be read again from a position."""

    exhausted = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.committed = 0
        self.open()

    def open(self) -> None:
        """The spout's worker starts: read on from the committed position."""
        self.next = self.committed
        self.due: list[int] = []
        self.prefix = self.world.parts.prefix(self.committed)

    def read(self) -> int | None:
        """The offset to emit now."""
        if self.due:
            return self.due.pop(0)
        if self.next == self.world.shape.messages:
            return None
        self.next += 1
        return self.next - 1

    def ack(self, offset: int) -> None:
        world = self.world
        world.truth.answered(offset, None, world.now_ns)
        self.prefix.ack(offset)
        self.committed = self.prefix.committable
        world.truth.check_committed(self.committed)

    def on_failure(self, offset: int, failure: Failure) -> None:
        self.world.truth.answered(offset, failure, self.world.now_ns)
        self.due.append(offset)
