"""The topology that simulated clusters run, and the book about it: a source log and a sink ledger, outside the engine.

Guarantees: the book knows what truly happened, whatever tables and boards say. A record is emitted again only for a
cause: its attempt failed, or its spout was opened again. Nothing else is executed than what was emitted, and each word
of an attempt once; no attempt is acked before all its words are counted; the position that outlives a spout passes no
record that is not acked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from squall.engine.api.acked_prefix import AckedPrefix
from squall.engine.api.collectors import BasicCollector, SpoutCollector
from squall.engine.api.component import BasicBolt
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import FRAME_DAMAGED, FRAME_LOST, TIMEOUT, WORKER_DIED, Failure
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.api.topology import Topology
from squall.engine.api.tuple import Tuple
from squall.engine.clock import NS_PER_SEC
from tests.sim.invariants import (
    ACKED_EARLY,
    ANSWERED_TWICE,
    COMMITTED_TOO_FAR,
    EXECUTED_TWICE,
    FAILED_WITHOUT_CAUSE,
    INVENTED,
    MESSAGE_LOST,
    REPEATED_WITHOUT_CAUSE,
    WAITED_FOR_TIMEOUT,
    InvariantBrokenError,
)
from tests.unit.wired import wired

SPOUTS, SPLITS, COUNTS = 2, 2, 2
WORDS = ("storm", "squall", "gust", "breeze", "calm")

Attempt = tuple[int, int]
"""Record, and the number of its attempt."""


class Book:
    """What happened to the records of one topology."""

    def __init__(self, records: int, timeout_secs: float, note: Callable[[str], None]) -> None:
        self.records = records
        self.timeout_secs = timeout_secs
        self.emits_for_secs = 0.0
        self.began_ns = 0
        self.attempts: Counter[int] = Counter()
        """Record -> its attempts so far."""
        self.executed: dict[Attempt, set[int]] = {}
        """The sink's ledger: which words of an attempt were counted."""
        self.emitted_ns: dict[Attempt, int] = {}
        self.acked: set[int] = set()
        self.dead_letters: set[int] = set()
        self.reasons: Counter[str] = Counter()
        self.positions: dict[int, int] = {}
        """Task of the spout -> what it has kept on disk."""
        self.workers_ended: Callable[[], bool] = lambda: False
        """Whether any worker of the topology has ended."""
        self.may_time_out: Callable[[], bool] = lambda: True
        self.breaks = 0
        """How often its links were broken."""
        self._openings: list[dict[int, int]] = []
        """How often a task of the spout was opened: its records, each with its newest attempt there."""
        self._failed: set[Attempt] = set()
        self._answered: set[Attempt] = set()
        self._outcomes: Counter[str] = Counter()
        self._note = note

    def words_of(self, record: int) -> int:
        return record % 4 + 1

    def opened(self, index: int) -> tuple[int, int]:
        """A task of the spout begins at its predecessor's position, and emits again what that had open. Returns the
        number of this opening, and the position. The predecessor may live until it looks at its lease."""
        position = self.positions.get(index, 0)
        for record in range(index, min(self.records, position * SPOUTS), SPOUTS):
            if record not in self.acked | self.dead_letters:
                raise InvariantBrokenError(COMMITTED_TOO_FAR, f"{position} of spout {index}, without {record}")
        self._openings.append({})
        return len(self._openings) - 1, position

    def emits(self, opening: int, record: int, now_ns: int) -> int:
        """An attempt begins; its number."""
        mine = self._openings[opening]
        if record in mine and (record, mine[record]) not in self._failed:
            raise InvariantBrokenError(REPEATED_WITHOUT_CAUSE, f"record {record}, attempt {mine[record]}")
        self.attempts[record] += 1
        attempt = mine[record] = self.attempts[record]
        self.emitted_ns[record, attempt] = now_ns
        self._note(f"emit {record}.{attempt}")
        return attempt

    def counts(self, record: int, attempt: int, index: int, word: str) -> None:
        if not (0 < attempt <= self.attempts[record] and word == WORDS[(record + index) % len(WORDS)]):
            raise InvariantBrokenError(INVENTED, f"word {index}, {word!r}, of {record}.{attempt}")
        done = self.executed.setdefault((record, attempt), set())
        if index in done:
            raise InvariantBrokenError(EXECUTED_TWICE, f"word {index} of {record}.{attempt}")
        done.add(index)
        self._note(f"count {record}.{attempt}.{index}")

    def _answers(self, opening: int, record: int, outcome: str) -> Attempt:
        attempt = record, self._openings[opening][record]
        self._note(f"{outcome} {record}.{attempt[1]}")
        if attempt in self._answered:
            raise InvariantBrokenError(ANSWERED_TWICE, f"attempt {attempt[1]} of record {record}")
        self._answered.add(attempt)
        return attempt

    def acks(self, opening: int, record: int) -> None:
        attempt = self._answers(opening, record, "ack")
        done = self.executed.get(attempt, set())
        if len(done) != self.words_of(record):
            raise InvariantBrokenError(ACKED_EARLY, f"record {record}, of which the words {sorted(done)} were counted")
        self.acked.add(record)
        self._outcomes["acked"] += 1

    def fails(self, opening: int, record: int, reason: str, now_ns: int) -> None:
        attempt = self._answers(opening, record, f"fail ({reason})")
        self.reasons[reason] += 1
        self._failed.add(attempt)
        if reason == TIMEOUT and not self.may_time_out():
            raise InvariantBrokenError(WAITED_FOR_TIMEOUT, f"attempt {attempt[1]} of record {record}")
        has_cause = {
            WORKER_DIED: self.workers_ended(),
            FRAME_LOST: self.breaks > 0,
            FRAME_DAMAGED: self.breaks > 0,
            TIMEOUT: now_ns - self.emitted_ns[attempt] >= self.timeout_secs * NS_PER_SEC,
        }
        if not has_cause.get(reason, False):
            raise InvariantBrokenError(FAILED_WITHOUT_CAUSE, f"attempt {attempt[1]} of record {record}: {reason}")

    def gives_up(self, opening: int, record: int) -> None:
        """A dead letter."""
        self._answers(opening, record, "give up")
        self.dead_letters.add(record)
        self._outcomes["dead_letters"] += 1

    @property
    def totals(self) -> dict[str, int]:
        """What the account must say."""
        outcomes = {what: self._outcomes[what] for what in ("acked", "dead_letters")}
        return {"emitted": sum(self.attempts.values()), **outcomes}

    def check_end(self) -> None:
        """Everything is at rest, and no timeout has passed since it was mended."""
        missing = sorted(set(range(self.records)) - self.acked - self.dead_letters)
        if missing:
            # Those that wait for an answer have one coming, if late; of the others nobody knows any more.
            waiting = [one for one in missing if self.attempts[one] and (one, self.attempts[one]) not in self._answered]
            what = WAITED_FOR_TIMEOUT if waiting == missing else MESSAGE_LOST
            raise InvariantBrokenError(what, f"not acked: {missing}, without an answer: {waiting}")
        for record in self.acked:
            words = range(self.words_of(record))
            done = [done for (one, _), done in self.executed.items() if one == record]
            if not any(set(words) <= each for each in done):
                raise InvariantBrokenError(MESSAGE_LOST, f"record {record} is acked, and was never counted whole")


class _Tap:
    """A spout's collector that numbers the attempts."""

    def __init__(self, collector: SpoutCollector, number: Callable[[int], int]) -> None:
        self._collector = collector
        self._number = number

    def emit(self, values: Any, message_id: int) -> list[int]:
        return self._collector.emit((*values, self._number(message_id)), message_id=message_id)


class Lines(ReplayingSpout):
    """Reads records as they come in, and keeps the position below which all are acked."""

    outputs = ("record", "attempt")
    prefix = AckedPrefix

    def __init__(self, book: Book) -> None:
        self.book = book

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.index = context.task_index
        tap: Any = _Tap(collector, lambda record: self.book.emits(self.opening, record, context.now_ns()))
        super().open(conf, context, tap)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.opening, position = self.book.opened(self.index)
        self.acked = self.prefix(position)

    def read(self) -> Iterator[tuple[int, tuple[int]] | None]:
        book = self.book
        for record in range(self.index + self.acked.committable * SPOUTS, book.records, SPOUTS):
            due_ns = book.began_ns + round(record / book.records * book.emits_for_secs * NS_PER_SEC)
            while self.context.now_ns() < due_ns:
                yield None
            yield record, (record,)

    def ack(self, message_id: int) -> None:
        self.book.acks(self.opening, message_id)
        super().ack(message_id)
        self._keep(message_id)

    def _keep(self, record: int) -> None:
        self.acked.ack(record // SPOUTS)
        self.book.positions[self.index] = self.acked.committable

    def on_failure(self, message_id: int, failure: Failure) -> None:
        self.book.fails(self.opening, message_id, failure.reason, self.context.now_ns())
        super().on_failure(message_id, failure)

    def on_dead_letter(self, message_id: int, failure: Failure) -> None:
        self.book.gives_up(self.opening, message_id)
        super().ack(message_id)
        self._keep(message_id)


class Split(BasicBolt):
    outputs = ("record", "attempt", "index", "word")

    def __init__(self, book: Book) -> None:
        self.book = book

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        record, attempt = tup.values
        for index in range(self.book.words_of(record)):
            collector.emit((record, attempt, index, WORDS[(record + index) % len(WORDS)]))


class Count(BasicBolt):
    def __init__(self, book: Book) -> None:
        self.book = book

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.book.counts(*tup.values)


def topology_of(book: Book, lines: type[Lines] = Lines) -> Topology:
    return wired(
        lines=(lines(book), SPOUTS),
        split=(Split(book), SPLITS, "shuffle lines"),
        count=(Count(book), COUNTS, "fields split word"),
    ).build()
