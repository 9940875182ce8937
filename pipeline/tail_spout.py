"""TailSpout: emits the lines of a text file that grows and is rotated, and after any death those that were not acked.

Guarantees
    * Every line of the log is emitted until it is acked or a dead letter, also if the file was rotated once or more,
      under way or while nothing ran: renamed, or copied and cut. Not those of files that were removed or compressed
      before they were read, which is told as an error.
    * A line has a number, the bytes of the log before it, also after a restart: the message id.
    * A rotated file is left when another has begun and it has not grown for `quiet_secs`.

Two files in the state directory: `position`, below which all is acked; `files`, in which life, and where the files
begin that are not done. The latter is stored before a line of a new file is emitted, so a number always finds its file.

Relies on `pipeline.rotation` for the files, and on lines that are whole when they end. Thread: the task's.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.api.position_file import PositionFile
from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import text_of_error
from squall.pipeline.rotation import LogFile, find, log_files, read_lines

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext

STORE_SECS = 0.1
#: After something could not be stored.
STORE_AGAIN_SECS = 5.0


class TailSpout(ReplayingSpout):
    """A spout in the box. `TailSpout("access.log")` emits the lines of a log, without their ends, from the oldest file
    into which it was rotated, and goes on as it grows. One task reads; others have nothing to do."""

    look_secs: float = 0.1
    """Time between two looks for new lines."""
    quiet_secs: float = 2.0
    """A writer may go on for so long in a file that was renamed."""

    def __init__(self, path: str | os.PathLike[str], *, with_origin: bool = False) -> None:
        """`path`: a text file, which need not be there yet. `with_origin`: emit a first field "origin", (life, number,
        floor), as FeedSpout does. UsageError if the path cannot be a file."""
        self._path = Path(path).absolute()
        if not self._path.parent.is_dir():
            raise UsageError(f"a TailSpout cannot read {self._path}: there is no directory {self._path.parent}")
        if self._path.exists() and not self._path.is_file():
            raise UsageError(f"a TailSpout cannot read {self._path}; allowed: a text file, which need not be there yet")
        self._with_origin = with_origin
        self.outputs = ("origin", "text") if with_origin else ("text",)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._position = PositionFile(os.path.join(context.state_dir, "position"))
        self._files = Path(context.state_dir, "files")
        self._stored = self._next = self._position.load()
        self._life, self._begins = self._load()
        self._look_at_ns = self._store_at_ns = self._now_ns()
        self._last_ns = self._now_ns()
        """When the present file had grown, or was the newest."""

    def _load(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The life, and of each file that is not done its first number and its beginning."""
        try:
            data = json.loads(self._files.read_bytes())
            return int(data["life"]), [(int(number), text.encode("latin-1")) for number, text in data["begins"]]
        except FileNotFoundError:
            return secrets.randbits(63), []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClusterError(
                f"{self._files} does not tell which files of {self._path} were read: {text_of_error(error)}; to begin "
                "anew, submit it with --fresh"
            ) from error

    def read(self) -> Iterator[Record | None]:
        while not self.context.task_index:
            lines = self._look() if self._now_ns() >= self._look_at_ns else []
            for line in lines:
                number = self._next
                text = line.rstrip(b"\r\n").decode("utf-8", "replace")
                self._next += len(line)
                yield number, ((self._life, number, self._stored), text) if self._with_origin else (text,)
            if not lines:
                yield None

    def _look(self) -> list[bytes]:
        """The next lines, if any; else go on to the next file, if it is time."""
        now_ns = self._now_ns()
        begins = [begin for begin in self._begins if begin[0] <= self._next]
        first, beginning = begins[-1] if begins else (0, b"")
        try:
            file, newer = find(log_files(self._path), beginning)
            if newer is None:
                self._last_ns = now_ns
            # Nobody writes to one that was rotated twice.
            quiet_ns = 0 if newer and newer.path != self._path else self.quiet_secs * NS_PER_SEC
            is_left = newer is not None and now_ns - self._last_ns > quiet_ns
            if file and (lines := read_lines(file, self._next - first, self._stop(), to_end=is_left)):
                self._last_ns = now_ns
                self._note(first, file)
                return lines
            if newer and (is_left or not file):
                if beginning and not file:
                    self._report(f"the file that was read up to its byte {self._next - first} is gone, perhaps before "
                                 f"all of it was read; the next one is {newer.path}")  # fmt: skip
                self._note(self._next, newer)
                return self._look()  # which has a line
            self._look_at_ns = now_ns + round(self.look_secs * NS_PER_SEC)
        except OSError as error:
            self._look_at_ns = now_ns + round(STORE_AGAIN_SECS * NS_PER_SEC)
            self._report(text_of_error(error))
        return []

    def _stop(self) -> int | None:
        """The most bytes to read: up to the next file, if it was begun in an earlier life."""
        return min((begin - self._next for begin, _ in self._begins if begin > self._next), default=None)

    def _note(self, first: int, file: LogFile) -> None:
        """Store that the file whose numbers begin with `first` begins so. OSError if it cannot be stored."""
        if (first, file.beginning) not in self._begins:
            begins = sorted([*(begin for begin in self._begins if begin[0] != first), (first, file.beginning)])
            done = [begin for begin in begins if begin[0] <= self._stored][:-1]
            begins = begins[len(done) :]
            data = {"life": self._life, "begins": [(number, text.decode("latin-1")) for number, text in begins]}
            new = self._files.with_name("files.new")
            new.write_text(json.dumps(data))
            os.replace(new, self._files)
            self._begins = begins

    def ack(self, message_id: int) -> None:
        super().ack(message_id)
        self.idle()

    def idle(self) -> None:
        if self._now_ns() >= self._store_at_ns:
            self._store()

    def close(self) -> None:
        self._store()

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
