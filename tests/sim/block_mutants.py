"""Ackers, and spouts' tables, that lack a guarantee about blocks: `make prove` must notice, in cases whose components
take batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.flow.blocks import BlockAcks, all_flags
from squall.engine.tracking.acker import Acker
from squall.engine.tracking.blocks import TrackedBlock
from squall.engine.tracking.open_messages import OpenMessages


class TogetherAcker(Acker):
    """All trees of a block count as processed with the first of them."""

    __slots__ = ()

    def ack_block(self, base: int, acks: BlockAcks) -> None:
        super().ack_block(base, acks)
        tracked = self._blocks.get(base)
        if tracked is not None and len(tracked) < tracked.block.members:
            for member in list(tracked):
                tracked.give_up(member)
                self._answer(tracked, [member])


class SolidaryAcker(Acker):
    """All trees of a block fail with one of them."""

    __slots__ = ()

    def fail(self, root: int, failure: Failure) -> None:
        found = self._blocks.find(root)
        super().fail(root, failure)
        if found is not None:
            tracked, _ = found
            for other in tracked.block.roots(tracked):
                super().fail(other, failure)


class MasklessBlocks(Acker):
    """Nobody knows to which workers the trees of a block were sent on."""

    __slots__ = ()

    def ack_block(self, base: int, acks: BlockAcks) -> None:
        super().ack_block(base, BlockAcks(acks.members, acks.xors))


class DeafBlocks(Acker):
    """What single tuples say of a tree in a block is not heard."""

    __slots__ = ()

    def _ack_elsewhere(self, acks: list[tuple[int, int]], masks: Mapping[int, int]) -> None:
        super()._ack_elsewhere([ack for ack in acks if self._blocks.find(ack[0]) is None], masks)


class CoarseBlocks(Acker):
    """A worker counts as holding a part of every tree of a block if it holds one of any."""

    __slots__ = ()

    def ack_block(self, base: int, acks: BlockAcks) -> None:
        every = all_flags(acks.members)
        super().ack_block(base, BlockAcks(acks.members, acks.xors, dict.fromkeys(acks.masks, every)))


class MuteBlocks(Acker):
    """Nobody is told of the trees of a block that fail together by a death."""

    __slots__ = ()

    def _fail_touched(self, tracked: TrackedBlock, mask: int, failure: Failure | None) -> None:
        told = len(self.block_answers)
        super()._fail_touched(tracked, mask, failure)
        del self.block_answers[told:]


class UnwrittenBlocks(OpenMessages):
    """No journal has what is emitted in blocks."""

    __slots__ = ()

    def _add_block(self, *emitted: Any) -> None:
        watching, self.attempts.watching = self.attempts.watching, False
        super()._add_block(*emitted)
        self.attempts.watching = watching
