"""The journal of attempts: what was appended is there after a death; torn, foreign and ended files are recognised."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import squall.scheduler.records.attempt_journal
from squall import Failure, Spout
from squall.engine.api.failure import WORKER_DIED
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.attempts import Changes, Limits, Remembered, Tries
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import OpenMessages
from squall.scheduler.records.attempt_journal import AttemptJournal

NOTHING = Changes([], [], {}, ())


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
    journal.append(Changes([(1, "a"), (2, "b"), (3, "c")], [], {"b": Tries(1)}, (2,)), lambda: NOTHING)
    journal.append(Changes([], [1], {"b": Tries(2), "c": Tries(1)}, ()), lambda: NOTHING)
    journal.append(Changes([], [], {"c": None}, (3,)), lambda: NOTHING)
    assert files.loaded() == Remembered({"b": Tries(2)}, {2: "b", 3: "c"}, (3,), unclean=True)


@pytest.mark.parametrize("ended", [False, True])
def test_an_end_in_order_is_recognised_and_another_topologys_journal_says_nothing(files: Files, ended: bool) -> None:
    journal = files.begin(Changes([(1, "a")], [], {"a": Tries(1)}, ()))
    if ended:
        journal.end()
    left = files.loaded()
    assert (left.unclean, left.tries) == (not ended, {"a": Tries(1)})
    assert files.loaded("t-2") == Remembered()


@pytest.mark.parametrize("cut", [1, 3, 10])
def test_a_torn_record_is_left_out(files: Files, cut: int) -> None:
    journal = files.begin()
    for message_id in "ab":
        journal.append(Changes([], [], {message_id: Tries(1)}, ()), lambda: NOTHING)
    files.path.write_bytes(files.path.read_bytes()[:-cut])
    assert files.loaded().tries == {"a": Tries(1)}


def test_the_file_is_bounded_by_what_it_stands_for(files: Files) -> None:
    journal = files.begin()
    sizes = []
    for number in range(2000):
        message = f"m{number}" + "x" * 1000
        snapshot = Changes([(number, message)], [], {}, ())
        journal.append(Changes([(number, message)], [number - 1], {}, ()), lambda now=snapshot: now)
        sizes.append(files.path.stat().st_size)
    assert max(sizes) < 300_000 < 2000 * 1000
    assert sum(after < before for before, after in pairwise(sizes)) > 3, "written anew"
    assert len(files.loaded().under_way) == 1


def test_an_id_that_cannot_be_pickled_is_told_once_and_costs_the_others_nothing(files: Files) -> None:
    journal = files.begin()
    for _ in range(2):
        journal.append(Changes([], [], {(lambda: 0): Tries(1), "good": Tries(2)}, ()), lambda: NOTHING)
    assert files.loaded().tries == {"good": Tries(2)}
    assert len(files.complaints) == 1
    assert "will not survive this worker" in files.complaints[0]


def resumed(limits: Limits, files: Files) -> OpenMessages:
    """A spout task of a new incarnation."""
    messages = OpenMessages(
        7, Spout(), lambda: 0, 10**18, SpoutStats(), lambda *init: None, lambda root: 0, lambda *letter: None,
        Fate(limits), journal=files.journal(),
    )
    messages.resume("")
    return messages


def emit_again(messages: OpenMessages, root: int, message_id: Any, values: Any) -> int:
    messages.add(root, message_id, values, 1, 0)
    return root


def test_from_one_incarnation_to_the_next(files: Files) -> None:
    """The whole life of a poison tuple that kills its spout's own worker."""
    limits = Limits(max_crashes=5)
    deaths = 0
    while True:
        messages = resumed(limits, files)
        attempts = messages.attempts
        if attempts.condemned("poison"):
            break
        for root, message_id in ((deaths * 10 + 1, "poison"), (deaths * 10 + 2, f"innocent {deaths}")):
            if message_id in attempts.held_back:
                messages.hold(message_id, ())
                messages.let_go(partial(emit_again, messages, root))
            else:
                messages.add(root, message_id, (), 1, 0)
        messages.write_journal()
        deaths += 1
    # Once nobody watched, twice it was one of two, five times it was alone.
    assert deaths == 8
    assert attempts.last_failure("poison").reason == WORKER_DIED
    assert attempts.held_back == {"poison"}


def test_a_full_disk_is_told_once_and_ends_nothing(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = files.begin()

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(squall.scheduler.records.attempt_journal.os, "write", full)
        for _ in range(3):
            journal.append(Changes([], [], {"a": Tries(1)}, ()), lambda: NOTHING)
    assert len(files.complaints) == 1
    assert "No space left on device" in files.complaints[0]
    assert files.loaded().tries == {}


@pytest.mark.parametrize("kind", [int, "order-{:012d}".format])
def test_many_messages_are_taken_over(files: Files, kind: Any) -> None:
    """What is known of many, in a journal that was about to be written anew: all of it is there."""
    count = 20_000
    refused = [Tries(k, k, 0, last=Failure("failed", "bolt", 3, "node-1:6700", "ValueError", k)) for k in range(1, 4)]
    table = {kind(n): refused[n % 3] for n in range(count)} | {kind(7): Tries(1, dead=b"digest")}
    journal, some = files.begin(Changes([], [], table, ())), {kind(n): table[kind(n)] for n in range(0, count, 1000)}
    about_to_be_written_anew = 0.99 * 4 * files.path.stat().st_size
    while files.path.stat().st_size < about_to_be_written_anew:
        journal.append(Changes([], [], some, ()), lambda: pytest.fail("written anew"))
    journal.end()
    messages = resumed(Limits(3, 5), files)
    attempts = messages.attempts
    messages.write_journal()
    assert attempts.tries == table
    assert attempts.held_back == {kind(n) for n in range(count) if n % 3 == 2 or n == 7}
    messages.end()
    assert files.loaded().tries.keys() == table.keys()
