"""Ack rings: how a worker tells another's ackers what is acked, past the frames of their link.

A frame costs both ends a tenth of a millisecond of processor time, passes two threads of ZeroMQ, and is executed before
it is answered. Acks are a few words, and a tree waits for nothing else. So each worker has a ring in shared memory to
each other one, which reads it several times a turn. Tuples never take this way.

Guarantees
    * A chunk is taken once, in the order of telling, by the incarnation that it was meant for, or by none.
    * `tell` never waits. It refuses if the ring has no room or the receiver sleeps: a frame must carry the acks then,
      and wakes the sleeper.
    * A chunk is taken whole or not at all. The position that makes it visible is written after it; the checksum, which
      covers the position too, verifies it on processors that reorder stores (arm64).
    * A worker that dies in the middle of a write leaves nothing behind that another would read.

Relies on: one living incarnation per worker; aligned 64-bit words being written in one piece.

Layout, in words, for n workers (the part `rings` of the status board)::

    awake    n             1 while worker j looks at its rings; j writes it
    heads    n x n         [j, i]: how many words worker i has ever told worker j; i writes it
    tails    n x n         [j, i]: how many of them j has taken, or passed over, and published so; j writes it
    rings    n x n x size  [j, i]: what i tells j; i writes it

A chunk is: checksum << 32 | words that follow; receiver incarnation << 32 | sender incarnation; frames processed (as
in a frame's header); words of a mask << 48 | masks << 24 | acks; then roots, XORs, roots with masks, masks; then for
each block: masks << 24 | members, the first root, an XOR for each member, and for each mask the number of its bit, and
a byte for each member, in whole words. Where no room is left at the end of a ring, the position << 32 | 1 << 31 stands
there, and the next is at the beginning.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping

from squall.engine.flow.anchoring import Acks, BlockAcks

_BUDGET_WORDS = 1 << 18
_SMALLEST_WORDS, _LARGEST_WORDS = 64, 2048
"""Words. A turn of word count tells some 16 trees in 36 words; two full frames of 256 trees fit the largest ring."""
_MOST_WORKERS = 128
"""More workers have no rings: the smallest rings of so many take 8 MiB."""
_HEAD_WORDS = 3
_LOW = 0xFFFF_FFFF
_SKIP = 1 << 31
"""Stands where a chunk's length would: the next chunk is at the beginning of the ring."""
_COUNT = 0xFF_FFFF


def ring_words(n_workers: int) -> int:
    """Words of one ring: what a budget of 2 MiB allows, within bounds; 0 if there are too many workers for rings."""
    if n_workers > _MOST_WORKERS:
        return 0
    return max(_SMALLEST_WORDS, min(_LARGEST_WORDS, _BUDGET_WORDS // max(1, n_workers * n_workers)))


def rings_words(n_workers: int) -> int:
    """Words of all rings among so many workers."""
    return n_workers + n_workers * n_workers * (2 + ring_words(n_workers))


Told = tuple[int, int, int, Acks]
"""A chunk that was taken: (sender, its incarnation, frames of the receiver that it has processed, acks)."""


def untaken(words: memoryview[int], n_workers: int) -> list[tuple[int, int]]:
    """(sender, receiver) of each ring whose receiver has not yet published that it took everything."""
    pairs = n_workers * n_workers
    heads = words[n_workers : n_workers + pairs].tolist()
    tails = words[n_workers + pairs : n_workers + 2 * pairs].tolist()
    return [divmod(offset, n_workers)[::-1] for offset in range(pairs) if heads[offset] != tails[offset]]


class AckRings:
    """The rings to and from one incarnation of one worker. Thread: the worker's loop."""

    def __init__(self, words: memoryview[int], n_workers: int, me: int, incarnation: int) -> None:
        """`words`: the memory of all rings. Pass over what an earlier incarnation of this worker has not taken."""
        self._words = words
        self._bytes = words.cast("B")
        self._me = me
        self._incarnation = incarnation
        self._size = ring_words(n_workers)
        self._n = n_workers
        self._tails_at = n_workers + n_workers * n_workers
        self._rings_at = self._tails_at + n_workers * n_workers
        mine = n_workers + me * n_workers
        self._heads = words[mine : mine + n_workers]
        self._tails = words[mine + n_workers * n_workers : mine + n_workers * n_workers + n_workers]
        self._taken = self._heads.tolist()
        self.confirm()
        self._torn: dict[int, int] = {}
        """Sender -> position of its chunk that was not whole at the last `pass_over`."""
        self.set_awake(False)

    def close(self) -> None:
        """Release the memory."""
        self._heads.release()
        self._tails.release()
        self._bytes.release()
        self._words.release()

    def set_awake(self, awake: bool) -> None:
        """Publish whether this worker reads its rings. After False, look once more before sleeping."""
        self._words[self._me] = awake

    def is_awake(self, worker: int) -> bool:
        """Return True if another worker reads its rings. Ask again after `tell`: it may have looked for the last time
        just before."""
        return bool(self._words[worker])

    @property
    def waiting(self) -> bool:
        """True if there is anything to take."""
        return self._heads.tolist() != self._taken

    # ---- telling ----

    def tell(self, worker: int, incarnation: int, processed: int, acks: Acks) -> bool:
        """Tell an incarnation of another worker; False if it sleeps or its ring has no room for all of it."""
        if not self._words[worker] or not self._size:
            return False
        xors, masks = acks.xors, acks.masks
        chunk = array("Q", (incarnation << 32 | self._incarnation, processed, len(xors)))
        chunk.extend(xors)
        chunk.extend(xors.values())
        if masks:
            _add_masks(chunk, masks)
        for base, its in acks.blocks.items():
            if len(chunk) + its.members >= self._size:
                return False
            _add_block(chunk, base, its)
        return self._write(worker, chunk)

    def _write(self, worker: int, chunk: array[int]) -> bool:
        """Write a chunk if there is room for it."""
        words, n, size = self._words, self._n, self._size
        pair = worker * n + self._me
        head_at = n + pair
        head, tail = words[head_at], words[self._tails_at + pair]
        offset, length = head % size, len(chunk)
        ring_at = self._rings_at + pair * size
        if offset + 1 + length > size > length and head + size - offset - tail <= size:
            words[ring_at + offset] = (head & _LOW) << 32 | _SKIP
            head += size - offset
            words[head_at] = head
            offset = 0
        if offset + 1 + length > size or head + 1 + length - tail > size:
            return False
        at = ring_at + offset + 1
        words[at : at + length] = chunk
        words[at - 1] = zlib.crc32(chunk, head & _LOW) << 32 | length
        words[head_at] = head + 1 + length
        return True

    # ---- taking ----

    def take(self) -> list[Told]:
        """The chunks that other workers have written since the last call."""
        told: list[Told] = []
        for sender, head in enumerate(self._heads.tolist()):
            if head != self._taken[sender]:
                self._take_from(sender, head, told)
        return told

    def _take_from(self, sender: int, head: int, told: list[Told]) -> None:
        size, pair = self._size, self._me * self._n + sender
        ring_at = self._rings_at + pair * size
        taken = self._taken[sender]
        while taken != head:
            offset = taken % size
            proof, length = divmod(self._words[ring_at + offset], 1 << 32)
            # Verify and parse a private copy; the writer may still be changing the ring.
            chunk = array("Q")
            chunk.frombytes(self._bytes[8 * (ring_at + offset + 1) : 8 * (ring_at + min(offset + 1 + length, size))])
            if length == _SKIP and proof == taken & _LOW:
                taken += size - offset
                continue
            if len(chunk) != length or not length or zlib.crc32(chunk, taken & _LOW) != proof:
                break  # not all of it is visible yet
            taken += 1 + length
            if chunk[0] >> 32 != self._incarnation:
                continue
            told.append((sender, chunk[0] & _LOW, chunk[1], _read(chunk)))
        self._taken[sender] = taken

    def confirm(self) -> None:
        """Free the room of the chunks that were taken. Call it after this worker has published that it is at work on
        them: whoever asks whether anything is under way must see them here or there."""
        self._tails[:] = array("Q", self._taken)

    def pass_over(self) -> list[int]:
        """Give up every chunk that was not whole at the last call and still is not, and all behind it; returns the
        senders. Their trees time out. Call it after `take`, once per message timeout."""
        heads = self._heads.tolist()
        torn = {sender: taken for sender, taken in enumerate(self._taken) if taken != heads[sender]}
        given_up = [sender for sender, taken in torn.items() if self._torn.get(sender) == taken]
        for sender in given_up:
            self._taken[sender] = heads[sender]
        self._torn = torn
        return given_up


def _add_masks(chunk: array[int], masks: Mapping[int, int]) -> None:
    width = -(-max(masks.values()).bit_length() // 64) or 1
    chunk[_HEAD_WORDS - 1] |= width << 48 | len(masks) << 24
    chunk.extend(masks)
    for mask in masks.values():
        chunk.frombytes(mask.to_bytes(8 * width, "little"))


def _add_block(chunk: array[int], base: int, acks: BlockAcks) -> None:
    chunk.extend((len(acks.masks) << 24 | acks.members, base))
    chunk.frombytes(acks.xors.to_bytes(8 * acks.members, "little"))
    for bit, flags in acks.masks.items():
        chunk.append(bit.bit_length() - 1)
        chunk.frombytes(flags.to_bytes(8 * _flag_words(acks.members), "little"))


def _flag_words(members: int) -> int:
    return -(-members // 8)


def _number(words: array[int]) -> int:
    return int.from_bytes(words.tobytes(), "little")


def _read(chunk: array[int]) -> Acks:
    counts = chunk[_HEAD_WORDS - 1]
    count, masks, width = counts & _COUNT, counts >> 24 & _COUNT, counts >> 48
    xors_at = _HEAD_WORDS + count
    marked_at = xors_at + count
    masks_at = marked_at + masks
    blocks_at = masks_at + masks * width
    acks = Acks(dict(zip(chunk[_HEAD_WORDS:xors_at], chunk[xors_at:marked_at], strict=True)))
    for number, root in enumerate(chunk[marked_at:masks_at]):
        at = masks_at + number * width
        acks.masks[root] = _number(chunk[at : at + width])
    while blocks_at < len(chunk):
        blocks_at = _read_block(chunk, blocks_at, acks.blocks)
    return acks


def _read_block(chunk: array[int], at: int, blocks: dict[int, BlockAcks]) -> int:
    """Read the block at this place; returns where the next begins."""
    counts, base = chunk[at : at + 2]
    members, masks = counts & _COUNT, counts >> 24
    masks_at, width = at + 2 + members, 1 + _flag_words(members)
    end = masks_at + masks * width
    blocks[base] = BlockAcks(members, _number(chunk[at + 2 : masks_at]), {
        1 << chunk[begin]: _number(chunk[begin + 1 : begin + width]) for begin in range(masks_at, end, width)
    })
    return end
