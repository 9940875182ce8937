"""TailSpout: emits the lines of a text file that grows and is rotated, and after any death the unacked ones.

Guarantees
    * Every line of the log is emitted until it is acked or a dead letter, also if the file was rotated once or more,
      under way or while nothing ran: renamed, or copied and cut. What cannot be read, as its file was removed,
      compressed or cut before, is told as an error; see `pipeline.log_reader`.
    * The message id of a line, (life of its file, place in it), is the same after a restart.

Relies on lines that are whole when they end. Thread: the task's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.log_reader import Generation, LogReader

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext

QUIET_SECS = 2.0
#: After something could not be read.
AGAIN_SECS = 5.0


class TailSpout(ReplayingSpout):
    """A spout that follows a log: `TailSpout("access.log")` emits its lines, without their ends, from the oldest file
    into which it was rotated, and goes on as it grows. One task reads; others have nothing to do. It never ends."""

    outputs = ("text",)
    look_secs: float = 0.1
    """Time between two looks for new lines."""
    record_identity = "partition"
    _ids_are_keys = True

    def __init__(self, path: str | os.PathLike[str], *, quiet_secs: float = QUIET_SECS) -> None:
        """`path` is a text file, which need not be there yet. When a renamed file has not grown for `quiet_secs`
        seconds, its last line is taken for whole, and the next file is read. UsageError if `path` is no file, or its
        directory is missing."""
        self._path = Path(path).absolute()
        if not self._path.parent.is_dir() or (self._path.exists() and not self._path.is_file()):
            raise UsageError(f"a TailSpout cannot read {self._path}: it is no text file, or in no directory")
        if not 0 <= quiet_secs < math.inf:
            raise UsageError(f"TailSpout: quiet_secs is {quiet_secs!r}; give a number of seconds, 0 or more")
        self._quiet_secs = quiet_secs

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._reader = LogReader(self._path, Path(context.state_dir, "files"), self._quiet_secs, self._report)
        self._look_at_ns = self._now_ns()
        self._is_caught_up = False

    def read(self) -> Iterator[Record | None]:
        while not self.context.task_index:
            found = self._look() if self._now_ns() >= self._look_at_ns else None
            if found is None:
                yield None
                continue
            file, lines = found
            for line in lines:
                message_id, text = (file.life, file.read), line.rstrip(b"\r\n").decode("utf-8", "replace")
                file.read += len(line)
                yield message_id, (text,)

    def _look(self) -> tuple[Generation, list[bytes]] | None:
        now_ns, look_secs = self._now_ns(), self.look_secs
        self._is_caught_up = False
        try:
            if found := self._reader.look(now_ns):
                return found
            self._is_caught_up = True
        except OSError as error:
            look_secs = AGAIN_SECS
            self._report(text_of_error(error))
        self._look_at_ns = now_ns + round(look_secs * NS_PER_SEC)
        return None

    def partitions(self) -> Mapping[tuple[Any, ...], bool]:
        if self.context.task_index:
            return {}
        return {(one.life,): self._is_caught_up for one in self._reader.unread} or {(): self._is_caught_up}

    def store(self) -> None:
        self._reader.store(self.unacked)

    def close(self) -> None:
        super().close()
        self._reader.close()

    def _report(self, what: str) -> None:
        self.collector.report_error(ClusterError(f"log {self._path}: {what}"))
