"""Runs spouts that emit batches: asks for as many rows as there is time and room for.

Guarantees: as of any spout (`engine.core.spout_executor`). `next_batch` is asked for no more rows than there may be
open messages; what it emits beyond that is emitted. Where a spout's batches are short, one turn takes several, joined.

Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.core.spout_executor import INPUT, NOTHING, PENDING_LIMIT, RETRY, SpoutExecutor, SpoutTask

_ROWS_PER_EMIT, _MOST_ROWS_PER_EMIT = 4, 32
"""Rows of a batch for each emit that another spout might make: 1,024 a turn, each of which costs a quarter as much;
more if the turns are short all the same (columns of Arrow)."""
_FADES = 16
"""A spout's longest batch is forgotten by a sixteenth with each shorter one."""
_SHORT_TURN_NS, _GOOD_TURN_NS = 2_500_000, 5_000_000
"""Turns that are shorter make batches longer, turns that are longer make them shorter."""


class BatchSpoutExecutor(SpoutExecutor):
    """Runs tasks of a spout that emits batches."""

    _asks = "next_batch"
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

    def _emit_some(self, task: SpoutTask, emits: int) -> None:
        collector, now_ns = task.collector, task.pending.now_ns
        room = self._room(task)
        if room <= 0:
            task.waits_for = PENDING_LIMIT
            return
        # No more than fit a turn by their size; few at first, when that is unknown.
        most = emits * self._rows_per_emit if task.emit_bytes else emits
        before = collector.emitted
        has_more = self._ask(
            task, int(min(most, room, task.fitting)), None if self._turn_ns is None else now_ns() + self._turn_ns
        )
        emitted = collector.emitted - before
        self._emitted_most = self._emitted_most or emitted >= most
        if not emitted:
            task.finished = not len(task.pending) and task.exhausted
            task.waits_for = RETRY if task.held_for_retry else INPUT
            return
        task.see_size(collector.emitter.newest_row_bytes(), self._turn_bytes)
        task.waits_for = PENDING_LIMIT if self._room(task) <= 0 else NOTHING
        self.ran_dry = self.ran_dry and not has_more

    @staticmethod
    def _ask(task: SpoutTask, rows: int, ends_ns: int | None) -> bool:
        """Ask for up to `rows` rows, until the task has no more or this time; return True if it may have more."""
        collector, now_ns = task.collector, task.pending.now_ns
        ask = task.outermost.next_batch
        while rows > 0:
            before = collector.emitted
            if (value := ask(rows)) is not None:
                task.returned(value)
            emitted = collector.emitted - before
            usual = task.usual_rows
            task.usual_rows = max(emitted, usual - usual // _FADES) if emitted else usual
            if emitted < rows and (not emitted or emitted < usual):
                # That seems to be all. Asked again at once, it would emit what has come in meanwhile, a row or two.
                return False
            rows -= emitted
            if ends_ns is not None and now_ns() >= ends_ns:
                break
        return True
