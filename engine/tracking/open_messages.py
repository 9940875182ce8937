"""The open messages of one spout task: under way, or held back until they may be.

Guarantees
    * Each tree is answered once: the first event (ack, failure, timeout) removes it from the pending table, later ones
      find nothing. An attempt has a root of its own, so an answer to an earlier one cannot touch it.
    * Instructions of `engine.tracking.fate` are carried out in order: a message that has failed too often goes to the
      ledger, and the spout is told, once.
    * Every answer is in the account before the spout hears of it.

Decides nothing. Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any

from squall.engine.api.component import Spout
from squall.engine.api.failure import FAILED as REFUSED
from squall.engine.api.failure import WORKER_DIED, Failure
from squall.engine.errors import ComponentError
from squall.engine.flow.blocks import Block, Flags
from squall.engine.flow.collectors import AddBlock
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.text import message_of
from squall.engine.report.account import ACKED, DEAD_LETTERS, FAILED
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.attempts import Changes, Journal
from squall.engine.tracking.batch_answers import BatchAnswers
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.instruction import (
    BeginTrial,
    Bury,
    Close,
    EndTrial,
    Held,
    Hold,
    Instruction,
    LeaveTrials,
    Letter,
    LookRound,
    Note,
    Refuse,
    Release,
    Replay,
    Steps,
    TellDead,
)
from squall.engine.tracking.open_blocks import OpenBlock
from squall.engine.tracking.pending import PendingTable
from squall.engine.tracking.quarantine import OwnPermit, TrialPermit

Init = Callable[[int, int, int, int], None]
"""(root, xor, spout task, mask) -> None: tells the acker of a new tree."""
InitBlock = Callable[[Block, int, int, dict[int, Flags]], None]
"""(block, XOR of each tree's first edges, spout task, masks) -> None: the same for the trees of a block."""
Send = Callable[[Any, Any], int]
"""(message id, values) -> root: emits a held message."""


class OpenMessages:
    """Carries out the instructions of a spout task's `Fate`."""

    __slots__ = (
        "_account", "_acked", "_init", "_journal", "_stats", "_task", "attempts", "emitted_again", "fate", "forget",
        "give_up", "init_block", "note", "now_ns", "permit", "spout", "table", "trees",
    )

    def __init__(
        self, task: int, spout: Spout, now_ns: Callable[[], int], timeout_ns: int, stats: SpoutStats, init: Init,
        forget: Callable[[int], int], give_up: Callable[[Any, Any, Failure], None],
        fate: Fate | None = None, permit: TrialPermit | None = None, journal: Journal | None = None,
        note: Callable[[Sequence[Any], Failure], None] = lambda message_ids, failure: None,
    ) -> None:
        self._task = task
        self.spout = spout
        """Told of answers: the user's object, or a wrapper around it (see `engine.core.watching`)."""
        self.init_block: InitBlock | None = None
        """Tells the acker of a new block; None: trees must not be entered in blocks."""
        self.now_ns = now_ns
        self._stats = stats
        self._account = stats.account
        self._acked = stats.account[ACKED]
        """The last value written there: reading it back costs more than everything else about an ack."""
        self.emitted_again = 0
        """Attempts that the engine began, not the spout: of dead letters that were given back."""
        self._init = init
        self.forget = forget
        """root -> mask of the workers that hold a part of the tree, -1 if unknown here; gives the tree up."""
        self.give_up = give_up
        """Called with (message id, values, failure) of each new dead letter."""
        self.fate = Fate() if fate is None else fate
        self.attempts = self.fate.attempts
        self.permit: TrialPermit = OwnPermit() if permit is None else permit
        self._journal = journal
        self.note = note
        """Called with (message ids, failure) of each failure."""
        self.table = PendingTable(timeout_ns)
        self.trees = self.table.trees
        """The table's dictionary itself."""

    def __len__(self) -> int:
        """Messages that wait for an answer, or to be emitted."""
        quarantine = self.fate.quarantine
        return len(self.trees) + self.table.blocks.count + len(quarantine.held) + len(quarantine.waiting)

    def has(self, root: int) -> bool:
        """Whether a tree is open."""
        return root in self.trees or root in self.table.blocks

    # ---- emits ----

    def add(self, root: int, message_id: Any, values: Any, xor: int, mask: int) -> None:
        """Enter an emitted tree: `xor` of its first edges, sent to the workers of `mask`."""
        now = self.now_ns()
        self.trees[root] = (message_id, now, now, values)
        if self.attempts.alert and self.fate.emitted(root, message_id, values):
            self._stats.replayed += 1
        self._init(root, xor, self._task, mask)

    @property
    def add_block(self) -> AddBlock | None:
        """Enters the trees of a block, as `add` does that of one emit. None unless their acker is in this worker."""
        return None if self.init_block is None else self._add_block

    def _add_block(
        self, block: Block, ids: Sequence[Any], rows: Sequence[Any], stream: str, xors: int, masks: dict[int, Flags],
        since_ns: int,
    ) -> None:
        opened = OpenBlock(block, ids, rows, stream, since_ns)
        self.table.blocks.add(opened)
        if self.attempts.alert:
            self._stats.replayed += self.fate.emitted_block(opened)
        if self.init_block is not None:
            self.init_block(block, xors, self._task, masks)

    def hold(self, message_id: Any, values: Any) -> None:
        """Hold a message that the spout emitted and that must not go out at once."""
        self.fate.hold(message_id, values)

    def bury(self, message_id: Any, values: Any, failure: Failure) -> None:
        """Make a message a dead letter that the spout gives up instead of emitting it."""
        self._carry_out(self.fate.given_up(message_id, values, failure))

    def give_back(self, letter: Letter) -> None:
        """Take back a dead letter, to emit it again as if it had never failed."""
        self.emitted_again += 1
        self.fate.given_back(letter)

    def answer_untracked(self, message_id: Any) -> None:
        """No ackers: acked as it is emitted (Storm's rule), and not counted."""
        self.spout.ack(message_id)

    # ---- answers ----

    def acked(self, root: int) -> None:
        """Ack the message of a processed tree."""
        tree = self.trees.pop(root, None)
        if tree is None:
            tree = self.table.pop(root)
            if tree is None:
                return
        message_id, emitted_ns, _, values = tree
        # Before the spout hears of it: an ack that it makes durable must not be missing in the account after a death.
        self._acked = acked = self._acked + 1
        self._account[ACKED] = acked
        self._stats.observe_ns(self.now_ns() - emitted_ns)
        if self.attempts.alert and (steps := self.fate.acked(root, message_id, values, self.now_ns())):
            self._carry_out_all(steps)
            if isinstance(steps[-1], Close):
                return
        try:
            self.spout.ack(message_id)
        except BaseException:
            self.not_taken(1)
            raise

    def acked_block(self, base: int, members: Sequence[int]) -> None:
        """Ack the messages of processed trees of one block."""
        opened = self.table.blocks.get(base)
        if opened is None:
            return
        members = opened.open_of(members)
        ids = self.table.blocks.take(opened, members)
        self._acked += len(ids)
        self._account[ACKED] = self._acked
        self._stats.observe_ns(self.now_ns() - opened.emitted_ns, len(ids))
        if self.attempts.alert:
            self.fate.acked_block(opened, members)
        if isinstance(self.spout, BatchAnswers):
            self.spout.add_acked(ids)
            return
        ack, told = self.spout.ack, iter(ids)
        try:
            for message_id in told:
                ack(message_id)
        except BaseException:
            self.not_taken(1 + len(list(told)))
            raise

    def not_taken(self, acks: int) -> None:
        """The spout raised and did not take the answers: its successor will emit the messages again. If they counted, a
        spout that raises again and again would seem to make progress."""
        self._acked -= acks
        self._account[ACKED] = self._acked

    def failed(self, root: int, failure: Failure) -> None:
        """Fail a tree: tell the spout, or give the message up if it has failed too often."""
        tree = self.table.pop(root)
        if tree is not None:
            self._carry_out(self.fate.failed(root, tree[0], tree[3], failure, self.now_ns()))

    def failed_block(self, base: int, members: Sequence[int], failure: Failure) -> None:
        """Fail trees of one block together."""
        opened = self.table.blocks.get(base)
        if opened is None:
            return
        members = opened.open_of(members)
        told = self.fate.failed_block(opened, members, failure) if isinstance(self.spout, BatchAnswers) else None
        if told is None or not isinstance(self.spout, BatchAnswers):
            for root in opened.block.roots(members):
                self.failed(root, failure)
            return
        ids = self.table.blocks.take(opened, members)
        self.note(ids, told)
        self._account[FAILED] += len(ids)
        self.spout.add_failed(ids, told)

    def charge(self, root: int, failure: Failure) -> None:
        """Charge an error in this tree, by which the worker is about to end."""
        tree = self.table.pop(root)
        if tree is not None:
            self._account[FAILED] += 1
            self._carry_out_all(self.fate.charged(root, tree[0], tree[3], failure, self.now_ns()))
        else:
            self.charge_late(root, failure)

    def charge_late(self, root: int, failure: Failure) -> None:
        """Charge an error in this tree, which may have timed out, by which a worker has ended."""
        self._carry_out_all(self.fate.charged_late(root, failure))

    def worker_died(self, dead: int, failure: Failure, held: Collection[int]) -> None:
        """Count the death of a worker, by its bit, without a word; `held`: roots of trees that it held and that are
        about to fail by its death."""
        trees = chain(self.trees.items(), self.table.blocks)
        self.fate.worker_died(dead, failure, (key_of(tree[0], tree[3]) for root, tree in trees if root in held))

    def acker_died(self, is_its: Callable[[int], bool], failure: Failure | None = None) -> None:
        """Fail every tree whose acker is gone; `is_its(root)` says which."""
        for root in [root for root in self.trees if is_its(root)]:
            self.failed(root, failure or Failure(WORKER_DIED))

    def unreplayed(self, waiting: int) -> int:
        """Count messages that failed, and that the spout, which holds `waiting` for a retry, did not emit again. 0
        while any message is open: until then it may still do so."""
        return 0 if self else max(0, self.attempts.failed_here - waiting)

    # ---- time ----

    def reset(self, root: int) -> None:
        """Count the tree's timeout from now."""
        self.table.reset(root, self.now_ns())

    @property
    def next_deadline_ns(self) -> int | None:
        """When the earliest tree times out."""
        return self.table.next_deadline_ns

    def expire(self) -> int:
        """Fail every overdue tree; how many there were."""
        now = self.now_ns()
        overdue = self.table.overdue(now)
        for root in overdue:
            self._stats.timed_out += 1
            tree = self.table.pop(root)
            if tree is not None:
                self._carry_out(self.fate.expired(root, tree[0], tree[3], self.forget(root), now))
        return len(overdue)

    def let_go(self, send: Send) -> bool:
        """Emit held messages that may go; whether a message went out, or to the ledger."""
        steps, answer, moved = self.fate.time(self.now_ns()), None, False
        while (step := _next(steps, answer)) is not None:
            moved = moved or isinstance(step, Release | Bury | Refuse)
            answer = self._release(step.held, send) if isinstance(step, Release) else self._do(step)
        return moved

    # ---- the journal ----

    def resume(self, worker: str) -> None:
        """Take over the counts of the task's earlier incarnation, before anything is emitted."""
        if self._journal is not None:
            everything = self.attempts.resume(self._journal.load(), worker)
            self._journal.append(everything, lambda: everything)

    def write_journal(self) -> None:
        """Write down the changes since the last time, before emits can do harm. Once a turn."""
        changes = self.attempts.take_changes()
        if changes is not None and self._journal is not None:
            self._journal.append(changes, self._everything)

    def _everything(self) -> Changes:
        return self.attempts.snapshot(self.trees, self.table.blocks.blocks())

    def end(self) -> None:
        """End the journal of an incarnation that ends in order, or by an error that has been charged to its message."""
        self.write_journal()
        if self._journal is not None:
            self._journal.end()

    # ---- carrying out ----

    def _carry_out(self, steps: Steps) -> None:
        answer = None
        while (step := _next(steps, answer)) is not None:
            answer = self._do(step)

    def _carry_out_all(self, steps: Collection[Instruction]) -> None:
        for step in steps:
            self._do(step)

    def _do(self, step: Instruction) -> bool | None:
        """Carry an instruction out; the answer, if it wants one."""
        match step:
            case Note(message_id, failure):
                self.note((message_id,), failure)
            case Replay(message_id, failure):
                self._account[FAILED] += 1
                self.spout.on_failure(message_id, failure)
            case Bury(message_id, values, failure):
                self.give_up(message_id, values, failure)
                self._account[DEAD_LETTERS] += 1
            case TellDead(message_id, failure):
                self.spout.on_dead_letter(message_id, failure)
            case Refuse(message_id, failure):
                self._account[FAILED] += 1
                self.spout.on_dead_letter(message_id, failure)
            case Hold():
                self._account[FAILED] += 1
                self.emitted_again += 1
            case Close(letter):
                letter.closed()
            case _:
                return self._take_permit(step)
        return None

    def _take_permit(self, step: Instruction) -> bool | None:
        """Carry out an instruction about the permit to try suspects."""
        match step:
            case BeginTrial():
                return self.permit.begin()
            case LookRound(since_ns):
                return self.permit.turned_since(since_ns)
            case EndTrial():
                self.permit.end()
            case LeaveTrials():
                self.permit.leave()
        return None

    @staticmethod
    def _release(held: Held, send: Send) -> int | Failure:
        """Emit a held message."""
        try:
            return send(held.message_id, held.values)
        except ComponentError as error:
            if held.letter is None:
                raise
            # The topology has changed since the letter was written: its stream or fields are gone.
            return Failure(REFUSED, error=message_of(error))


def _next(steps: Steps, answer: bool | int | Failure | None) -> Instruction | None:
    """Get the next instruction, None after the last one. Exceptions of users' code never pass through here, so their
    StopIteration is not taken for the end."""
    try:
        return steps.send(answer)
    except StopIteration:
        return None
