"""What is written to disk beside Nimbus's store, with its writer killed at every effect.

A row is a class. `work` is done in a child that dies. `is_done` looks at what it has left: it fails if anything is torn
or lost, and returns whether all of the work is done. After the work was done again it must be.
"""

from __future__ import annotations

import os
import time

from squall.engine.api.failure import Failure
from squall.engine.tracking.attempts import Changes, Tries
from squall.ipc.private import append_line, read_lines
from squall.ipc.rundir import RunDir
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import Assignment, SlotChanged, TopologyRecord, WorkerBoot
from squall.scheduler.records.attempt_journal import AttemptJournal
from squall.scheduler.records.dead_letters import DeadLetters
from squall.scheduler.records.failure_file import FailureFile, read_failures, read_last_words, write_last_words
from squall.scheduler.records.worker_ledger import BEGIN, WorkerLedger, read_history

ID = "t-1-00000000"
FAILURE = Failure("failed", "count", 2, "node-1:6700", "no", 1)
HISTORY_BYTES = 2000
"""Small, so that a few steps fill a history."""


class Row:
    """One kind of write."""

    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self.prepare()

    def prepare(self) -> None:
        """Write what was there before."""

    def work(self) -> None:
        raise NotImplementedError

    def is_done(self) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        """Called last."""


class Code(Row):
    def prepare(self) -> None:
        self.codes = CodeStore(self.run_dir.code)
        self.old = {self.codes.put(f"old {number}".encode()) for number in range(3)}

    def work(self) -> None:
        assert self.codes.keep_only({self.codes.put(b"new" * 10_000)})

    def is_done(self) -> bool:
        whole = {name for name in os.listdir(self.run_dir.code) if not name.startswith(".")}
        for digest in whole:
            self.codes.get(digest)
        new = whole - self.old
        assert new or whole == self.old
        return whole == new


class Journal(Row):
    """What is in a journal after each of its writes: 1, 2, 3 messages; then that it ended in order."""

    def prepare(self) -> None:
        self.before = self.journal()
        self.before.append(self.changes(0), lambda: self.changes(0))

    def close(self) -> None:
        self.before.end()

    def journal(self) -> AttemptJournal:
        return AttemptJournal(self.run_dir.attempts("t", "numbers", 0), ID, print)

    def changes(self, *numbers: int) -> Changes:
        return Changes([], [], {number: Tries(attempts=1) for number in numbers}, ())

    def work(self) -> None:
        journal = self.journal()
        journal.load()
        journal.append(self.changes(1), lambda: self.changes(0, 1))
        journal.append(self.changes(2), lambda: self.changes(0, 1, 2))
        journal.end()

    def is_done(self) -> bool:
        left = self.journal().load()
        assert list(left.tries) in ([0], [0, 1], [0, 1, 2])
        assert left.unclean or len(left.tries) == 3
        return not left.unclean


class Letters(Row):
    def prepare(self) -> None:
        self.letters = DeadLetters(self.run_dir.topology_state("t"))
        self.add("old", 1)

    def add(self, message_id: str, length: int) -> None:
        self.letters.add("numbers", 0, message_id, ("x" * length,), FAILURE)

    def listed(self) -> set[str]:
        letters = self.letters.read()
        assert [self.letters.why_not(letter) for letter in letters] == [""] * len(letters)
        return {letter.message_id for letter in letters}

    def requested(self) -> set[str]:
        return {letter.message_id for _, letter in self.letters.take("numbers", 0, (), print)}


class GivenBack(Letters):
    def prepare(self) -> None:
        super().prepare()
        self.add("long", 100_000)

    def work(self) -> None:
        self.letters.give_back()

    def is_done(self) -> bool:
        requested, listed = self.requested(), self.listed()
        assert {f"'{name}'" for name in requested} | listed == {"'old'", "'long'"}
        return requested == {"old", "long"} and not listed


class Refused(Letters):
    def prepare(self) -> None:
        super().prepare()
        self.letters.give_back()

    def work(self) -> None:
        self.letters.refuse_strangers((), print)

    def is_done(self) -> bool:
        requested, listed = self.requested(), self.listed()
        assert requested == {"old"} or listed == {"'old'"}
        return not requested


class Failures(Row):
    def prepare(self) -> None:
        self.note("numbers")

    def note(self, message_id: str) -> None:
        file = FailureFile(self.run_dir, ID, 0)
        file.log.note("numbers", 1, [message_id], FAILURE)
        file.publish(time.monotonic_ns(), at_once=True)

    def work(self) -> None:
        self.note("more")

    def is_done(self) -> bool:
        known = [record.message_id for record in read_failures(self.run_dir, ID)["count"].last]
        assert known[0] == "'numbers'"
        return "'more'" in known


class LastWords(Row):
    def work(self) -> None:
        write_last_words(self.run_dir, ID, 0, 1, {7: FAILURE})

    def is_done(self) -> bool:
        try:
            return read_last_words(self.run_dir, ID, 0, 1) == {7: FAILURE}
        except FileNotFoundError:
            return False


class Ledger(Row):
    def prepare(self) -> None:
        self.me = os.getpid()
        self.ledger = WorkerLedger(self.run_dir, "node-1")
        self.note(1)

    def note(self, incarnation: int) -> None:
        record = TopologyRecord(ID, "t", "ACTIVE", {}, [], "", [], 0.0)
        path = str(self.run_dir.path)
        boot = WorkerBoot(path, "node-1", 6700, incarnation, 0, record, Assignment(ID, 1, [], []), "")
        self.ledger.write(boot, self.me)

    def work(self) -> None:
        self.note(2)

    def is_done(self) -> bool:
        entry = self.ledger.entry(6700)
        assert entry is not None
        assert entry.boot.incarnation in (1, 2)
        return entry.boot.incarnation == 2


class Lines(Row):
    def prepare(self) -> None:
        for word in (b"one", b"two"):
            append_line(self.run_dir.fault_record, word.decode())

    def work(self) -> None:
        append_line(self.run_dir.fault_record, "three" * 1000)

    def is_done(self) -> bool:
        lines = read_lines(self.run_dir.fault_record)
        assert lines[:2] == [b"one", b"two"]
        assert lines[2:] in ([], [b"three" * 1000])
        return len(lines) == 3


class FullHistory(Row):
    """Steps enough to turn it over once."""

    ALL = 12

    def steps(self) -> list[float]:
        return [step.at_monotonic_secs for step in read_history(self.run_dir.logs)]

    def work(self) -> None:
        ledger = WorkerLedger(self.run_dir, "node-1")
        for number in range(len(self.steps()), self.ALL):
            ledger.note_step(SlotChanged("node-1", 0, "", 0, BEGIN, 1, float(number)))

    def is_done(self) -> bool:
        steps = self.steps()
        assert steps == list(range(len(steps)))
        return len(steps) == self.ALL


ROWS: list[type[Row]] = [
    Code, Journal, GivenBack, Refused, Failures, LastWords, Ledger, Lines, FullHistory,
]  # fmt: skip
