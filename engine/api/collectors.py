"""What components emit, ack and fail through: the collectors, as users know them.

Wrong use is a `ComponentError` at once, naming component, stream and fields. A collector belongs to one task and is
used by that task's thread. Those that the engine hands out are in `engine.flow.collectors`.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import Anchors, Tuple


@runtime_checkable
class SpoutCollector(Protocol):
    """For spouts."""

    def emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple; with a message id, its tree is tracked and answered by `ack` or `fail`.

        Returns the ids of the tasks it goes to; none where it waits because workers died over this message before.
        """

    def emit_direct(
        self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""

    @property
    def pending_count(self) -> int:
        """Trees of this task that are not answered yet."""


@runtime_checkable
class BoltCollector(Protocol):
    """For bolts that ack themselves."""

    def emit(self, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple. `anchors` is one input tuple or several; without any it is not tracked.

        Returns the ids of the tasks it goes to.
        """

    def emit_direct(
        self, task: int, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""

    def ack(self, tup: Tuple) -> None:
        """This tuple is processed; everything emitted with it as an anchor is now on its own."""

    def fail(self, tup: Tuple) -> None:
        """Fail every tree this tuple belongs to, at once."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Start the message timeout of this tuple's trees afresh."""

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""


@runtime_checkable
class BasicCollector(Protocol):
    """For basic bolts: anchors every emit to the tuple at hand."""

    def emit(self, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple; the ids of the tasks it goes to."""

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""

    def reset_timeout(self, tup: Tuple) -> None:
        """Start the message timeout of this tuple's trees afresh."""

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""
