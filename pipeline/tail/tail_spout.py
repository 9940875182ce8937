"""TailSpout: emits the lines of a text file that grows and is rotated, and after any death those that were not acked.

Guarantees
    * Every line of the log is emitted until it is acked or a dead letter, also if the file was rotated once or more,
      under way or while nothing ran: renamed, or copied and cut. What cannot be read, as its file was removed,
      compressed or cut before, is told as an error; see `pipeline.tail.log_reader`.
    * A line has a number, the same after a restart, and later lines a higher one: the message id.

Two files in the state directory: `position`, below which all is acked; `files`, that of the reader.

Relies on lines that are whole when they end. Thread: the task's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.api.prefix import PositionFile
from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.tail.log_reader import LogReader

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext

QUIET_SECS = 2.0
STORE_SECS = 0.1
#: After something could not be stored.
STORE_AGAIN_SECS = 5.0


class TailSpout(ReplayingSpout):
    """A spout in the box. `TailSpout("access.log")` emits the lines of a log, without their ends, from the oldest file
    into which it was rotated, and goes on as it grows. One task reads; others have nothing to do."""

    look_secs: float = 0.1
    """Time between two looks for new lines."""

    def __init__(
        self, path: str | os.PathLike[str], *, with_origin: bool = False, quiet_secs: float = QUIET_SECS
    ) -> None:
        """`path`: a text file, which need not be there yet. `with_origin`: emit a first field "origin", (life, number,
        floor), as FeedSpout does. `quiet_secs`: for how long a file that was renamed must not have grown until the
        next one is read, and a last line without an end is taken for whole. UsageError if the path cannot be a file,
        or the seconds are none."""
        if isinstance(quiet_secs, bool) or not isinstance(quiet_secs, int | float) or not 0 <= quiet_secs < math.inf:
            raise UsageError(f"TailSpout: quiet_secs is {quiet_secs!r}; allowed: a number of seconds, 0 or more")
        self._quiet_secs = quiet_secs
        self._path = Path(path).absolute()
        if not self._path.parent.is_dir():
            raise UsageError(f"a TailSpout cannot read {self._path}: there is no directory {self._path.parent}")
        if self._path.exists() and not self._path.is_file():
            raise UsageError(f"a TailSpout cannot read {self._path}; allowed: a text file, which need not be there yet")
        self._with_origin = with_origin
        self.outputs = ("origin", "text") if with_origin else ("text",)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._position = PositionFile(os.path.join(context.state_dir, "position"))
        self._stored = self._next = self._position.load()
        self._reader = LogReader(
            self._path, Path(context.state_dir, "files"), self._next, self._quiet_secs, self._report
        )
        self._look_at_ns = self._store_at_ns = self._now_ns()

    def read(self) -> Iterator[Record | None]:
        while not self.context.task_index:
            number, lines = self._look() if self._now_ns() >= self._look_at_ns else (0, [])
            for line in lines:
                text = line.rstrip(b"\r\n").decode("utf-8", "replace")
                self._next = number + len(line)
                yield number, ((self._reader.life, number, self._stored), text) if self._with_origin else (text,)
                number = self._next
            if not lines:
                yield None

    def _look(self) -> tuple[int, list[bytes]]:
        """The number of the next line, and the lines that are there."""
        now_ns, look_secs = self._now_ns(), self.look_secs
        try:
            number, lines = self._reader.look(now_ns, self._stored)
            if lines:
                return number, lines
        except OSError as error:
            look_secs = STORE_AGAIN_SECS
            self._report(text_of_error(error))
        self._look_at_ns = now_ns + round(look_secs * NS_PER_SEC)
        return 0, []

    def ack(self, message_id: int) -> None:
        super().ack(message_id)
        self.idle()

    def idle(self) -> None:
        if self._now_ns() >= self._store_at_ns:
            self._store()

    def close(self) -> None:
        self._store()
        self._reader.close()

    def _store(self) -> None:
        """Store up to where all lines are acked, if that has risen."""
        again_secs = STORE_SECS
        position = next(self.unacked, self._next)
        try:
            if position != self._stored:
                self._position.store(position)
                self._stored = position
        except OSError as error:
            again_secs = STORE_AGAIN_SECS
            self._report(f"position {position} cannot be stored: {text_of_error(error)}; lines go on meanwhile")
        self._store_at_ns = self._now_ns() + round(again_secs * NS_PER_SEC)

    def _report(self, what: str) -> None:
        self.collector.report_error(ClusterError(f"log {self._path}: {what}"))
