"""The acker: decides from XORs alone when a tuple tree is processed completely.

For each root it keeps one integer of constant size, however large the tree grows: the XOR of the edge ids of all
emitted and all acked tuples of that tree. It is zero exactly when every emitted tuple has been acked (except with
probability 2**-64), because each edge enters twice. The algorithm is Storm's (N. Marz, "Guaranteeing message
processing").

Guarantees
    * A tree is answered at most once: acked when its INIT is known and its XOR is zero, failed as soon as a tuple of it
      fails or a worker that holds part of it dies.
    * The order of messages does not matter; an ack or failure that comes before its INIT waits for it.
    * A second INIT of a live root changes nothing. (In a literal port of Storm's acker it cancels the first one, and 4
      % of trees are acked unprocessed when one message in ten is repeated.)
    * Nothing stays for ever: a tree that remains unanswered (its INIT was repeated after its answer, or the spout's
      message that it gave the tree up was lost) is dropped silently at the third rotation, two to three timeouts after
      its INIT or last reset. Its spout has timed it out by then.

Relies on: links that deliver each ack at most once; edge ids that never repeat (`engine.flow.ids`).

Pure: no clock, no I/O. Thread: the worker's loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from squall.engine.api.failure import WORKER_DIED, Failure
from squall.engine.flow.anchoring import Acks, BlockAcks
from squall.engine.flow.ids import ALONE, Block
from squall.engine.flow.member_columns import Flags, Words
from squall.engine.tracking.blocks import Blocks, TrackedBlock

# A tree's state is one int:  mask << 97 | spout_task << 66 | age << 64 | xor
_XOR = (1 << 64) - 1
_ROTATION = 1 << 64
_AGE = 3 << 64
_OLD = 2 << 64
_TASK_SHIFT = 66
_TASK_MASK = (1 << 31) - 1
_MASK_SHIFT = 97


Answer = tuple[int, int, Sequence[int], Failure | None]
"""The acker's answer to a spout: (spout task, first root, members, failure), with None if these trees are processed. A
plain tuple, because a tree may get one of its own: a named one takes ten times as long to make."""


class Acker:
    """Tracks the trees of one acker task."""

    __slots__ = ("_blocks", "_dead", "_early", "_early_failures", "_early_old", "_live", "answers")

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        # Messages of roots whose INIT has not come yet (or that are finished: they look the same). Dropped after two
        # rotations, so that the traces of late messages are bounded in time.
        self._early: dict[int, int] = {}
        self._early_old: dict[int, int] = {}
        self._early_failures: dict[int, Failure] = {}
        self._dead = 0
        self.answers: list[Answer] = []
        """Answers not yet taken; the caller empties it."""
        self._blocks: Blocks[TrackedBlock] = Blocks()

    def __len__(self) -> int:
        """Trees being tracked."""
        return len(self._live) + sum(map(len, self._blocks))

    def init(self, root: int, xor: int, spout_task: int, mask: int = 0) -> None:
        """Begin a tree that a spout emitted: `xor` of its first edges, sent to the workers of `mask`."""
        live = self._live
        if root in live:
            return
        state = spout_task << _TASK_SHIFT | mask << _MASK_SHIFT | xor
        if self._early or self._early_old:
            early = self._early.pop(root, None)
            if early is None:
                early = self._early_old.pop(root, None)
            if early is not None:
                state = (state ^ (early & _XOR)) | (early >> _MASK_SHIFT << _MASK_SHIFT)
                failure = self._early_failures.pop(root, None)
                if failure is not None:
                    self.answers.append((spout_task, root, ALONE, failure))
                    return
        if not state & _XOR:
            self.answers.append((spout_task, root, ALONE, None))
        elif self._dead and state >> _MASK_SHIFT & self._dead:
            self.answers.append((spout_task, root, ALONE, _died()))
        else:
            live[root] = state

    def ack(self, acks: Acks) -> None:
        """XOR acks into their trees."""
        live, masks, elsewhere = self._live, acks.masks, []
        for root, value in acks.xors.items():
            state = live.get(root)
            if state is None:
                elsewhere.append((root, value))
                continue
            state ^= value
            if not state & _XOR:
                del live[root]
                self.answers.append((state >> _TASK_SHIFT & _TASK_MASK, root, ALONE, None))
            else:
                live[root] = state
        if elsewhere:
            self._ack_elsewhere(elsewhere, masks)
        if masks:
            self._add_masks(masks)
        for base, its in acks.blocks.items():
            self.ack_block(base, its)

    def _ack_elsewhere(self, acks: list[tuple[int, int]], masks: Mapping[int, int]) -> None:
        """The same for trees that are in blocks, or that have not begun."""
        shares: defaultdict[TrackedBlock, list[tuple[int, int]]] = defaultdict(list)
        for root, value in acks:
            place = self._blocks.find(root)
            if place is None:
                self._early_ack(root, value, masks.get(root, 0))
            else:
                shares[place[0]].append((place[1], value))
        for tracked, values in shares.items():
            self._answer(tracked, tracked.ack_some(values))

    def _add_masks(self, masks: Mapping[int, int]) -> None:
        live, dead = self._live, self._dead
        for root, mask in masks.items():
            state = live.get(root)
            if state is not None:
                live[root] = state | mask << _MASK_SHIFT
            elif (place := self._blocks.find(root)) is not None:
                place[0].add_mask(place[1], mask)
            else:
                continue
            if mask & dead:
                self.fail(root, _died())

    def init_block(self, block: Block, xors: Words, spout_task: int, masks: dict[int, Flags]) -> None:
        """Begin the trees of a block that a spout of this worker emitted: the XOR of the first edges of each, and the
        members that were sent to each worker."""
        tracked = TrackedBlock(block, xors, spout_task, masks)
        self._blocks.begin(tracked)
        self._answer(tracked, tracked.finished())
        self._fail_touched(tracked, self._dead, None)

    def ack_block(self, base: int, acks: BlockAcks) -> None:
        """XOR a word into each tree of a block."""
        tracked = self._blocks.get(base)
        if tracked is None:
            return  # all of it is answered: it began before any ack of it was sent
        finished = tracked.ack(acks.xors)
        for bit, flags in acks.masks.items():
            tracked.masks[bit] = tracked.masks.get(bit, 0) | flags
        self._answer(tracked, finished)
        if acks.masks:
            self._fail_touched(tracked, self._dead, None)

    def _answer(self, tracked: TrackedBlock, members: Sequence[int], failure: Failure | None = None) -> None:
        """Answer trees of a block, which are gone from it."""
        if members:
            self.answers.append((tracked.spout_task, tracked.block.base, members, failure))
            self._blocks.drop_if_done(tracked)

    def _fail_touched(self, tracked: TrackedBlock, mask: int, failure: Failure | None) -> None:
        """Fail the trees that one of the workers of `mask` holds a part of, all at once: a death may fail thousands."""
        if mask and (touched := tracked.touched(mask)):
            tracked.give_up(touched)
            self._answer(tracked, touched, failure or _died())

    def _early_ack(self, root: int, value: int, mask: int) -> None:
        state = self._early.get(root)
        if state is None:
            state = self._early_old.pop(root, 0)
        self._early[root] = (state ^ value) | mask << _MASK_SHIFT

    def fail(self, root: int, failure: Failure) -> None:
        """Fail a tree: answer at once. Unknown roots wait for their INIT."""
        state = self._take_out(root)
        if state is None:
            self._early_ack(root, 0, 0)
            self._early_failures[root] = failure
        else:
            self.answers.append((state >> _TASK_SHIFT & _TASK_MASK, root, ALONE, failure))

    def _take_out(self, root: int) -> int | None:
        """Take out a tree that is tracked; returns its state, of a tree in a block only who emitted it and who holds a
        part of it."""
        state = self._live.pop(root, None)
        if state is None and (place := self._blocks.find(root)):
            tracked, member = place
            state = tracked.spout_task << _TASK_SHIFT | tracked.mask_of(member) << _MASK_SHIFT
            tracked.give_up((member,))
            self._blocks.drop_if_done(tracked)
        return state

    def reset(self, root: int) -> int | None:
        """Count the tree's timeout from now; returns the spout task to tell, None if there is no such tree."""
        state = self._live.get(root)
        if state is None:
            place = self._blocks.find(root)
            if place is None:
                return None
            # Of the whole block: too long an age only delays the end of what is lost anyway.
            place[0].age = 0
            return place[0].spout_task
        self._live[root] = state & ~_AGE
        return state >> _TASK_SHIFT & _TASK_MASK

    def forget(self, root: int) -> int:
        """Drop a tree that its spout has timed out; returns the mask of the workers that held a part of it."""
        return (self._take_out(root) or 0) >> _MASK_SHIFT

    def workers_died(self, dead: int, lost: int, failure: Failure | None = None) -> None:
        """Fail exactly the trees that touched one of `lost`, and from now on every tree that touches one of `dead`, the
        mask of all incarnations known to be dead."""
        self._dead = dead
        for root in [root for root, state in self._live.items() if state >> _MASK_SHIFT & lost]:
            self.fail(root, failure or _died())
        for tracked in list(self._blocks):
            self._fail_touched(tracked, lost, failure)

    def rotate(self) -> None:
        """Drop messages that have waited for an INIT for two message timeouts, and trees older than two. Called once
        per message timeout."""
        for root in self._early_old:
            self._early_failures.pop(root, None)
        self._early_old = self._early
        self._early = {}
        live = self._live
        forgotten = []
        for root, state in live.items():
            if state & _OLD:
                forgotten.append(root)
            else:
                live[root] = state + _ROTATION
        for root in forgotten:
            del live[root]
        for tracked in list(self._blocks):
            tracked.age += 1
            if tracked.age > 2:
                self._blocks.drop(tracked)


def _died() -> Failure:
    return Failure(WORKER_DIED)
