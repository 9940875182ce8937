"""The collectors, as users see them: components emit, ack and fail tuples through these.

Wrong use raises a `ComponentError` at once, naming component, stream and fields. A collector belongs to one task. The
engine's implementations are in `engine.flow.spout_collector` and `engine.flow.bolt_collectors`. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from squall.engine.api.columns import ColumnBatch
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import Anchors, Tuple


@runtime_checkable
class SpoutCollector(Protocol):
    """Emits a spout's tuples."""

    def emit(self, values: Any, *, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple: a tuple or list with a value for each field. With a message id (any object), its tree is
        tracked, and the spout hears `ack` or `on_failure`.

        Returns the ids of the receiving tasks; an empty list if the message is held back as a suspect.
        """

    def emit_direct(
        self, task: int, values: Any, *, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit in the same way, to the task of this id; the stream must be declared direct."""

    def emit_batch(
        self, columns: Sequence[Any], *, message_ids: Sequence[Any] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit many rows: a column for each field, all of one length. With a list of message ids, one for each row,
        each row is tracked and answered on its own. Columns are lists, `array`, numpy or Arrow arrays; do not change
        one afterwards."""

    def give_up(self, values: Any, message_id: Any, why: str, *, stream: str = DEFAULT_STREAM) -> None:
        """Make a message a dead letter instead of emitting it, because no bolt could take it. `values` and the reason
        `why` go to the ledger. The spout hears `on_dead_letter`, and the run goes on."""

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""

    @property
    def pending_count(self) -> int:
        """Number of this task's trees that are not acked or failed yet."""


@runtime_checkable
class BoltCollector(Protocol):
    """Emits a bolt's tuples, and acks or fails its input."""

    def emit(self, values: Any, *, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple: a tuple or list with a value for each field. `anchors` is one input tuple, or a sequence of
        them, whose trees it joins; without anchors it is not tracked.

        Returns the ids of the receiving tasks.
        """

    def emit_direct(
        self, task: int, values: Any, *, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit in the same way, to the task of this id; the stream must be declared direct."""

    def ack(self, tup: Tuple) -> None:
        """Mark an input tuple as processed. Emit what is anchored to it before. A second time is a ComponentError."""

    def fail(self, tup: Tuple) -> None:
        """Fail every tree to which this input tuple belongs: their spouts hear `on_failure` at once."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of this tuple's trees."""

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""


@runtime_checkable
class BasicCollector(Protocol):
    """Emits a basic bolt's tuples, each anchored to the input tuple."""

    def emit(self, values: Any, *, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple, anchored to the input: a tuple or list with a value for each field.

        Returns the ids of the receiving tasks.
        """

    def emit_direct(self, task: int, values: Any, *, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit in the same way, to the task of this id; the stream must be declared direct."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of this tuple's trees."""

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""


@runtime_checkable
class BatchCollector(Protocol):
    """Emits a batch bolt's rows, each anchored to the input row it was made from."""

    def emit_batch(
        self, columns: Sequence[Any], *, counts: Sequence[int] | None = None, parents: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit many rows: a column for each field, all of one length. Each row is anchored to the input row it was made
        from: `counts` has the number of rows made from each input row, in order (so the mask of a filter is its
        counts), or `parents` the index of the input row of each. Without both there is one row for each input row.
        Columns are lists, `array`, numpy or Arrow arrays; do not change one afterwards."""

    def emit_batch_direct(
        self, task: int, columns: Sequence[Any], counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None, stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit in the same way, to the task of this id; the stream must be declared direct."""

    def fail(self, row: int | Sequence[int], why: str = "") -> None:
        """Fail the trees of an input row, by its index in the batch, or of several; the other rows are acked as
        usual."""

    def reset_timeout(self, batch: ColumnBatch) -> None:
        """Restart the message timeout of the trees of the batch at hand."""

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""
