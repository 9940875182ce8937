"""Sink: a bolt that writes batches to something outside, and acks them when they are written.

Guarantees
    * Rows are acked after `write` has returned. Rows that it refuses fail alone; each time, that is told.
    * While the other side is away, everything fails as `unavailable`, which counts against no tuple: spouts keep it,
      and emit it again. The next connection is tried after a growing delay.
    * Calls have as many rows as pays for what a call costs (`engine.core.pace`).

A row is written again if its worker dies before its ack. `ExactSink` writes each once.

Thread: the task's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from squall.connect.outside import Outside
from squall.engine.api.component import BatchBolt
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ComponentError, FailedTuple, Unavailable
from squall.engine.foreign.text import plural, repr_of

if TYPE_CHECKING:
    from squall.engine.api.collectors import BatchCollector
    from squall.engine.api.columns import ColumnBatch
    from squall.engine.api.context import TopologyContext

FIRST_DELAY_SECS, MAX_DELAY_SECS = 0.05, 2.0
_SHOWN = 3
"""Most refused rows of a batch that are told one by one."""


class Sink(Outside, BatchBolt):
    """A bolt that writes to something outside. Subclasses define `write`, and may define `connect` and `disconnect`::

        class Lines(Sink):
            def connect(self, context):
                self.file = open("out.txt", "a")

            def write(self, batch):
                self.file.writelines(f"{line}\\n" for line in batch["line"])
                self.file.flush()
    """

    blocking = True
    least_delay_secs: float = 0.0
    """Set it before an error in `away` to have the next connection no earlier."""

    def write(self, batch: ColumnBatch) -> Mapping[int, str] | None:
        """Write the rows, and return when they are safe: None, or why some were refused, by their row. An error in
        `away` fails all rows, written or not."""
        raise TypeError(f"{type(self).__name__} must define write")

    # ---- what the engine calls ----

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._context = context
        self._is_connected = False
        self._delay_secs, self._again_ns, self._why = FIRST_DELAY_SECS, 0, ""

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        if batch.is_tick:
            return
        if self._context.now_ns() < self._again_ns:
            raise Unavailable(self._why)
        try:
            if not self._is_connected:
                self.connect(self._context)
                self._is_connected = True
            refused = self.write(batch)
        except self.away as error:
            self._why = self.cut_off(error)
            self.cleanup()
            delay_secs, self.least_delay_secs = max(self._delay_secs, self.least_delay_secs), 0.0
            self._again_ns = self._context.now_ns() + round(delay_secs * NS_PER_SEC)
            self._delay_secs = min(2 * self._delay_secs, MAX_DELAY_SECS)
            collector.report_error(Unavailable(self._why))
            raise Unavailable(self._why) from None
        self._delay_secs = FIRST_DELAY_SECS
        if refused is None:
            return
        if not isinstance(refused, Mapping):
            raise ComponentError(
                f"{self._context.component_id}[{self._context.task_id}] returned {repr_of(refused)} from write; "
                "allowed: None when all rows are written, or a dict: why some were refused, by their row"
            )
        for row, why in refused.items():
            collector.fail(row, why)
        self._tell(list(refused.values()), collector)

    def cleanup(self) -> None:
        self._is_connected = False
        try:
            self.disconnect()
        except self.away:
            pass  # it is away: that was told

    @staticmethod
    def _tell(reasons: list[str], collector: BatchCollector) -> None:
        if len(reasons) > _SHOWN:
            more = plural(len(reasons) - _SHOWN, "more row")
            reasons[_SHOWN - 1 :] = [f"{reasons[_SHOWN - 1]}; {more} of this batch too"]
        for why in reasons:
            collector.report_error(FailedTuple(why))
