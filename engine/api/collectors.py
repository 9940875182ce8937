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

    def emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple; with a message id, its tree is tracked and answered by `ack` or `fail`.

        Returns the ids of the receiving tasks; none if the message is held as a suspect.
        """

    def emit_direct(
        self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit to one task, named by the caller, on a stream declared direct."""

    def emit_batch(
        self, columns: Sequence[Any], message_ids: Sequence[Any] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit rows, one column for each field; with message ids, one for each row, the tree of each row is tracked and
        answered on its own. Columns are lists, arrays, numpy or Arrow arrays; do not change one afterwards."""

    def give_up(self, values: Any, message_id: Any, why: str, stream: str = DEFAULT_STREAM) -> None:
        """Make a message a dead letter instead of emitting it, as its source holds something that no bolt could take.
        `values`: what there is of it, for the ledger. The spout hears `on_dead_letter`, the run goes on."""

    def report_error(self, error: BaseException) -> None:
        """Show an error to the operator; nothing else happens."""

    @property
    def pending_count(self) -> int:
        """Number of this task's trees that are not acked or failed yet."""


@runtime_checkable
class BoltCollector(Protocol):
    """Emits a bolt's tuples, and acks or fails its input."""

    def emit(self, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple. `anchors` is one input tuple or several; without anchors it is not tracked.

        Returns the ids of the receiving tasks.
        """

    def emit_direct(
        self, task: int, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit to one task, named by the caller, on a stream declared direct."""

    def ack(self, tup: Tuple) -> None:
        """Mark a tuple as processed; tuples anchored to it must now be acked on their own."""

    def fail(self, tup: Tuple) -> None:
        """Fail every tree to which this tuple belongs, at once."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of this tuple's trees."""

    def report_error(self, error: BaseException) -> None:
        """Show an error to the operator; nothing else happens."""


@runtime_checkable
class BasicCollector(Protocol):
    """Emits a basic bolt's tuples, each anchored to the input tuple."""

    def emit(self, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple. Returns the ids of the receiving tasks."""

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit to one task, named by the caller, on a stream declared direct."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of this tuple's trees."""

    def report_error(self, error: BaseException) -> None:
        """Show an error to the operator; nothing else happens."""


@runtime_checkable
class BatchCollector(Protocol):
    """Emits a batch bolt's rows, each anchored to the input row it was made from."""

    def emit_batch(
        self, columns: Sequence[Any], counts: Sequence[int] | None = None, parents: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows, one column for each field. `counts`: how many of them were made from each input row, in order (a
        mask is one, too); or `parents`: the input row of each. Neither: one row for each input row. Columns are lists,
        arrays, numpy or Arrow arrays; do not change one afterwards."""

    def emit_batch_direct(
        self, task: int, columns: Sequence[Any], counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None, stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit to one task, named by the caller, on a stream declared direct."""

    def fail(self, row: int | Sequence[int], why: str = "") -> None:
        """Fail every tree to which an input row, or each of several, belongs; the others are not touched."""

    def reset_timeout(self, batch: ColumnBatch) -> None:
        """Restart the message timeout of the trees of the batch at hand."""

    def report_error(self, error: BaseException) -> None:
        """Show an error to the operator; nothing else happens."""
