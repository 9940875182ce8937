"""ReadAhead: the thread in which a `Source` talks to what it reads.

Guarantees
    * One thread calls `connect`, `read_from`, `commit`, `confirm`, `keep_alive` and `disconnect`. They may wait as long
      as they like, and the worker's loop does not wait for them, but for `CLOSE_SECS` at the end.
    * What was read waits in at most `CHUNKS` chunks of `ROWS` records, or of about `BYTES` bytes; then reading stops.
      A record that is yielded alone waits for others for `LOOK_SECS` at most, also while `read_from` waits in a call.
    * After an error in the source's `away`, which is told, it disconnects, and connects again after a growing delay.
      Any other error is raised in the loop.
    * Positions are committed when every record before them is acked, in the order in which they were read: each
      `COMMIT_SECS`, and when nothing is pending.

What both threads touch: a queue of what was read, three deques, of what is done, of what is confirmed and of what is to
be told, the flag that a commit is due, when nothing more was found, the newest position, and the records that are
gathered for the next chunk: its thread appends, and whoever has a lock takes some off the front.

Thread: its own for names with an underscore, the task's for the rest.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections import deque
from collections.abc import Container, Generator, Iterable, Iterator, Sequence
from itertools import compress, groupby
from operator import itemgetter, le, or_
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

from squall.engine.api.replaying import Record
from squall.engine.errors import ComponentError, Unavailable
from squall.engine.foreign.sizes import row_bytes
from squall.engine.foreign.text import repr_of

if TYPE_CHECKING:
    from squall.connect.source import Source
    from squall.engine.api.context import TopologyContext

CHUNKS, ROWS, BYTES = 4, 1024, 1 << 20
LOOK_SECS, COMMIT_SECS = 0.02, 0.1
"""Time between two looks for acks while it waits, and between two commits."""
KEEP_ALIVE_SECS = 1.0
CLOSE_SECS = 3.0
CAUGHT_UP_SECS = 1.0
"""A thread that has found nothing more for that long without looking again is not known to be caught up."""
FIRST_DELAY_SECS, MAX_DELAY_SECS = 0.05, 5.0
"""Before it connects again."""
MOST_CHUNKS = 256
"""Chunks that a partition has, of records that are read and not committed, before those that are done are left out."""


def partition_of(position: Any) -> tuple[Any, ...] | None:
    """Return the partition of a position, `()` for a whole number; None for a text, a date: a name, not a position."""
    if isinstance(position, int):
        return ()
    return position[:-1] if isinstance(position, tuple) and position and isinstance(position[-1], int) else None


class Again:
    """Stands in the queue for a new connection to a source that delivers again what is not confirmed."""


class End:
    """Stands in the queue for the end of a source."""


class ReadAhead:
    """Reads records of one source, and confirms those that are done."""

    def __init__(self, source: Source, context: TopologyContext) -> None:
        self._source, self._context = source, context
        self._chunks: Queue[Any] = Queue(CHUNKS)
        self._acked: deque[Any] = deque()
        """What is done and was not taken by the source's thread: positions with `_renewed`, or what has risen."""
        self._renewed, self._announced = 0, 0
        """How often a connection was renewed that delivers again, as the task knows, and as the thread has announced.
        What was acked before that is not confirmed after it: it may be on its way to the task once more."""
        self._confirmed: deque[Any] = deque()
        """Ids that are confirmed and not taken, if state behind the source asks for them."""
        self._done: list[Any] = []
        """Positions that are acked and not confirmed yet."""
        self._risen: dict[Any, Any] = {}
        """For each partition, the position that is to be committed."""
        self._told: deque[BaseException] = deque()
        self._stop = threading.Event()
        self._is_due, self._due_at = False, 0.0
        self._empty_at = -math.inf
        """When the source had nothing more, if there was no record since."""
        self._has_read = False
        """True once this call of `read_from` has yielded a record."""
        self._gathered: list[Record] = []
        """The records of the next chunk. The same list for life: a lock for each record took a tenth of its time."""
        self._gathered_at, self._takes = 0.0, threading.Lock()
        """When the first of them was yielded; to be held by whoever takes some, and notes their positions."""
        self._newest: Any = None
        """The position that was read last; of a partitioned source a dict, with that of each partition."""
        self._order = AckedInOrder(source.partitioned)
        self._rest: list[Record] = []
        name = f"{context.component_id}[{context.task_id}] reads"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # ---- the task's thread ----

    def start(self) -> None:
        self._thread.start()

    def take(self, rows: int) -> list[Record] | type[Again] | type[End]:
        """Return up to `rows` records that were read, none if there are none. Raises what ended the thread."""
        if self._is_due:
            self.look()
        if not self._rest:
            try:
                found = self._chunks.get_nowait()
            except Empty:
                found = self._overdue()
            if isinstance(found, BaseException):
                raise found
            if found is Again:
                self._renewed += 1
                self._order = AckedInOrder(self._source.partitioned)
            if found is Again or found is End:
                return found
            self._rest = found
        taken, self._rest = self._rest[:rows], self._rest[rows:]
        return taken

    def _overdue(self) -> list[Record]:
        """Take gathered records that have waited for others while `read_from` waits."""
        if not self._gathered or time.monotonic() - self._gathered_at < LOOK_SECS:
            return []
        if not self._takes.acquire(blocking=False):
            return []
        try:
            overdue = self._gathered[:]
            if not overdue or not self._chunks.empty():  # what is there by now was read before
                return []
            self._check_order(overdue)
            self._note_passed(overdue)
            return overdue
        finally:
            self._takes.release()

    def emitted(self, positions: Sequence[Any]) -> None:
        """Note records that are pending from now on."""
        if not self._source.is_confirmed_one_by_one:
            self._order.read(positions)

    def acked(self, positions: Sequence[Any]) -> None:
        """Note that these records are done, and pending no more."""
        if self._source.is_confirmed_one_by_one:
            self._acked.append((self._renewed, positions))
        elif self._is_due or not self._source.kept:
            self.look()

    def look(self) -> None:
        """Note up to where all is done, for the next commit."""
        self._is_due = False
        if risen := self._order.risen(self._source.kept):
            self._acked.append((risen, self._order.named))
            self._order.named = []

    @property
    def is_caught_up(self) -> bool:
        """Whether all that was there when the source looked last, a moment ago, has been taken."""
        # In this order, as what is passed on meanwhile is not taken.
        return time.monotonic() - self._empty_at < CAUGHT_UP_SECS + self._source.pause_secs and self.is_taken

    @property
    def is_taken(self) -> bool:
        """Whether the task has taken all that was passed on."""
        return not self._rest and not self._gathered and self._chunks.empty()

    def partitions(self) -> dict[tuple[Any, ...], bool]:
        """The partitions of the newest positions, and whether they are read as far as they go at present."""
        newest = self._newest
        # What it will read is not known before the first record; until then it holds up event time.
        positions = newest.values() if self._source.partitioned and newest else [newest]
        return dict.fromkeys((partition_of(position) or () for position in positions), self.is_caught_up)

    def confirmed(self) -> list[Any]:
        """Take the ids that are names and were confirmed since the last call."""
        return [self._confirmed.popleft() for _ in range(len(self._confirmed))]

    def tell(self, error: BaseException) -> None:
        """Have the operator told of an error. Any thread may call it."""
        self._told.append(error)

    def errors(self) -> Iterator[BaseException]:
        """Take the errors that are to be told."""
        while self._told:
            yield self._told.popleft()

    def close(self) -> None:
        """Commit what is done, and disconnect. A thread that waits for its server longer is left behind."""
        self.look()
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECS)

    # ---- its own ----

    def _run(self) -> None:
        source, delay_secs = self._source, FIRST_DELAY_SECS
        try:
            while not self._stop.is_set():
                began = source.connection
                try:
                    self._read()
                except source.away as error:
                    if source.connection > began:
                        delay_secs = FIRST_DELAY_SECS
                    self._told.append(Unavailable(source.cut_off(error)))
                    with contextlib.suppress(*source.away):
                        source.disconnect()
                    self._stop.wait(delay_secs * random.uniform(0.5, 1.0))
                    delay_secs = min(2 * delay_secs, MAX_DELAY_SECS)
                else:
                    source.disconnect()
                    return
        except BaseException as error:
            self._put(error)

    def _read(self) -> None:
        """Read until the end, or until the source is closed."""
        source = self._source
        with self._takes:
            self._gathered.clear()  # it is read again
        source.connect(self._context)
        source.connection += 1
        if source.connection == 1:
            self._newest = source.stored_position()
        elif source.delivers_again:
            self._confirm()  # before anything is delivered again
            self._put(Again)
            self._announced += 1
        self._has_read = False
        records = source.read_from(self._newest)
        try:
            self._pass_on(records)
            while not self._stop.wait(LOOK_SECS):
                self._confirm()
        finally:
            if isinstance(records, Generator):
                records.close()
        self._confirm()

    def _pass_on(self, records: Iterator[Record | list[Record] | None]) -> None:
        source, gathered, most = self._source, self._gathered, ROWS
        try:
            for record in records:
                if record:
                    self._empty_at = -math.inf
                if isinstance(record, list):
                    gathered += record
                    if record:
                        source.fitting = _fitting(record[-1])
                elif record is not None:
                    gathered.append(record)
                    if len(gathered) == 1:
                        self._gathered_at = time.monotonic()
                        most = _fitting(record)
                    if len(gathered) < most:
                        continue
                if not gathered and source.pause_secs:
                    self._stop.wait(source.pause_secs)
                self._put_gathered()
                if not record:
                    self._empty_at = time.monotonic()
                self._confirm()
                if self._stop.is_set():
                    return
        finally:
            self._put_gathered()
        self._put(End)

    def _put_gathered(self) -> None:
        with self._takes:
            if chunk := self._gathered[:]:
                self._check_order(chunk)
                self._put(chunk)
                self._note_passed(chunk)  # not before: what could not be passed on is read again

    def _note_passed(self, chunk: Sequence[Record]) -> None:
        """Note the positions of gathered records that have been passed on, and take them off."""
        if self._source.partitioned:
            self._newest = {**(self._newest or {}), **{position[0]: position for position, _ in chunk}}
        else:
            self._newest = chunk[-1][0]
        self._has_read = True
        del self._gathered[: len(chunk)]

    def _check_order(self, records: Sequence[Record]) -> None:
        """Refuse positions that descend before state: what lies between two is taken for something that cannot come."""
        if not self._source.feeds_state or self._source.record_identity != "partition":
            return
        newest: list[Any] = []
        if self._has_read:
            newest = list(self._newest.values()) if self._source.partitioned else [self._newest]
        walk = [*newest, *[position for position, _ in records]]
        with contextlib.suppress(TypeError):  # of positions that do not compare
            by_partition = sorted(walk, key=itemgetter(0)) if self._source.partitioned else walk
            if all(map(le, by_partition, by_partition[1:])):
                return
        before: dict[Any, int] = {}
        for position in walk:
            if (partition := partition_of(position)) is not None:
                number = position[-1] if partition or position.__class__ is tuple else position
                if number < before.get(partition, number):
                    raise ComponentError(
                        f"{type(self._source).__name__}.read_from yielded the position {repr_of(position)} after "
                        f'{before[partition]}; expected ascending positions, or record_identity = "name"'
                    )
                before[partition] = number

    def _put(self, what: Any) -> None:
        """Pass on, as soon as there is room."""
        waited_secs = 0.0
        while not self._stop.is_set():
            try:
                return self._chunks.put(what, timeout=LOOK_SECS)
            except Full:
                if isinstance(what, BaseException):
                    continue
                self._confirm()
                waited_secs += LOOK_SECS
                if waited_secs >= KEEP_ALIVE_SECS:
                    waited_secs = 0.0
                    self._source.keep_alive()
        return None

    def _confirm(self) -> None:
        # What raises is confirmed once more, by the next connection.
        if self._source.is_confirmed_one_by_one:
            while self._acked:
                renewed, positions = self._acked.popleft()
                if renewed == self._announced:
                    self._done += positions
            if self._done:
                self._source.confirm(self._done)
                self._note_confirmed(self._done)
                self._done = []
            return
        while self._acked:
            risen, named = self._acked.popleft()
            self._risen.update(risen)
            self._done += named
        while self._risen:
            partition, position = next(iter(self._risen.items()))
            self._source.commit(position)
            del self._risen[partition]
        self._note_confirmed(self._done)
        self._done = []
        if not self._is_due and (now := time.monotonic()) >= self._due_at:
            self._is_due, self._due_at = True, now + COMMIT_SECS

    def _note_confirmed(self, ids: list[Any]) -> None:
        if self._source.feeds_state:
            self._confirmed.extend(ids)


def _fitting(record: Record) -> int:
    """Return how many records like this one make a chunk."""
    values: Any = getattr(record[1], "values", record[1])
    return max(1, min(ROWS, BYTES // row_bytes(values)))


class AckedInOrder:
    """Tells up to which position all records are acked, although acks arrive out of order. Other than for an
    `AckedPrefix`, the positions need not follow one another without a gap."""

    def __init__(self, partitioned: bool) -> None:
        """`partitioned`: positions are tuples that begin with a partition, and each partition has its own order."""
        self._partitioned = partitioned
        self._open: dict[Any, deque[Sequence[Any]]] = {}
        """For each partition, in order of reading, the positions that are not known to be done, as they were read."""
        self._most: dict[Any, int] = {}
        """For each partition, the chunks after which done ones are left out."""
        self.named: list[Any] = []
        """Of what has risen, the positions that are names; whoever takes them empties it."""

    def read(self, positions: Sequence[Any]) -> None:
        """Note records that were read."""
        if not self._partitioned:
            self._open.setdefault(None, deque()).append(positions)
        else:
            for partition, its in groupby(positions, itemgetter(0)):
                self._open.setdefault(partition, deque()).append(list(its))

    def risen(self, pending: Container[Any]) -> dict[Any, Any]:
        """Return, for each partition that has risen, the position up to which nothing is pending now."""
        risen = {}
        for partition, order in self._open.items():
            while order:
                its = order[0]
                done = next((at for at, position in enumerate(its) if position in pending), len(its))
                if done:
                    risen[partition] = its[done - 1]
                    if partition_of(its[0]) is None:
                        self.named += its[:done]
                if done < len(its):
                    order[0] = its[done:]
                    break
                order.popleft()
            if len(order) > self._most.get(partition, MOST_CHUNKS) and partition_of(order[0][0]) is not None:
                # Behind a record that is held for an hour there would be all that was read in that hour.
                self._open[partition] = order = _without_done(order, pending)
                self._most[partition] = max(MOST_CHUNKS, 2 * len(order))
        return risen


def _without_done(chunks: Iterable[Sequence[Any]], pending: Container[Any]) -> deque[Sequence[Any]]:
    """Return the positions that are pending, and before each the one that is committed when it is the first of them."""
    fewer: deque[list[Any]] = deque([[]])
    for chunk in chunks:
        if len(fewer[-1]) >= ROWS:
            fewer.append([])
        is_pending = [position in pending for position in chunk]
        needed = map(or_, is_pending, [*is_pending[1:], True])
        fewer[-1] += compress(chunk, needed)
    return deque(fewer)
