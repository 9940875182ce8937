"""Runs spouts that emit batches: asks for as many rows as there is time and room for.

Guarantees: as of any spout (`engine.core.spout_executor`). `next_batch` is asked for no more rows than there may be
open messages; what it emits beyond that is emitted. Where a spout's batches are short, one turn takes several, joined.

Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.core.pace import FIRST_EMITS, MOST_BATCH_EMITS
from squall.engine.core.spout_executor import INPUT, NOTHING, PENDING_LIMIT, RETRY, SpoutExecutor, SpoutTask

_FADES = 16
"""A spout's longest batch is forgotten by a sixteenth with each shorter one."""


class BatchSpoutExecutor(SpoutExecutor):
    """Runs tasks of a spout that emits batches."""

    most_emits = MOST_BATCH_EMITS

    def _emit_some(self, task: SpoutTask, emits: int) -> None:
        collector, now_ns = task.collector, task.pending.now_ns
        room = self._room(task)
        if room <= 0:
            task.waits_for = PENDING_LIMIT
            return
        if not task.emit_bytes:
            emits = min(emits, FIRST_EMITS)  # their size is unknown
        before = collector.emitted
        has_more = self._ask(task, int(min(emits, room, task.fitting)), now_ns() + self._emit_ns)
        if collector.emitted == before:
            task.finished = not len(task.pending) and task.exhausted
            task.waits_for = RETRY if task.held_for_retry else INPUT
            return
        task.see_size(collector.emitter.newest_row_bytes(), self._turn_bytes)
        task.waits_for = PENDING_LIMIT if self._room(task) <= 0 else NOTHING
        self.ran_dry = self.ran_dry and not has_more

    @staticmethod
    def _ask(task: SpoutTask, rows: int, ends_ns: int) -> bool:
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
            if now_ns() >= ends_ns:
                break
        return True
