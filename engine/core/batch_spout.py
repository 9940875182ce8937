"""Runs spouts that emit batches: asks for as many rows as there is time and room for, and tells answers by the batch.

Guarantees: as of any spout (`engine.core.spout_executor`). `next_batch` is asked for no more rows than there may be
open messages; what it emits beyond that is emitted. Where a spout's batches are short, one turn takes several, joined.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.engine.api.component import BatchSpout
from squall.engine.api.failure import Failure
from squall.engine.core.spout_executor import (
    INPUT,
    NOTHING,
    PENDING_LIMIT,
    RETRY,
    SpoutExecutor,
    SpoutTask,
)
from squall.engine.flow.spout_collector import Gathered
from squall.engine.tracking.batch_answers import BatchAnswers

_ROWS_PER_EMIT, _MOST_ROWS_PER_EMIT = 4, 32
"""Rows of a batch for each emit that another spout might make: 1,024 a turn, each of which costs a quarter as much;
more if the turns are short all the same (columns of Arrow)."""
_FADES = 16
"""A spout's longest batch is forgotten by a sixteenth with each shorter one."""
_SHORT_TURN_NS, _GOOD_TURN_NS = 2_500_000, 5_000_000
"""Turns that are shorter make batches longer, turns that are longer make them shorter."""


class BatchSpoutTask(SpoutTask):
    """One task of a spout that emits batches."""

    __slots__ = ("answers", "usual")

    answers: BatchAnswers
    user: BatchSpout
    usual: int
    """Rows that it emits in one call while it has some: the newest call's, or a fading share of an earlier, longer
    one's."""

    def answer_by(self, answers: BatchAnswers) -> None:
        """Set what collects the answers, at set-up."""
        self.answers = answers
        self.usual = 0

    def emitted_all(self, rows: int) -> bool:
        """Note that a call emitted `rows`; return True if that seems to be all it has at the moment: it
        was fewer than usual. Asked again at once, it would emit what has come in meanwhile, a row or two."""
        if not rows:
            return True
        fewer, self.usual = rows < self.usual, max(rows, self.usual - self.usual // _FADES)
        return fewer

    def tell(self) -> None:
        """Tell the spout of the answers collected. Raises TaskCrashed."""
        answers = self.answers
        acked = answers.take_acked()
        if acked:
            self.finished = False
            try:
                answers.spout.ack_batch(acked)
            except BaseException as error:
                # It did not take them: see `OpenMessages.acked`.
                self.pending.not_taken(len(acked))
                raise self.crashed("ack_batch", error) from error
        failed, failures = answers.take_failed()
        if failed:
            self.finished = False
            self.call("fail_batch", answers.spout.fail_batch, failed, failures)

    def acker_died(self, is_its: Callable[[int], bool], failure: Failure) -> None:
        super().acker_died(is_its, failure)
        self.tell()


class BatchSpoutExecutor(SpoutExecutor):
    """Runs tasks of a spout that emits batches."""

    tasks: list[BatchSpoutTask]  # type: ignore[assignment]
    _rows_per_emit = _ROWS_PER_EMIT
    _emitted_most = False
    """True if a task has emitted as many rows in this turn as it may."""

    def turn_took(self, turn_ns: int) -> None:
        """Ask for more rows if a turn was short although a task has emitted what it was asked for; for fewer after a
        long one."""
        if turn_ns > _GOOD_TURN_NS:
            self._rows_per_emit = max(_ROWS_PER_EMIT, self._rows_per_emit * _GOOD_TURN_NS // turn_ns)
        elif self._emitted_most and turn_ns < _SHORT_TURN_NS:
            self._rows_per_emit = min(_MOST_ROWS_PER_EMIT, 2 * self._rows_per_emit)
        self._emitted_most = False

    def run(self, emits: int, may_send: bool = True) -> bool:
        worked = super().run(emits, may_send)
        self.tell()
        return worked

    def tell(self) -> None:
        """Tell the spouts of the answers collected. Raises TaskCrashed."""
        for task in self.tasks:
            task.tell()

    def _emit(self, task: SpoutTask, emits: int) -> bool:
        assert isinstance(task, BatchSpoutTask)
        task.tell()
        collector, now_ns = task.collector, task.pending.now_ns
        room = self._room(task)
        if room <= 0:
            task.waits_for = PENDING_LIMIT
            return False
        # No more than fit a turn by their size; few at first, when that is unknown.
        most = emits * self._rows_per_emit if task.emit_bytes else emits
        rows = int(min(most, room, task.fitting))
        before, began_ns = collector.emitted, now_ns() if self._turn_ns is not None else 0
        try:
            has_more = self._ask(task, rows, None if self._turn_ns is None else began_ns + self._turn_ns)
            emitted = collector.emitted - before
            self._emitted_most = self._emitted_most or emitted >= most
            if not emitted:
                task.finished = not len(task.pending) and task.exhausted
                task.waits_for = RETRY if task.held_for_retry else INPUT
                return False
        except BaseException as error:
            raise task.crashed("next_batch", error) from error
        if self._turn_bytes is not None:
            task.see_size(collector.emitter.newest_row_bytes(), self._turn_bytes)
        task.finished = False
        task.waits_for = PENDING_LIMIT if self._room(task) <= 0 else NOTHING
        self.ran_dry = self.ran_dry and not has_more
        return True

    @staticmethod
    def _ask(task: BatchSpoutTask, rows: int, ends_ns: int | None) -> bool:
        """Ask for up to `rows` rows, until the task has no more or this time; return True if it may have more."""
        collector, now_ns = task.collector, task.pending.now_ns
        ask: Callable[..., Any] = task.asks or task.user.next_batch
        collector.gathered = gathered = Gathered()
        try:
            while rows > 0:
                before = collector.emitted + gathered.rows
                if (value := ask(rows)) is not None:
                    task.returned(value)
                emitted = collector.emitted + gathered.rows - before
                if task.emitted_all(emitted) and emitted < rows:
                    return False
                rows -= emitted
                if ends_ns is not None and now_ns() >= ends_ns:
                    break
            return True
        finally:
            # Also what was emitted before an error.
            collector.put_gathered()
            collector.gathered = None
