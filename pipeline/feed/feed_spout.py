"""FeedSpout: emits the rows of a feed, and after any death only the rows that were not acked.

Guarantees
    * Every row is emitted until it is acked or a dead letter. How far each range of rows is done is kept in the
      component's state directory, so nothing is lost when a worker, a supervisor, Nimbus or the whole cluster dies.
    * Ranges are taken by the tasks as they become free, so no task waits while another has rows left.
    * The message id is (partition, offset). In a directory of Parquet files, a file is a partition.

Each range that a task has taken is a file in a directory that the tasks share::

    00000000000000012288 5d1f3a09        the position and its checksum
    {"part": ..., "start": ..., ...}     the rest never changes

Of several tasks, in whatever processes, one makes it, also if it is killed in the middle; a claim is read whole, and
its position survives every process, though not a power loss.

Relies on `feed.shares` for every decision, on `feed.sources` for the files of the feed, and on a file system that knows
hard links. Imports pyarrow when a feed of Parquet files is opened. Thread: the task's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from squall.engine.api.acked_prefix import is_unwritten, position_line
from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import repr_of, text_of_error
from squall.pipeline.feed.part_reader import PartReader, TextReader, TextSource
from squall.pipeline.feed.shares import AT_ONCE, Claim, Part, Range, Shares
from squall.pipeline.feed.sources import ParquetSource, declared_fields, open_feed

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext

#: Rows of a range: some tenths of a second of work, so that all tasks end at about the same time.
RANGE_ROWS = 16_384
SUFFIX = ".claim"
#: Times that a position is read before it counts as damaged.
READS = 10
_POSITION = ("_shares", "_range", "kept", "_due", "_order", "_jitter", "at_end")
"""The attributes that change while it emits, but for open files."""


class ClaimStore(Protocol):
    """Where the claims of a spout's tasks are kept."""

    def load(self) -> list[Claim]: ...
    def make(self, claim: Claim) -> Claim: ...
    def store(self, claim: Claim) -> None: ...


class FeedSpout(ReplayingSpout):
    """A spout that reads rows from files: `FeedSpout("build/feed")` emits the rows of a feed that `squall prepare`
    made. The message id is (partition, offset). After any death, and when the topology is submitted again under its
    name, it goes on with what is not acked."""

    look_secs: float = 0.2
    """Time between two looks for new parts, with `follow`."""
    record_identity = "dense"
    _ids_are_keys = True

    def __init__(
        self, feed: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], fields: Sequence[str] | None = None, *,
        follow: bool = False, range_rows: int = RANGE_ROWS,
    ) -> None:
        """`feed` is a feed, any directory of Parquet files, or a list of text files. `fields` names the columns to
        emit, in this order; by default those that `squall prepare` declared, or else "text". `follow=True` waits for
        more at the end. `range_rows` is the number of rows that a task takes at a time.

        UsageError if there is no such feed, a file is damaged, or a column is missing or changes its type."""
        if fields is None:
            fields = declared_fields(feed)
        if isinstance(fields, str) or not fields or len(set(fields)) < len(fields):
            raise UsageError(f"FeedSpout has fields {repr_of(fields)}; allowed: one or more different names, in a list")
        if isinstance(range_rows, bool) or not isinstance(range_rows, int) or range_rows < 1:
            raise UsageError(f"FeedSpout has range_rows {repr_of(range_rows)}; allowed: 1 and more")
        if isinstance(feed, str | os.PathLike):
            self._feed: Path | list[Path] = Path(feed).absolute()
        elif follow:
            raise UsageError("a FeedSpout cannot follow text files; allowed: a directory of Parquet files")
        else:
            self._feed = [Path(file).absolute() for file in feed]
        self.outputs = self._fields = tuple(fields)
        self.follow = follow
        """True if it waits for more at the end."""
        self.range_rows = range_rows
        """Rows of a range."""
        self._dealt: ClaimStore | None = None
        # What is wrong with it is said before anything starts.
        self._open_source().find()

    def deal(self, claims: ClaimStore) -> None:
        """For runners that store a spout as a whole, called before `open`: keep claims in `claims` instead of files in
        the state directory."""
        self._dealt = claims

    def position(self) -> dict[str, Any]:
        """For such runners: return what `go_on` needs, as one value to pickle."""
        self._note_read()
        return {name: getattr(self, name) for name in _POSITION}

    def go_on(self, position: Mapping[str, Any]) -> None:
        """For such runners, called after `open`: emit what an earlier life with this position has not emitted."""
        for name in _POSITION:
            setattr(self, name, position[name])
        rest: Iterator[Record | None] = iter(())
        if self._range is not None and (row := self._shares.read_of(self._range)) is not None:
            self._chunk_end = row
            rest = self._rows_of(self._range, row)
        self._records = iter(()) if self.at_end else chain(rest, self.read())

    def _open_source(self) -> ParquetSource | TextSource:
        if isinstance(self._feed, list):
            return TextSource(self._feed, self._fields, self.range_rows)
        return open_feed(self._feed, self._fields, self.follow)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        tasks = len(context.component_tasks(context.component_id))
        self._claims = self._dealt or Claims(Path(context.shared_state_dir), context.task_index)
        self._shares = Shares(context.task_index, tasks, self.range_rows)
        self._source = self._open_source()
        self._readers: dict[Part, PartReader | TextReader] = {}
        """Open files: those of the partitions that are read in turn."""
        self._range: Range | None = None
        """Which is read at present."""
        self._offsets: Iterator[int] = iter(())
        """The rows of the present chunk that are not emitted yet."""
        self._chunk_end = 0
        parts = self._source.find()
        if gone := self._shares.resume(self._claims.load(), parts):
            raise UsageError(
                f"feed {self._feed} was replaced: {gone[0].part} is gone, of which rows {gone[0].position} to "
                f"{gone[0].stop - 1} are not done; to begin anew, submit it with --fresh"
            )
        self._ends: dict[int | str, None] = {}
        """The partitions that may grow, and the newest: with `follow`, event time waits for these."""
        self._learn(parts, spread=not self.follow)
        self._look_at_ns = self._now_ns()

    def read(self) -> Iterator[Record | None]:
        while True:
            taken = self._take()
            if taken is not None:
                yield from self._rows_of(*taken)
            elif self.follow:
                self._look()
                yield None
            else:
                return

    def _take(self) -> tuple[Range, int] | None:
        """The next range that is this task's, and the row to read from."""
        if resumed := self._shares.to_resume():
            return resumed
        while (free := self._shares.to_claim()) is not None:
            range_, claim = free
            if opened := self._shares.claimed(range_, self._claims.make(claim)):
                return opened
        return None

    def _look(self) -> None:
        """Look for new parts, when it is time."""
        now_ns = self._now_ns()
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + round(self.look_secs * NS_PER_SEC)
            self._learn(self._source.find(), spread=False)

    def _learn(self, parts: list[Part], spread: bool) -> None:
        self._shares.learn(parts, spread)
        if parts:
            self._ends = dict.fromkeys(one for one in self._ends if isinstance(one, int))
            self._ends |= dict.fromkeys(part.partition for part in parts if isinstance(part.partition, int))
            self._ends[parts[-1].partition] = None

    def _rows_of(self, range_: Range, row: int) -> Iterator[Record | None]:
        part = range_.part
        self._range = range_
        if (reader := self._readers.pop(part, None)) is None:
            reader = self._source.open(part)
        self._readers[part] = reader
        self._chunk_end, self._offsets = row, iter(())
        for columns in reader.read(row, range_.stop):
            rows = range(part.first + row, part.first + row + len(columns[0]))
            row += len(rows)
            self._chunk_end, self._offsets = row, iter(rows)
            ids = zip(repeat(part.partition), self._offsets, strict=False)
            yield from zip(ids, zip(*columns, strict=True), strict=True)
        self._note_read()
        if range_.stop == part.rows:
            self._readers.pop(part).close()
        while len(self._readers) > AT_ONCE:
            self._readers.pop(next(iter(self._readers))).close()

    def partitions(self) -> Mapping[tuple[Any, ...], bool]:
        self._note_read()
        return dict.fromkeys(((one,) for one in self._ends if self.follow), True) | dict.fromkeys(
            ((one,) for one in self._shares.unread), False
        )

    def _note_read(self) -> None:
        if self._range is not None:
            self._shares.read(self._range, self._chunk_end - length_hint(self._offsets))

    def store(self) -> None:
        self._note_read()
        for claim in self._shares.risen(self.unacked):
            self._claims.store(claim)
            self._shares.stored(claim)

    def close(self) -> None:
        super().close()
        while self._readers:
            self._readers.popitem()[1].close()


class Claims:
    """The claims as one task sees them."""

    def __init__(self, directory: Path, task: int) -> None:
        self.directory = directory
        # Two lives of one task may be writing at the same time.
        self._draft = directory / f"task-{task}-{os.getpid()}.new"

    def load(self) -> list[Claim]:
        """Every task's claims. ClusterError if one cannot be read."""
        found = (self._read(path) for path in sorted(self.directory.glob(f"*{SUFFIX}")))
        return [claim for claim in found if claim is not None]

    def make(self, claim: Claim) -> Claim:
        """Claim a range, unless it is taken. The claim that it has now."""
        fixed = claim._asdict()
        del fixed["position"]
        # Not in place: a draft that was left may be linked to a claim.
        self._draft.unlink(missing_ok=True)
        self._draft.write_bytes(position_line(claim.position) + json.dumps(fixed).encode())
        path = self._path(claim)
        try:
            os.link(self._draft, path)
        except FileExistsError:
            if (there := self._read(path)) is not None:
                return there
            os.replace(self._draft, path)
        return claim

    def store(self, claim: Claim) -> None:
        """Store the position of a claim."""
        fd = os.open(self._path(claim), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, position_line(claim.position), 0)
        finally:
            os.close(fd)

    def _path(self, claim: Claim) -> Path:
        # The name of a part may be too long for a file name, or hold a slash.
        digest = hashlib.blake2b(claim.part.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return self.directory / f"{digest}-{claim.start}{SUFFIX}"

    @staticmethod
    def _read(path: Path) -> Claim | None:
        """The claim in a file; None if a power loss has left the file without its content."""
        try:
            for again in reversed(range(READS)):
                if is_unwritten(data := path.read_bytes()):
                    return None
                line, _, fixed = data.partition(b"\n")
                position = int(line.partition(b" ")[0])
                if line + b"\n" == position_line(position):
                    break
                # Perhaps its task was writing.
                if not again:
                    raise ValueError("its position and checksum differ")
            claim = Claim(**json.loads(fixed), position=position)
            if not (0 <= claim.start <= claim.position <= claim.stop and claim.task >= 0):
                raise ValueError("its numbers contradict each other")
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ClusterError(
                f"{path} is no claim of a range of a feed: {text_of_error(error)}; without it, the range is read again"
            ) from error
        return claim
