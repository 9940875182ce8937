"""The fate of a spout task's messages: decides whether each is replayed, held back, or buried.

Guarantees
    * Each failed attempt leads to one of Replay (the spout hears of it), Hold (a letter that was given back goes out
      again without the spout) and Bury (the message has failed too often: `engine.tracking.attempts`).
    * A suspect goes out only on trial. One group of suspects is under way at a time per worker, and per topology if
      its workers share a permit. All other messages flow on meanwhile.
    * Nothing is held for ever: a trial ends when all of its group have been answered, and, if one of them timed out,
      when its worker is dead, all workers have taken a turn, or `PATIENCE_NS` is over.
    * A message counts as buried when the ledger has it, not before.
    * A letter that was given back is emitted until it is acked or in the ledger again; the spout is not asked to replay
      it, because for the spout it ended as a dead letter.

Relies on: its caller to bring every event, to carry out the instructions in order and send the answers back, and to
call `time` on every turn while anything is held, waits, or is overdue.

Pure: no I/O, no clock. Thread: the worker's loop.

Events and the instructions that they may lead to::

    emitted ─► –                                    expired ─► as failed
    given up ─► Note; Bury; TellDead, or Refuse
    hold, given back ─► –                           charged, charged late ─► Note
    acked ─► EndTrial, LeaveTrials; Close             worker died ─► –
    failed ─► Note; EndTrial, LeaveTrials; then one of Replay, Hold, Bury ─► TellDead or Close
    time ─► LookRound; BeginTrial; of each held message one of Release, Refuse, Bury; EndTrial, LeaveTrials
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any

from squall.engine.api.failure import ANOTHER_TUPLE, TIMEOUT, WORKER_DIED, Failure
from squall.engine.foreign.identity import id_of, key_of
from squall.engine.tracking.attempts import Attempts, Limits, Verdict
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
from squall.engine.tracking.quarantine import PATIENCE_NS, Quarantine

LATE = 1_000_000
"""Most timed-out trees that are remembered because they may hang a worker, until that is killed."""
_NOTHING: tuple[Instruction, ...] = ()


class Fate:
    """Decides for one spout task."""

    __slots__ = ("_late", "attempts", "quarantine")

    def __init__(self, limits: Limits | None = None) -> None:
        self.attempts = Attempts(limits)
        self.quarantine = Quarantine()
        self._late: dict[int, tuple[Any, int]] = {}
        """root -> (message's key, workers that held a part) of trees that timed out: a worker may yet end by one."""

    @property
    def late(self) -> bool:
        """Whether a worker may yet end by a tree that timed out."""
        return bool(self._late)

    # ---- emits ----

    def emitted(self, root: int, message_id: Any, values: Any) -> bool:
        """Note an emitted tree (called while `attempts.alert`); whether it is a replay."""
        return self.attempts.emitted(root, key_of(message_id, values))

    def emitted_block(self, opened: OpenBlock) -> int:
        """The same of the trees of a block; how many are replays."""
        return self.attempts.emitted_block(opened.block.base, opened.keys)

    def hold(self, message_id: Any, values: Any) -> None:
        """Hold a message that the spout emitted and that must not go out at once (`attempts.held_back`)."""
        self.quarantine.hold(Held(message_id, values, None), self.attempts.strikes(key_of(message_id, values)))

    def given_back(self, letter: Letter) -> None:
        """Take back a dead letter, to emit it again as if it had never failed."""
        self.attempts.forget(key_of(letter.message_id, letter.values))
        self.attempts.pin(1)
        self.quarantine.waiting.append(letter)

    def given_up(self, message_id: Any, values: Any, failure: Failure) -> Steps:
        """Decide about a message that its spout gives up instead of emitting it. One that is in the ledger already, of
        which an earlier incarnation was told, is not written there again."""
        key = key_of(message_id, values)
        if self.attempts.verdict(key, values) is Verdict.DEAD:
            yield self._refuse(message_id, key)
            return
        failure = self.attempts.failed(key, failure)
        yield Note(message_id, failure)
        yield from self._bury(message_id, values, failure, None)

    # ---- answers ----

    def acked(self, root: int, message_id: Any, values: Any, now_ns: int) -> tuple[Instruction, ...]:
        """Decide about an acked tree (called while `attempts.alert`). Its spout is told, unless it was a letter."""
        self.attempts.forget(key_of(message_id, values))
        steps = self._answered(root, now_ns)
        letters = self.quarantine.letters
        return (*steps, self._close(letters.pop(root))) if root in letters else steps

    def acked_block(self, opened: OpenBlock, members: Sequence[int]) -> None:
        """Note acked trees of a block (called while `attempts.alert`). Their spout is told: letters and suspects go out
        one by one."""
        self.attempts.forget_all(opened.keys_of(members))
        self.attempts.answered_block(opened.block.base, members)

    def failed_block(self, opened: OpenBlock, members: Sequence[int], failure: Failure) -> Failure | None:
        """Decide about attempts of one block that failed together: the failure to tell the spout of each, which is to
        replay it. None, and nothing is counted, if they are to be decided one by one."""
        told = self.attempts.failed_first(opened.keys_of(members), failure)
        if told is not None:
            self.attempts.answered_block(opened.block.base, members)
        return told

    def failed(self, root: int, message_id: Any, values: Any, failure: Failure, now_ns: int) -> Steps:
        """Decide about a failed attempt."""
        key = key_of(message_id, values)
        failure, letter, steps = self._count(root, key, failure, now_ns)
        for step in steps:  # noqa: UP028 (a tuple's iterator takes no answers)
            yield step
        yield Note(message_id, failure)
        if self.attempts.condemned(key):
            shown = self.attempts.last_failure(key) if failure.error == ANOTHER_TUPLE else failure
            yield from self._bury(message_id, values, shown.as_attempt(failure.attempt), letter)
        elif letter is not None:
            self.quarantine.wait(letter, failure.attempt, now_ns)
            yield Hold(letter)
        else:
            yield Replay(message_id, failure)

    def expired(self, root: int, message_id: Any, values: Any, mask: int, now_ns: int) -> Steps:
        """Decide about an attempt that timed out. `mask`: the workers that hold a part of it, -1 if unknown here."""
        key = key_of(message_id, values)
        self._late[root] = key, mask
        if len(self._late) > LATE:
            for oldest in list(islice(self._late, len(self._late) - LATE * 9 // 10)):
                del self._late[oldest]
        if root in self.attempts.on_trial:
            self.quarantine.somebody_is_late(now_ns)
            self.attempts.overdue(root, key)
        return self.failed(root, message_id, values, Failure(TIMEOUT), now_ns)

    def charged(self, root: int, message_id: Any, values: Any, failure: Failure, now_ns: int) -> list[Instruction]:
        """Count an error in this tree by which the worker is about to end. The spout hears nothing: its successor will
        emit the message again, or find it condemned."""
        failure, _, steps = self._count(root, key_of(message_id, values), failure, now_ns)
        return [*steps, Note(message_id, failure)]

    def charged_late(self, root: int, failure: Failure) -> list[Instruction]:
        """Count an error in this tree by which a worker has ended, if the tree had timed out: its spout was told
        then."""
        if root not in self._late:
            return []
        key, _ = self._late.pop(root)
        charged = self.attempts.charge_late(key, failure)
        return [] if charged is None else [Note(id_of(key), charged)]

    def worker_died(self, dead: int, failure: Failure, about_to_fail: Iterable[Hashable]) -> None:
        """Count the death of a worker, by its bit, without a word. A message that timed out before may have hung it.
        `about_to_fail`: keys of messages that it held and that fail by its death."""
        late = [(root, key) for root, (key, mask) in self._late.items() if mask & dead]
        struck = set(about_to_fail) if late else set()
        # The newest first: of a message that timed out twice, that is the attempt that may have been on trial.
        for root, key in reversed(late):
            del self._late[root]
            if key not in struck:
                struck.add(key)
                self.attempts.died_late(root, key, failure)

    # ---- time ----

    def time(self, now_ns: int) -> Steps:
        """Release held messages that may go."""
        attempts, quarantine = self.attempts, self.quarantine
        quarantine.take_up(now_ns)
        if quarantine.overdue_ns and not attempts.on_trial:
            turned: bool = yield LookRound(quarantine.overdue_ns)
            if turned or now_ns - quarantine.overdue_ns > PATIENCE_NS:
                quarantine.overdue_ns = 0
                attempts.end_overdue(cleared=turned)
                yield from self._end_turn()
        yield from self._release(now_ns)

    def _release(self, now_ns: int) -> Steps:
        attempts, quarantine = self.attempts, self.quarantine
        group: dict[int, Any] = {}
        began, strikes = False, 0
        while quarantine.held:
            head = quarantine.held[0]
            key = key_of(head.message_id, head.values)
            verdict = attempts.verdict(key, head.values)
            if verdict is Verdict.SUSPECT and not began:
                quarantine.asked = True
                if attempts.on_trial or not (yield BeginTrial()):
                    break
                began, strikes = True, attempts.strikes(key)
            elif verdict is Verdict.SUSPECT and attempts.strikes(key) != strikes:
                break
            if len(group) == quarantine.group_size:
                break
            quarantine.held.popleft()
            root = yield from self._let_out(head, key, verdict)
            if root and verdict is Verdict.SUSPECT:
                group[root] = key
        if group:
            quarantine.tried_ns = now_ns
            attempts.begin_trial(group)
        elif began:
            yield EndTrial()
        if not attempts.on_trial and not quarantine.overdue_ns:
            yield from self._leave()

    def _let_out(self, held: Held, key: Hashable, verdict: Verdict) -> Generator[Instruction, Any, int]:
        """Let out a held message; returns the root of its tree, 0 if it is not emitted."""
        message_id, values, letter = held
        if verdict is Verdict.DEAD:
            yield self._refuse(message_id, key)
            return 0
        if verdict is Verdict.CONDEMNED:
            yield from self._bury(message_id, values, self.attempts.last_failure(key), letter)
            return 0
        root: int | Failure = yield Release(held)
        if isinstance(root, Failure):
            yield from self._bury(message_id, values, root, letter)
            return 0
        if letter is not None:
            self.quarantine.letters[root] = letter
        return root

    # ---- parts ----

    def _count(
        self, root: int, key: Hashable, failure: Failure, now_ns: int
    ) -> tuple[Failure, Letter | None, tuple[Instruction, ...]]:
        """Count a failure; returns it with its attempt, its letter if any, and the instructions for the trial."""
        attempts = self.attempts
        alone = attempts.group == (root,)
        if (failure.reason == WORKER_DIED or failure.among > 1) and root in attempts.on_trial:
            self.quarantine.somebody_killed()
        letter, steps = None, _NOTHING
        if attempts.alert:
            steps = self._answered(root, now_ns)
            letter = self.quarantine.letters.pop(root, None)
        return attempts.failed(key, failure, alone), letter, steps

    def _answered(self, root: int, now_ns: int) -> tuple[Instruction, ...]:
        """Note that a tree is no longer under way."""
        attempts = self.attempts
        was_tried = root in attempts.on_trial
        attempts.answered(root)
        if not was_tried or attempts.on_trial:
            return _NOTHING
        self.quarantine.trial_over(now_ns)
        return _NOTHING if self.quarantine.overdue_ns else tuple(self._end_turn())

    def _end_turn(self) -> Steps:
        yield EndTrial()
        yield from self._leave()

    def _leave(self) -> Steps:
        quarantine = self.quarantine
        if quarantine.asked and not quarantine.held:
            quarantine.asked = False
            yield LeaveTrials()

    def _bury(self, message_id: Any, values: Any, failure: Failure, letter: Letter | None) -> Steps:
        """Bury a message over the limit."""
        yield Bury(message_id, values, failure)
        # Only now the ledger has it. A worker killed in between tries the message once more, and buries it again.
        key = key_of(message_id, values)
        self.attempts.buried(key, values)
        if letter is not None:
            yield self._close(letter)
        else:
            self.attempts.told_dead(key)
            yield TellDead(message_id, failure)

    def _refuse(self, message_id: Any, key: Hashable) -> Refuse:
        """The source has read again what is in the ledger."""
        self.attempts.told_dead(key)
        return Refuse(message_id, self.attempts.last_failure(key))

    def _close(self, letter: Letter) -> Close:
        self.attempts.pin(-1)
        return Close(letter)
