"""The open messages of one spout task: under way, or held back until they may be; and answers it has not heard.

Guarantees
    * Each tree is answered once: the first event (ack, failure, timeout) removes it from the pending table, later ones
      find nothing. An attempt has a root of its own, so an answer to an earlier one cannot touch it.
    * Each failed attempt ends in one way: the spout hears of it and may emit the message again; a letter that was given
      back is kept and goes out again; a message that has failed too often goes to the ledger, and then the spout is
      told, once. It counts as buried when the ledger has it, not before.
    * Every answer is in the account before the spout hears of it: `take_answers` takes those of many messages.

Relies on: `let_go` being called on every turn while `fate.is_busy`.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall.engine.api.failure import FAILED as REFUSED
from squall.engine.api.failure import TIMEOUT, WORKER_DIED, Failure
from squall.engine.errors import ComponentError
from squall.engine.flow.ids import ACKER_BITS, ALONE, Block
from squall.engine.flow.member_columns import Flags, Words
from squall.engine.flow.spout_collector import AddBlock
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.text import message_of, plural
from squall.engine.report.metrics import ACCOUNT_COLUMNS, ACKED, DEAD_LETTERS, FAILED, SpoutStats, unanswered
from squall.engine.tracking.attempts import Changes, Journal
from squall.engine.tracking.doubt import MOST
from squall.engine.tracking.fate import Fate, Held, Letter, TrialPermit
from squall.engine.tracking.pending_table import OpenBlock, PendingTable

Init = Callable[[int, int, int, int], None]
"""(root, xor, spout task, mask) -> None: tells the acker of a new tree."""
InitBlock = Callable[[Block, Words, int, dict[int, Flags]], None]
"""(block, XOR of each tree's first edges, spout task, masks) -> None: the same for the trees of a block."""
Send = Callable[[Any, Any], int]
"""(message id, values) -> root: emits a held message."""
_DOUBTFUL = 2 * MOST
"""Most messages in doubt that are looked at in a turn."""


class Answers:
    """Answers that a spout has not heard."""

    __slots__ = ("acked", "dead", "failed")

    def __init__(self) -> None:
        self.acked: list[Any] = []
        """Message ids."""
        self.failed: list[tuple[Any, Failure]] = []
        self.dead: list[tuple[Any, Failure]] = []

    def __bool__(self) -> bool:
        return bool(self.acked or self.failed or self.dead)


@dataclass
class Ports:
    """The outside of a task's open messages: its clock, its acker, the ledger, the operator."""

    now_ns: Callable[[], int]
    init: Init
    forget: Callable[[int], int]
    """root -> mask of the workers that hold a part of the tree, -1 if unknown here; gives the tree up."""
    give_up: Callable[[Any, Any, Failure], None]
    """Called with (message id, values, failure) of each new dead letter."""
    note: Callable[[Sequence[Any], Failure], None] = lambda message_ids, failure: None
    """Called with (message ids, failure) of each failure."""
    init_block: InitBlock | None = None
    """Tells the acker of a new block; None: trees must not be entered in blocks."""
    tell_stop: Callable[[str], None] = print
    """Called when this spout task finds a fault of the set-up: no spout of the topology may emit any more."""
    permit: TrialPermit = field(default_factory=TrialPermit)
    journal: Journal | None = None


class OpenMessages:
    """Enters the trees of a spout task, and collects their answers for the spout."""

    __slots__ = (
        "_account", "_acked", "_init", "_letting_out", "_stats", "_task", "answer_untracked", "answers", "attempts",
        "emitted_again", "fate", "may_emit_more", "now_ns", "ports", "replays", "stopped", "table", "trees",
    )

    def __init__(self, task: int, stats: SpoutStats, timeout_ns: int, fate: Fate, ports: Ports) -> None:
        self._task = task
        self.answers = Answers()
        self.answer_untracked: Callable[[Any], None] = self._collect_untracked
        """Acks a message that is emitted without ackers. It is not counted."""
        self.ports = ports
        self.now_ns = ports.now_ns
        self._stats = stats
        self._account = stats.account
        self._acked = stats.account[ACKED]
        """The last value written there: reading it back costs more than everything else about an ack."""
        self.emitted_again = 0
        """Attempts that the engine began, not the spout: of dead letters that were given back."""
        self.replays = 0
        """Attempts beyond the first of their messages."""
        self._letting_out = False
        """True while a held message goes out, which was counted when the spout emitted it."""
        self._init = ports.init
        self.fate = fate
        self.attempts = fate.attempts
        self.attempts.owe(unanswered(dict(zip(ACCOUNT_COLUMNS, stats.account, strict=True))))
        self.may_emit_more = False
        """True if the spout may have had more in the last turn."""
        self.stopped = False
        """True if the run has stopped at a fault of the set-up (`engine.tracking.doubt`)."""
        self.table = PendingTable(timeout_ns)
        self.trees = self.table.trees
        """The table's dictionary itself."""

    def __len__(self) -> int:
        """Messages that wait for an answer, or to be emitted."""
        return len(self.table) + len(self.fate.held) + len(self.fate.waiting)

    def has(self, root: int) -> bool:
        """Return True if a tree is open."""
        return self.table.tree(root) is not None

    def message_of(self, root: int) -> tuple[Any, Any] | None:
        """(message id, values) of a tree; None if it is not open."""
        tree = self.table.tree(root)
        return None if tree is None else (tree[0], tree[3])

    # ---- emits ----

    def add(self, root: int, message_id: Any, values: Any, xor: int, mask: int) -> None:
        """Enter an emitted tree: `xor` of its first edges, sent to the workers of `mask`."""
        now = self.now_ns()
        self.trees[root] = (message_id, now, now, values)
        if self.attempts.alert:
            again = self.attempts.emitted(root, (key_of(message_id, values),))
            self.replays += 0 if self._letting_out else again
        self._init(root, xor, self._task, mask)

    @property
    def add_block(self) -> AddBlock | None:
        """Enters the trees of a block, as `add` does that of one emit. None unless their acker is in this worker."""
        return None if self.ports.init_block is None else self._add_block

    def _add_block(
        self, block: Block, ids: Sequence[Any], rows: Sequence[Any], stream: str, xors: Words, masks: dict[int, Flags],
        since_ns: int,
    ) -> None:
        opened = OpenBlock(block, ids, rows, stream, since_ns)
        self.table.add_block(opened)
        if self.attempts.alert:
            self.replays += self.attempts.emitted(block.base, opened.keys)
        if self.ports.init_block is not None:
            self.ports.init_block(block, xors, self._task, masks)

    def hold(self, message_id: Any, values: Any) -> None:
        """Hold a message that the spout emitted and that must not go out at once (`Attempts.held_back`)."""
        key = key_of(message_id, values)
        self.replays += 1 if self.attempts.is_buried(key, values) else self.attempts.again([key])
        self.fate.held.append(Held(message_id, values))

    def bury(self, message_id: Any, values: Any, failure: Failure) -> None:
        """Make a message a dead letter that the spout gives up instead of emitting it. One that is in the ledger
        already, of which an earlier incarnation was told, is not written there again."""
        key = key_of(message_id, values)
        if self.attempts.is_buried(key, values):
            self.replays += 1
            self._refuse(message_id, key)
            return
        self.replays += self.attempts.again([key])
        failure = self.attempts.failed(key, failure)
        self.ports.note((message_id,), failure)
        self._bury(message_id, values, failure, None)

    def give_back(self, letter: Letter) -> None:
        """Take back a dead letter, to emit it again as if it had never failed."""
        self.emitted_again += 1
        self.fate.given_back(letter)

    def _collect_untracked(self, message_id: Any) -> None:
        self.answers.acked.append(message_id)

    # ---- answers ----

    def acked(self, base: int, members: Sequence[int] = ALONE) -> None:
        """Ack the messages of processed trees of one block."""
        opened = None if members is ALONE else self.table.blocks.get(base)
        if opened is not None:
            together = opened.open_of(members)
            ids = self.table.take(opened, together)
            self._count_acks(opened.emitted_ns, len(ids))
            if self.attempts.alert:
                self.attempts.acked(opened.keys_of(together), opened.emitted_ns)
                self.attempts.answered(base, together)
            self.answers.acked += ids
            if len(together) == len(members):
                return
        for member in members:  # also those that have left their block, because their time was reset
            self._acked_alone(base + (member << ACKER_BITS))

    def _acked_alone(self, root: int) -> None:
        tree = self.table.pop(root)
        if tree is None:
            return
        message_id, emitted_ns, _, values = tree
        self._count_acks(emitted_ns, 1)
        if self.attempts.alert:
            self.attempts.acked([key_of(message_id, values)], emitted_ns)
            letter = self.fate.answered(root)
            if letter is not None:
                self._close(letter)
                return
        self.answers.acked.append(message_id)

    def _count_acks(self, emitted_ns: int, messages: int) -> None:
        """Count acks before the spout hears of them: what it makes durable by one must not be missing in the account
        after a death."""
        self._acked += messages
        self._account[ACKED] = self._acked
        self._stats.observe_ns(self.now_ns() - emitted_ns, messages)

    def take_answers(self) -> Answers:
        """Take the answers that the spout has not heard."""
        answers, self.answers = self.answers, Answers()
        return answers

    def not_taken(self, acks: int) -> None:
        """The spout raised and did not take the answers: its successor will emit the messages again. If they counted, a
        spout that raises again and again would seem to make progress."""
        self._acked = max(0, self._acked - acks)  # without ackers, none was counted
        self._account[ACKED] = self._acked

    def failed(self, base: int, failure: Failure, members: Sequence[int] = ALONE) -> None:
        """Fail trees of one block: tell the spout, or give each message up that has failed too often."""
        opened = None if members is ALONE else self.table.blocks.get(base)
        if opened is not None:
            together = opened.open_of(members)
            told = self.attempts.failed_together(opened.keys_of(together), failure)
            if told is not None:
                self.attempts.answered(base, together)
                ids = self.table.take(opened, together)
                self.ports.note(ids, told)
                self._account[FAILED] += len(ids)
                self.answers.failed += [(message_id, told) for message_id in ids]
                if len(together) == len(members):
                    return
        for member in members:
            root = base + (member << ACKER_BITS)
            tree = self.table.pop(root)
            if tree is not None:
                self._failed(root, tree[0], tree[3], failure)

    def _failed(self, root: int, message_id: Any, values: Any, failure: Failure) -> None:
        key = key_of(message_id, values)
        failure, letter = self.fate.failed(root, key, failure)
        self.ports.note((message_id,), failure)
        self.attempts.doubt.count_acks()
        if self.attempts.condemned(key):
            if self.attempts.doubt.causes:
                # It is buried, or not, when it is known whether others get through.
                self.fate.held.append(Held(message_id, values, letter))
                return
            shown = failure if failure.accuses else self.attempts.last_failure(key)
            self._bury(message_id, values, shown.as_attempt(failure.attempt), letter)
            return
        self._account[FAILED] += 1
        if letter is not None:
            self.fate.wait(letter, failure.attempt, self.now_ns())
            self.emitted_again += 1
            self.replays += 1
        else:
            self.answers.failed.append((message_id, failure))

    def _bury(self, message_id: Any, values: Any, failure: Failure, letter: Letter | None) -> None:
        """Bury a message over the limit."""
        self.ports.give_up(message_id, values, failure)
        self._account[DEAD_LETTERS] += 1
        # Only now the ledger has it. A worker killed in between tries the message once more, and buries it again.
        key = key_of(message_id, values)
        self.attempts.buried(key, values)
        if letter is not None:
            self._close(letter)
        else:
            self.attempts.told_dead(key)
            self.answers.dead.append((message_id, failure))

    def _refuse(self, message_id: Any, key: Hashable) -> None:
        """Tell the spout that it has read a message again that is in the ledger. That attempt has failed."""
        self.attempts.told_dead(key)
        self._account[FAILED] += 1
        self.answers.dead.append((message_id, self.attempts.last_failure(key)))

    def _close(self, letter: Letter) -> None:
        """Close the request for a letter; its spout hears nothing of it."""
        self.attempts.letters -= 1
        self.attempts.look()
        letter.closed()

    def charge(self, root: int, failure: Failure) -> None:
        """Charge an error in this tree, by which the worker is about to end. The spout hears nothing of it: its
        successor will emit the message again, or find it condemned."""
        tree = self.table.pop(root)
        if tree is None:
            self.charge_late(root, failure)
            return
        self._account[FAILED] += 1
        failure, _ = self.fate.failed(root, key_of(tree[0], tree[3]), failure)
        self.ports.note((tree[0],), failure)

    def charge_late(self, root: int, failure: Failure) -> None:
        """Charge an error that has ended a worker to the message of this tree, which may have timed out."""
        if (counted := self.fate.ended_late(root, failure)) is not None:
            self.ports.note((counted[0],), counted[1])

    def acker_died(self, is_its: Callable[[int], bool], failure: Failure | None = None) -> None:
        """Fail every tree whose acker is gone; `is_its(root)` says which."""
        for root in [root for root, _ in self.table if is_its(root)]:
            self.failed(root, failure or Failure(WORKER_DIED))

    def unreplayed(self, waiting: int) -> int:
        """Count messages that failed, and that the spout, which holds `waiting` for a retry, did not emit again. 0
        while any message is open: until then it may still do so."""
        return 0 if self else max(0, len(self.attempts.failed_here) - waiting)

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
                self.fate.timed_out(root, tree[0], key_of(tree[0], tree[3]), self.ports.forget(root), now)
                self._failed(root, tree[0], tree[3], Failure(TIMEOUT))
        return len(overdue)

    def let_go(self, send: Send) -> bool:
        """Emit held messages that may go; return True if a message went out, or to the ledger."""
        fate, attempts, group, moved, began = self.fate, self.attempts, dict[int, Hashable](), False, False
        doubtful: list[Held] = []
        fate.take_up(self.now_ns())
        fate.end_trial(self.ports.permit, self._task)
        if fate.held:
            attempts.doubt.count_acks(self.now_ns())
        while fate.held and len(doubtful) < _DOUBTFUL:
            held = fate.held[0]
            key = held.key
            if self._is_in_doubt(key):
                doubtful.append(fate.held.popleft())
                continue
            is_suspect = attempts.strikes(key) > 0 and not attempts.condemned(key)
            if is_suspect:
                if not fate.may_try(key, group):
                    break
                began = began or self.ports.permit.begin(self._task)
                if not began:
                    break
            fate.held.popleft()
            moved = True
            root = self._let_out(held, key, send)
            if root and is_suspect:
                group[root] = key
        others = moved or self.may_emit_more or self.table
        none_left = len(doubtful) == _DOUBTFUL or not fate.held
        fate.held.extendleft(reversed(doubtful))
        if doubtful and none_left and not others:
            moved = self._let_out_doubtful(doubtful, send)
        if group:
            attempts.begin_trial(group)
        elif not attempts.group and not fate.held:
            self.ports.permit.end(self._task)
        return moved

    def _is_in_doubt(self, key: Hashable) -> bool:
        """Return True if others have to show first whether the set-up is at fault."""
        doubt = self.attempts.doubt
        return key in doubt.causes or (bool(doubt.causes) and self.attempts.condemned(key))

    def _let_out_doubtful(self, doubtful: list[Held], send: Send) -> bool:
        """Let out one of the first messages held, which are in doubt, as there is no other to try; one at its limits is
        buried, unless the set-up is at fault. Return True if one went out, or to the ledger."""
        keys = [held.key for held in doubtful]
        index = next((index for index, key in enumerate(keys) if not self.attempts.condemned(key)), None)
        if index is None and self.stops(at_limit=True):
            return False
        index = index or 0
        del self.fate.held[index]
        self._let_out(doubtful[index], keys[index], send)
        return True

    def stops(self, at_limit: bool = False) -> bool:
        """Return True if nothing may be emitted, because of a fault of the set-up; tell of it when it is found.
        `at_limit`: no message can be tried that has not reached its limits."""
        doubt = self.attempts.doubt
        if doubt.causes and not self.stopped and doubt.is_set_up(self._acked > 0, self.now_ns(), at_limit):
            key, cause = next(reversed(doubt.causes.items()))
            last, count = self.attempts.last_failure(key), list(doubt.causes.values()).count(cause)
            least = "at least " if count == MOST else ""
            self.ports.tell_stop(
                f"{last.component} raised {last.error} {last.where}; {least}{plural(count, 'message')} failed like that"
                " and hardly any other got through, so the spouts have been stopped and none of these was given up; "
                "mend it, or set fail_fast=False"
            )
            self.stop(True)
        return self.stopped

    def stop(self, stopped: bool) -> None:
        """Stop at a fault of the set-up, or go on after it. What failed by it begins anew."""
        self.stopped = stopped
        held = (held.key for held in self.fate.held)
        self.attempts.forget([*self.attempts.doubt.causes, *filter(self.attempts.condemned, held)])

    def _let_out(self, held: Held, key: Hashable, send: Send) -> int:
        """Let out a held message; return the root of its tree, 0 if it is not emitted."""
        message_id, values, letter = held
        if self.attempts.is_buried(key, values):
            self._refuse(message_id, key)
            return 0
        if self.attempts.condemned(key):
            self._bury(message_id, values, self.attempts.last_failure(key), letter)
            return 0
        self._letting_out = True
        try:
            root = send(message_id, values)
        except ComponentError as error:
            if letter is None:
                raise
            # The topology has changed since the letter was written: its stream or fields are gone.
            self._bury(message_id, values, Failure(REFUSED, error=message_of(error)), letter)
            return 0
        finally:
            self._letting_out = False
        if letter is not None:
            self.fate.letters[root] = letter
        return root

    # ---- the journal ----

    def resume(self, worker: str) -> None:
        """Take over the counts of the task's earlier incarnation, before anything is emitted."""
        if self.ports.journal is not None:
            everything = self.attempts.resume(self.ports.journal.load(), worker)
            self.ports.journal.append(everything, lambda: everything)

    def write_journal(self) -> None:
        """Write down the changes since the last time, before emits can do harm. Once a turn."""
        changes = self.attempts.take_changes()
        if changes is not None and self.ports.journal is not None:
            self.ports.journal.append(changes, self._everything)

    def _everything(self) -> Changes:
        return self.attempts.snapshot(self.trees, self.table.blocks)

    def end(self) -> None:
        """End the journal of an incarnation that ends in order, or by an error that has been charged to its message."""
        self.write_journal()
        if self.ports.journal is not None:
            self.ports.journal.end()
