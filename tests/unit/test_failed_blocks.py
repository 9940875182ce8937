"""Messages of a block that fail together, by a death: what becomes of each is what becomes of one that was emitted
alone, also in the journal; what is not touched stays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from squall.engine.api.columns import Columns
from squall.engine.api.failure import ANOTHER_TUPLE, EXCEPTION, FAILED, TIMEOUT, WORKER_DIED, Failure
from squall.engine.flow.ids import ACKER_BITS, ALONE, Block
from squall.engine.flow.spout_collector import Routed
from squall.engine.foreign.identity import are_keys, key_of
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.attempts import Changes, Limits
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import OpenMessages, Ports
from squall.scheduler.records.attempt_journal import AttemptJournal
from tests.unit.batch_rig import BatchFeeder, DoesBatch, nothing
from tests.unit.rig import Rig, chain

DIED = Failure(WORKER_DIED, worker="node-1:6701")
BYSTANDER = Failure(WORKER_DIED, worker="node-1:6701", error=ANOTHER_TUPLE)
REFUSED = Failure(FAILED, "bolt", 3, error="no")
AMONG = Failure(EXCEPTION, "bolt", 3, error="ValueError: no", among=4)
LATE = Failure(TIMEOUT)
NOTHING = Changes([], [], {}, ())
HERE, THERE = 1, 2
"""Bits of workers."""
BLOCK = Block(7 << ACKER_BITS, 6)


class ListId(list):  # type: ignore[type-arg]
    """An id that cannot be hashed: it is recognised by its content."""


# ---- messages ----


class Lives:
    """The incarnations of one spout task, whose trees are entered in blocks or one by one."""

    def __init__(self, file: Path, in_blocks: bool, limits: Limits) -> None:
        self.file = file
        self.in_blocks = in_blocks
        self.limits = limits
        self.given_up: list[Any] = []
        self.noted: list[Any] = []
        self.root = 1
        self.complaints: list[str] = []
        self.journal: AttemptJournal | None = None
        self.begin()

    def begin(self) -> None:
        """The next incarnation: the one before has died without a word, or it is the first."""
        before, self.now_ns = self.journal, 0
        self.stats = SpoutStats()
        self.journal = AttemptJournal(self.file, "t-1", self.complaints.append)
        self.messages = OpenMessages(
            7, self.stats, 10**18, Fate(self.limits), Ports(
                lambda: self.now_ns, lambda *init: None, lambda root: 0, lambda *letter: self.given_up.append(letter),
                lambda ids, failure: self.noted.extend((repr(each), failure) for each in ids),
                (lambda *block: None) if self.in_blocks else None, journal=self.journal,
            ),
        )
        self.messages.resume("node-1:6700")
        if before is not None:
            before.end()  # what it says now is in no file any more
        self.blocks: list[Block] = []

    def emit(self, ids: Sequence[Any], stream: str) -> None:
        """What a collector does with a batch."""
        messages = self.messages
        rows = [(f"value of {each}",) for each in ids]
        values = rows if stream == "default" else [Routed.on(stream, None, row) for row in rows]
        held_back = messages.attempts.held_back
        going = [number for number, each in enumerate(ids) if key_of(each, values[number]) not in held_back]
        for number in sorted(set(range(len(ids))) - set(going)):
            messages.hold(ids[number], values[number])
        if not going:
            return
        block = Block(self.root << ACKER_BITS, len(going))
        self.root += len(going)
        self.blocks.append(block)
        if self.in_blocks:
            assert messages.add_block is not None
            columns = Columns.of([rows[number] for number in going])
            messages.add_block(block, [ids[number] for number in going], columns, stream, 1, {}, self.now_ns)
            return
        for root, number in zip(block.roots(range(len(going))), going, strict=True):
            messages.add(root, ids[number], values[number], 1, 0)

    def ack(self, block: Block, members: Sequence[int]) -> None:
        self.messages.acked(block.base, members)

    def fail(self, block: Block, members: Sequence[int], failure: Failure) -> None:
        self.messages.failed(block.base, failure, members)

    def release(self) -> None:
        self.messages.let_go(self._send)

    def _send(self, message_id: Any, values: Any) -> int:
        root, self.root = self.root << ACKER_BITS, self.root + 1
        self.blocks.append(Block(root, 1))
        self.messages.add(root, message_id, values, 1, 0)
        return root

    def take(self) -> tuple[list[Any], list[tuple[Any, Failure]]]:
        """What the spout is told."""
        answers = self.messages.take_answers()
        return answers.acked, answers.failed

    @property
    def state(self) -> Any:
        attempts = self.messages.attempts
        return (
            dict(attempts.tries), set(attempts.held_back), attempts.failed_here, attempts.crashes, attempts.alert,
            list(self.stats.account), self.messages.replays, len(self.messages), self.given_up, self.noted,
            attempts.group, self.root, self.complaints,
        )

    @property
    def written(self) -> Any:
        left = AttemptJournal(self.file, "t-1", self.complaints.append).load()
        return left.tries, left.under_way, left.group, left.unclean


def ids_of(rng: random.Random, kind: str, count: int) -> list[Any]:
    numbers = rng.sample(range(60), count)
    return [(number, "x") if kind == "tuple" else ListId([number]) if kind == "list" else number for number in numbers]


@pytest.mark.parametrize("kind", ["number", "tuple", "list"])
@pytest.mark.parametrize("case", range(12))
def test_in_blocks_and_alone_the_same_becomes_of_every_message(
    tmp_path: Path, seed: int, kind: str, case: int
) -> None:
    rng = random.Random(f"{seed} {kind} {case}")
    limits = Limits(rng.choice((None, 1, 3)), rng.choice((None, 2, 4)), rng.random() < 0.5)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    both = [Lives(tmp_path / "a" / "j", True, limits), Lives(tmp_path / "b" / "j", False, limits)]
    for _ in range(250):
        do = rng.random()
        blocks = both[0].blocks
        block = rng.choice(blocks) if blocks else None
        members = sorted(rng.sample(range(block.members), rng.randint(1, block.members))) if block else []
        if block and rng.random() < 0.5:
            members = list(range(block.members))
        if do < 0.3 or block is None:
            ids, stream = ids_of(rng, kind, rng.randint(1, 12)), rng.choice(("default", "other"))
            step = partial(Lives.emit, ids=ids, stream=stream)
        elif do < 0.55:
            step = partial(Lives.ack, block=block, members=members)
        elif do < 0.75:
            failure = rng.choice((DIED, DIED, BYSTANDER, REFUSED, AMONG, LATE))
            step = partial(Lives.fail, block=block, members=members, failure=failure)
        elif do < 0.85:
            alone = Block(block.roots([rng.choice(members)])[0], 1)
            step = partial(Lives.fail, block=alone, members=ALONE, failure=rng.choice((DIED, REFUSED)))
        elif do < 0.97:
            step = Lives.release
        else:
            step = Lives.begin
        for lives in both:
            step(lives)
            if step is not Lives.begin:
                lives.messages.write_journal()
        assert both[0].take() == both[1].take()
        assert both[0].state == both[1].state
        if rng.random() < 0.05:
            assert both[0].written == both[1].written
    for lives in both:
        lives.messages.end()
    assert both[0].root > 100


def test_only_ids_of_plain_kinds_are_their_own_keys() -> None:
    assert are_keys(range(3))
    assert are_keys([1, "a", b"b", None])
    assert not are_keys([1, [2]])
    assert not are_keys([1.5])


@pytest.mark.parametrize("first", [DIED, REFUSED])
def test_batches_are_entered_in_blocks_and_answered_with_messages_whose_time_was_reset(first: Failure) -> None:
    rig = Rig(chain(BatchFeeder(), DoesBatch(nothing)))
    spout: BatchFeeder = rig.user("spout")
    task = rig.spout_task
    for replays in (0, 6):
        spout.collector.emit_batch((list("abcdef"),), message_ids=list(range(6)))
        assert (len(task.pending), task.pending.trees, task.pending.replays) == (6, {}, replays)
        [opened] = task.pending.table.blocks
        for root in opened.block.roots([1, 4]):
            task.pending.reset(root)
        if not replays:
            task.pending.failed(opened.block.base, first, range(6))
            task.tell()
    rig.settle()
    assert sorted(spout.all_acked) == list(range(6))
    assert not task.pending.attempts.tries


# ---- the journal ----


def test_a_block_with_an_id_that_cannot_be_pickled_keeps_the_others(tmp_path: Path) -> None:
    roots = BLOCK.roots(range(6))
    journal = AttemptJournal(tmp_path / "j", "t-1", lambda text: None)
    for changes in (
        NOTHING, Changes([(BLOCK.base, ["a", "b", lambda: 0, "d", "e", "f"])], [], {}, ()),
        Changes([], [(BLOCK.base, [0, 1, 2])], {}, ()),
    ):
        journal.append(changes, lambda: NOTHING)
    assert journal.load().under_way == {roots[3]: "d", roots[4]: "e", roots[5]: "f"}
    journal.end()
