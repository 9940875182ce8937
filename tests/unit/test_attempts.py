"""What failures say about a message: attempts, strikes, suspects, limits; and what a restart remembers."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import squall.engine.tracking.attempts
import squall.scheduler.records.attempt_journal
from squall import Failure
from squall.engine.api.failure import (
    ANOTHER_TUPLE,
    EXCEPTION,
    FAILED,
    FRAME_DAMAGED,
    FRAME_LOST,
    FROM_OUTSIDE,
    HUNG,
    MACHINE,
    TIMEOUT,
    WORKER_DIED,
    reason_of,
)
from squall.engine.errors import ClusterError
from squall.engine.flow.ids import ALONE
from squall.engine.report.metrics import SpoutStats
from squall.engine.state.task_store import TaskStore
from squall.engine.tracking.attempts import Attempts, Changes, Limits, Remembered, Tries
from squall.engine.tracking.doubt import Doubt
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import OpenMessages, Ports
from squall.scheduler.records.attempt_journal import AttemptJournal
from tests.unit import full_disk

REFUSED, RAISED, DIED, LATE = Failure(FAILED), Failure(EXCEPTION), Failure(WORKER_DIED), Failure(TIMEOUT)
STUCK = Failure(HUNG, "bolt", 2)
LOST, DAMAGED, FULL = Failure(FRAME_LOST), Failure(FRAME_DAMAGED), Failure(reason_of(OSError(errno.ENOSPC, "full")))
BYSTANDER = Failure(WORKER_DIED, error=ANOTHER_TUPLE)


def fail_fast() -> Attempts:
    return Attempts(Limits(max_crashes=5, fail_fast=True))


@pytest.mark.parametrize(("failures", "suspect"), [
    ((DIED,), False),
    ((DIED, DIED), True),
    ((DIED, REFUSED, DIED), False),
    ((DIED, BYSTANDER, DIED), True),
    ((DIED, LOST, DIED), True),
    ((DIED, DAMAGED, DIED), True),
    ((LOST, LOST), False),
    ((BYSTANDER, BYSTANDER, BYSTANDER), False),
    ((FULL, FULL), False),
    ((DIED, DIED, REFUSED), False),
    ((RAISED, RAISED), False),
])
def test_two_deaths_in_a_row_make_a_suspect(failures: tuple[Failure, ...], suspect: bool) -> None:
    attempts = Attempts(Limits(max_crashes=5))
    for failure in failures:
        attempts.failed("m", failure)
    assert ("m" in attempts.held_back) is suspect
    assert (attempts.strikes("m") > 0) is suspect


@pytest.mark.parametrize(("limits", "failure", "condemned_after"), [
    (Limits(max_crashes=5), RAISED, 5),
    (Limits(max_crashes=5, exceptions_crash=False), RAISED, None),
    (Limits(max_crashes=5, exceptions_crash=False), STUCK, 5),
    (Limits(max_attempts=3), REFUSED, 3),
    (Limits(max_attempts=3, max_crashes=2), RAISED, 2),
    (Limits(max_crashes=5), REFUSED, None),
    (Limits(max_attempts=1, max_crashes=1), LOST, None),
    (Limits(max_attempts=3, max_crashes=1), DAMAGED, 3),
    (Limits(), RAISED, None),
])
def test_limits(limits: Limits, failure: Failure, condemned_after: int | None) -> None:
    attempts = Attempts(limits)
    for number in range(1, 20):
        attempts.failed("m", failure)
        assert attempts.condemned("m") is (condemned_after is not None and number >= condemned_after)


def test_the_healthy_path_is_not_looked_at_and_what_changed_is_written_once() -> None:
    attempts = Attempts(Limits(max_crashes=5))
    attempts.resume(Remembered())
    assert not attempts.alert
    assert attempts.take_changes() is None
    attempts.failed("m", REFUSED)
    attempts.failed("n", REFUSED)
    attempts.forget(["n"])
    assert attempts.alert
    changes = attempts.take_changes()
    assert changes is not None
    assert (set(changes.tries), changes.tries["n"]) == ({"m", "n"}, None)
    assert attempts.take_changes() is None
    attempts.forget(["m"])
    assert not attempts.alert


def test_after_a_death_without_a_word_everything_under_way_gets_a_strike_and_is_watched_from_then_on() -> None:
    left = Remembered({"m": Tries(attempts=1, strikes=1)}, {7: "m", 8: "n"}, unclean=True)
    attempts = Attempts(Limits(max_crashes=5))
    everything = attempts.resume(left)
    assert everything.tries.keys() == {"m", "n"}
    assert (attempts.tries["m"].strikes, attempts.tries["n"].strikes) == (2, 1)
    assert attempts.held_back == {"m"}
    attempts.emitted(20, ["other", "third"])
    attempts.answered(20)
    changes = attempts.take_changes()
    assert changes is not None
    assert (changes.out, changes.answered) == ([(20, ["other", "third"])], [(20, ALONE)])


@pytest.mark.parametrize(("unclean", "known", "charged"), [(True, "", 1), (True, FROM_OUTSIDE, 0), (False, "", 0)])
def test_who_was_on_trial_when_its_spouts_worker_died_is_charged(unclean: bool, known: str, charged: int) -> None:
    left = Remembered({"m": Tries(strikes=2), "n": Tries()}, {7: "m", 8: "n"}, (7,), unclean, known)
    attempts = Attempts(Limits(max_crashes=5))
    attempts.resume(left)
    assert (attempts.tries["m"].crashes, attempts.tries["n"].crashes) == (charged, 0)
    assert (attempts.crashes, attempts.tries["n"].strikes, attempts.watching) == (charged, charged, unclean)


def test_the_source_that_reads_a_dead_letter_again_is_told_and_the_message_not_emitted() -> None:
    first = Attempts(Limits(max_crashes=1))
    first.failed("m", RAISED)
    first.buried("m", (1, "x"))
    first.told_dead("m")
    # In the same incarnation an emit is a decision of the source: a new message.
    assert not first.is_buried("m", (1, "x"))
    second = Attempts(Limits(max_crashes=1))
    second.resume(Remembered(dict(first.tries)))
    assert second.held_back == {"m"}
    assert second.is_buried("m", (1, "x"))
    assert second.last_failure("m").reason == EXCEPTION
    # Another message under its id goes out.
    assert not second.is_buried("m", (2, "x"))
    second.told_dead("m")
    assert not second.is_buried("m", (1, "x"))
    assert not second.emitted(1, ["m"])
    assert "m" not in second.tries


def test_what_is_known_against_a_message_is_kept_once_for_all_of_which_the_same_is_known() -> None:
    attempts = Attempts(Limits(max_attempts=3))
    for n in range(50_000):
        attempts.failed(n, Failure("exception", "bolt", 1, "w", f"ValueError: cannot digest {n}"))
    assert len({id(tries) for tries in attempts.tries.values()}) < 20_000
    assert attempts.last_failure(49_999).error == "ValueError"
    assert attempts.last_failure(1).error == "ValueError: cannot digest 1"


def test_what_is_forgotten_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squall.engine.tracking.attempts, "REMEMBERED", 100)
    attempts, told = Attempts(Limits(max_attempts=3)), []
    attempts.forgot = told.append
    for n in range(500):
        attempts.failed(n, Failure("failed"))
    assert len(attempts.tries) <= 100
    (text,) = told
    assert text.startswith("more than 100 messages have failed and are not acked: the oldest failures are forgotten")


def around(error: BaseException, how: str, hidden: bool = False) -> Exception:
    outer = ValueError("not written")
    setattr(outer, how, error)
    outer.__suppress_context__ = hidden or how == "__cause__"
    return outer


def test_an_error_of_the_machine_is_found_in_those_that_wrap_it(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "full")
    fills = "PRAGMA max_page_count = 2; CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(99999))"
    with closing(sqlite3.connect(":memory:")) as database, pytest.raises(sqlite3.OperationalError) as no_room:
        database.executescript(fills)
    with full_disk.no_room(), pytest.raises(ClusterError, match="a quota or a limit") as limited:
        TaskStore(str(tmp_path), "count[1]")
    for error in (full, no_room.value, limited.value):
        assert reason_of(error) == reason_of(around(error, "__cause__")) == MACHINE
        assert reason_of(around(around(error, "__context__"), "__cause__")) == MACHINE
        assert reason_of(around(error, "__context__", hidden=True)) == EXCEPTION
    circle = ValueError()
    circle.__cause__ = circle
    assert {*map(reason_of, (circle, sqlite3.OperationalError("no table"), OSError(errno.ENOENT, "")))} == {EXCEPTION}


def test_a_failure_of_this_life_and_what_earlier_lives_left_are_both_emitted_again() -> None:
    """In one batch: 3 that failed here, 10 that an earlier life left open, and 7 new ones."""
    attempts = Attempts(Limits())
    for number in range(3):
        attempts.failed(number, REFUSED)
    attempts.owe(10)
    assert attempts.again(range(20)) == 13
    assert attempts.owed == 0


# ---- a fault of the set-up is told from bad messages, whatever the order of failures and acks ----


WRONG = Failure(EXCEPTION, "split", error="KeyError: 'm'", where="(app.py, line 9, in execute) with tuple (1,)")
POISON = Failure(EXCEPTION, "count", error="ValueError: bad", where="(app.py, line 30, in execute) with tuple ()")
DISK = Failure(MACHINE, "split", error="OSError: full", where="(app.py, line 9, in execute) with tuple (2,)")
AWAY = Failure(EXCEPTION, "split", error="OperationalError: away", where="(app.py, line 5, in execute) with tuple (3,)")
DEATH = Failure(WORKER_DIED)
STEPS = st.lists(
    st.tuples(st.sampled_from([WRONG, WRONG, POISON, DISK, DEATH, None]), st.integers(0, 60)), max_size=150
)


@given(STEPS, st.booleans())
def test_the_run_stops_only_when_enough_messages_fail_alike_and_hardly_any_is_acked(
    steps: list[tuple[Failure | None, int]], acked_before: bool
) -> None:
    attempts = fail_fast()
    since: dict[int, str] = {}
    for failure, key in steps:
        if failure is None:
            attempts.acked([key], 2)
            since.pop(key, None)
            if not attempts.doubt.causes:
                since.clear()
        else:
            attempts.failed(key, failure)
            attempts.doubt.count_acks()
            if failure is not DEATH:
                since[key] = failure.component
        stops = attempts.doubt.is_set_up(acked_before, 1)
        # Never by few, never by different failures, never by what has failed while others got through.
        assert len(attempts.doubt.causes) <= 32
        if stops:
            assert max(map(list(since.values()).count, since.values())) >= (20 if acked_before else 5)
    # In a new worker, everything is in doubt that was.
    again = fail_fast()
    again.resume(Remembered(dict(attempts.tries)))
    assert again.doubt.causes == attempts.doubt.causes


def test_every_message_that_fails_alike_is_evidence_and_one_ack_clears() -> None:
    for failure in (WRONG, DISK):
        attempts = fail_fast()
        for key in range(4):
            attempts.failed(key, failure)
            attempts.failed(key, failure)
            assert not attempts.doubt.is_set_up(False, 1)
        attempts.failed(4, failure)
        assert attempts.doubt.is_set_up(False, 1)
        assert not attempts.doubt.is_set_up(True, 1)
        attempts.doubt.count_acks()
        attempts.acked([77], 2)
        assert not attempts.doubt.causes
        # It failed while others got through: it is bad itself. A full disk is never a message's fault.
        attempts.failed(0, failure)
        assert bool(attempts.doubt.causes) is (failure is DISK)


def test_a_service_that_is_away_stops_nothing_for_ten_seconds_and_condemns_no_message_that_it_failed() -> None:
    attempts = fail_fast()
    for key in range(40):  # more than can be in doubt
        for _ in range(5):
            attempts.failed(key, AWAY)
    doubt = attempts.doubt
    doubt.count_acks()
    assert not doubt.is_set_up(False, 1_000_000_000)
    assert not doubt.is_set_up(False, 10_999_999_999)
    attempts.acked([97, 98, 99, 100], 2)
    assert not doubt.causes
    assert not any(attempts.condemned(key) for key in range(40))
    # One that goes on while others get through is bad itself.
    for _ in range(5):
        attempts.failed(0, AWAY)
    assert attempts.condemned(0)
    assert not doubt.causes


def test_a_service_that_stays_away_stops_the_run_after_ten_seconds() -> None:
    attempts, retries = fail_fast(), Doubt(waits=True)
    retries.causes.update(dict.fromkeys(range(5), "split KeyError"))
    for key in range(5):
        attempts.failed(key, AWAY)
    for doubt in (attempts.doubt, retries):
        assert [doubt.is_set_up(False, secs * 10**9) for secs in (1, 10, 11)] == [False, False, True]


def test_after_a_death_only_acks_of_what_was_emitted_later_count() -> None:
    doubt = Doubt(waits=False)
    doubt.causes["k"] = "split KeyError"
    assert not doubt.acked(5)
    doubt.count_acks(10)
    assert not doubt.acked(9)
    assert doubt.acked(11) == ["k"]


# ---- the journal of attempts: what was appended is there after a death, torn and foreign files are recognised ----


NOTHING = Changes([], [], {}, ())


def tried(tries: dict[Any, Tries | None]) -> Changes:
    """What is known against these messages is new."""
    return Changes([], [], tries, ())


class Files:
    """Journals of one file, one after another."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "state" / "numbers-0"
        self.complaints: list[str] = []
        self._open: list[AttemptJournal] = []

    def journal(self, topology_id: str = "t-1") -> AttemptJournal:
        journal = AttemptJournal(self.path, topology_id, self.complaints.append)
        self._open.append(journal)
        return journal

    def begin(self, everything: Changes = NOTHING) -> AttemptJournal:
        journal = self.journal()
        journal.append(NOTHING, lambda: everything)
        return journal

    def loaded(self, topology_id: str = "t-1") -> Remembered:
        return self.journal(topology_id).load()

    def close(self) -> None:
        for journal in self._open:
            journal.end()


@pytest.fixture
def files(tmp_path: Path) -> Any:
    made = Files(tmp_path)
    yield made
    made.close()


def test_what_was_appended_is_there_after_a_death(files: Files) -> None:
    journal = files.begin()
    journal.append(Changes([(1, ["a"]), (2, ["b"]), (3, ["c"])], [], {"b": Tries(1)}, (2,)), lambda: NOTHING)
    journal.append(Changes([], [(1, ALONE)], {"b": Tries(2), "c": Tries(1)}, ()), lambda: NOTHING)
    journal.append(Changes([], [], {"c": None}, (3,)), lambda: NOTHING)
    assert files.loaded() == Remembered({"b": Tries(2)}, {2: "b", 3: "c"}, (3,), unclean=True)


@pytest.mark.parametrize("ended", [False, True])
def test_an_end_in_order_is_recognised_and_another_topologys_journal_says_nothing(files: Files, ended: bool) -> None:
    journal = files.begin(Changes([(1, ["a"])], [], {"a": Tries(1)}, ()))
    if ended:
        journal.end()
    left = files.loaded()
    assert (left.unclean, left.tries) == (not ended, {"a": Tries(1)})
    assert files.loaded("t-2") == Remembered()


@pytest.mark.parametrize("cut", [1, 3, 10])
def test_a_torn_record_is_left_out(files: Files, cut: int) -> None:
    journal = files.begin()
    for message_id in "ab":
        journal.append(tried({message_id: Tries(1)}), lambda: NOTHING)
    files.path.write_bytes(files.path.read_bytes()[:-cut])
    assert files.loaded().tries == {"a": Tries(1)}


def test_the_file_is_bounded_by_what_it_stands_for(files: Files) -> None:
    journal = files.begin()
    sizes = []
    for number in range(2000):
        message = f"m{number}" + "x" * 1000
        emitted = [(number, [message])]
        journal.append(Changes(emitted, [(number - 1, ALONE)], {}, ()), partial(Changes, emitted, [], {}, ()))
        sizes.append(files.path.stat().st_size)
    assert max(sizes) < 300_000 < 2000 * 1000
    assert sum(after < before for before, after in pairwise(sizes)) > 3, "written anew"
    assert len(files.loaded().under_way) == 1


def test_an_id_that_cannot_be_pickled_is_told_once_and_costs_the_others_nothing(files: Files) -> None:
    journal = files.begin()
    for _ in range(2):
        journal.append(tried({(lambda: 0): Tries(1), "good": Tries(2)}), lambda: NOTHING)
    assert files.loaded().tries == {"good": Tries(2)}
    assert len(files.complaints) == 1
    assert "will not survive this worker" in files.complaints[0]


def resumed(limits: Limits, files: Files) -> OpenMessages:
    """A spout task of a new incarnation."""
    messages = OpenMessages(
        7, SpoutStats(), 10**18, Fate(limits),
        Ports(lambda: 0, lambda *init: None, lambda root: 0, lambda *letter: None, journal=files.journal()),
    )
    messages.resume("")
    return messages


def test_a_full_disk_is_told_once_and_ends_nothing(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = files.begin()

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(squall.scheduler.records.attempt_journal.os, "write", full)
        for _ in range(3):
            journal.append(tried({"a": Tries(1)}), lambda: NOTHING)
    assert len(files.complaints) == 1
    assert "No space left on device" in files.complaints[0]
    assert files.loaded().tries == {}


@pytest.mark.parametrize("kind", [int, "order-{:012d}".format])
def test_many_messages_are_taken_over(files: Files, kind: Any) -> None:
    """What is known of many, in a journal that was about to be written anew: all of it is there."""
    count = 20_000
    refused = [Tries(k, k, 0, last=Failure("failed", "bolt", 3, "node-1:6700", "ValueError", k)) for k in range(1, 4)]
    table = {kind(n): refused[n % 3] for n in range(count)} | {kind(7): Tries(1, dead=b"digest")}
    journal, some = files.begin(tried(table)), {kind(n): table[kind(n)] for n in range(0, count, 1000)}
    about_to_be_written_anew = 0.99 * 4 * files.path.stat().st_size
    while files.path.stat().st_size < about_to_be_written_anew:
        journal.append(tried(some), lambda: pytest.fail("written anew"))
    journal.end()
    messages = resumed(Limits(3, 5), files)
    attempts = messages.attempts
    messages.write_journal()
    assert attempts.tries == table
    assert attempts.held_back == {kind(n) for n in range(count) if n % 3 == 2 or n == 7}
    messages.end()
    assert files.loaded().tries.keys() == table.keys()
