"""Dead letters: kept, listed, given back, and never lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
from click.testing import CliRunner, Result

from squall import Failure, UsageError
from squall.cli.data.kept import dead_letters_command
from squall.engine.api.failure import EXCEPTION, FAILED, WORKER_DIED
from squall.engine.flow.spout_collector import Routed
from squall.ipc.rundir import RunDir
from squall.scheduler.records.dead_letters import LEDGER, DeadLetter, DeadLetters
from squall.ui.pages.troubles import letter_row
from tests.parcels import NESTED, SCALARS, same

WHY = Failure(EXCEPTION, "bolt", 3, "node-1:6700", "ValueError: no", 5)


@pytest.fixture
def letters(tmp_path: Path) -> DeadLetters:
    return DeadLetters(tmp_path / "state")


def add(letters: DeadLetters, *ids: Any) -> list[DeadLetter]:
    for message_id in ids:
        letters.add("spout", 1, message_id, (message_id, b"\0"), WHY)
    return letters.read()


def taken(letters: DeadLetters, index: int = 1) -> list[tuple[Any, Any]]:
    return [(letter.message_id, letter.values) for _, letter in letters.take("spout", index, (), str)]


def test_a_letter_holds_everything_and_goes_back_to_its_own_task_with_its_very_values(letters: DeadLetters) -> None:
    assert letters.read() == []
    (letter, _) = add(letters, ("a", 1), "b")
    assert (letter.spout, letter.task_index, letter.message_id) == ("spout", 1, "('a', 1)")
    assert letter.values == "(('a', 1), b'\\x00')"
    assert (letter.reason, letter.component, letter.task, letter.worker, letter.error, letter.attempt) == (
        "exception", "bolt", 3, "node-1:6700", "ValueError: no", 5,
    )
    assert letter.at.endswith("+00:00")
    assert not hasattr(letter, "payload")
    assert (letters.directory / LEDGER).stat().st_mode & 0o777 == 0o600
    assert len(letters.give_back()) == 2
    assert taken(letters, index=0) == []
    assert taken(letters) == [(("a", 1), (("a", 1), b"\0")), ("b", ("b", b"\0"))]
    assert letters.read() == letters.give_back() == []


def test_the_page_says_why_and_where_a_letter_failed(letters: DeadLetters) -> None:
    letters.add("spout", 1, "c", (), Failure(WORKER_DIED, worker="node-1:6700"))
    rows = [letter_row(letter) for letter in add(letters, "a")]
    assert [(row["why"], row["where"]) for row in rows] == [
        ("worker died", "node-1:6700"), ("exception: ValueError: no", "bolt"),
    ]


def test_every_value_comes_back_with_its_type(letters: DeadLetters) -> None:
    values = (*SCALARS, *NESTED, numpy.float32(0.5), numpy.datetime64("2026-11-23"), numpy.str_("text"))
    letters.add("spout", 1, values, values, WHY)
    letters.add("spout", 1, 2, Routed.on("other", None, values), WHY)
    letters.give_back()
    (first, plain), (_, routed) = taken(letters)
    assert same([first, plain, tuple(routed)], [values] * 3)


def unpickled(letters: DeadLetters) -> None:
    letters.add("spout", 1, "bad", (lambda: 0,), WHY)


def given_up(letters: DeadLetters) -> None:
    """It has bytes where the column says text: a bolt would take them for something else."""
    letters.add("spout", 1, "bad", (b"caf\xe9",), Failure(FAILED, "spout", 1, error="no text in row 3"))


def lost(letters: DeadLetters) -> None:
    letters.add("spout", 1, "bad", ("x" * 100_000,), WHY)
    [payload] = (letters.directory / "dead-letters").iterdir()
    payload.unlink()


@pytest.mark.parametrize(("add_bad", "why"), [
    (unpickled, "Can.t pickle"),
    (given_up, "its spout gave it up, as no bolt could take it: no text in row 3"),
    (lost, "is missing"),
])
def test_what_cannot_be_given_back_stays_and_keeps_no_other(
    letters: DeadLetters, add_bad: Callable[[DeadLetters], None], why: str
) -> None:
    add_bad(letters)
    add(letters, "other")
    assert [letter.message_id for letter in letters.give_back()] == ["'other'"]
    assert [message_id for message_id, _ in taken(letters)] == ["other"]
    (kept,) = letters.read()
    with pytest.raises(UsageError, match=f"dead letter {kept.id} cannot be given back: .*{why}"):
        letters.give_back([kept.id])
    assert letters.read() == [kept]


def test_a_request_stays_until_it_is_settled(letters: DeadLetters) -> None:
    add(letters, "a")
    letters.give_back()
    ((name, letter),) = letters.take("spout", 1, (), str)
    assert list(letters.take("spout", 1, {name}, str)) == []
    # Its worker died: the next one takes it again.
    ((_, letter),) = letters.take("spout", 1, (), str)
    letter.closed()
    assert list(letters.take("spout", 1, (), str)) == []


def test_two_who_ask_at_once_do_not_get_it_twice(letters: DeadLetters) -> None:
    add(letters, *range(50))
    with ThreadPoolExecutor(4) as askers:
        asked = [askers.submit(letters.give_back) for _ in range(4)]
    got = [letter.id for given in asked for letter in given.result()]
    assert len({*got}) == len(got) == 50


def test_what_is_being_written_is_not_there_yet_and_what_a_death_left_spoils_nothing(letters: DeadLetters) -> None:
    first, _ = add(letters, "a", "b")
    letters.give_back([first.id])
    add(letters, "c")
    for name in (LEDGER, "dead-letters.given-back"):
        path = letters.directory / name
        path.write_bytes(path.read_bytes()[:-3])
    assert [letter.message_id for letter in letters.read()] == ["'a'", "'b'"]
    assert [letter.message_id for letter in add(letters, "d")] == ["'a'", "'b'", "'d'"]
    letters.give_back([first.id])
    assert [letter.message_id for letter in letters.read()] == ["'b'", "'d'"]


def test_what_the_topology_cannot_read_stays_in_the_ledger(letters: DeadLetters) -> None:
    (letter,) = add(letters, "a")
    letters.give_back()
    request = letters.directory / ".given-back" / "spout-1" / letter.id
    request.write_text("bm90IGEgcGlja2xl")
    told: list[str] = []
    assert list(letters.take("spout", 1, (), told.append)) == []
    assert "cannot be read by this topology" in told[0]
    assert letters.read() == [letter]
    assert letters.give_back() == [letter]


@pytest.mark.parametrize("value", [b"x" * (20 << 20), "y" * 100_000, [1] * 100_000], ids=["bytes", "text", "list"])
def test_a_big_value_makes_a_short_line_and_is_given_back_exactly(letters: DeadLetters, value: Any) -> None:
    letters.add("spout", 1, 7, (value, 1), WHY)
    assert (letters.directory / LEDGER).stat().st_size < 2000
    (letter,) = letters.read()
    assert len(letter.values) <= 500
    assert [given.id for given in letters.give_back()] == [letter.id]
    assert taken(letters) == [(7, (value, 1))]


@pytest.mark.parametrize(("index", "spout"), [(1, "gone"), (9, "spout")])
def test_a_letter_for_a_task_that_is_not_there_comes_back(letters: DeadLetters, index: int, spout: str) -> None:
    letters.add(spout, index, "a", ("a",), WHY)
    letters.add("spout", 1, "b", ("b",), WHY)
    stranger, _ = letters.give_back()
    told: list[str] = []
    letters.refuse_strangers({"spout-0", "spout-1"}, told.append)
    assert told == [f"dead letter {stranger.id} is for task {spout}-{index}, which this topology does not have"]
    assert letters.read() == [stranger]
    assert [letter.message_id for _, letter in letters.take("spout", 1, (), str)] == ["b"]
    assert letters.give_back() == [stranger]


LONG = "ValueError: " + "cannot digest this " * 25


def ask(path: Path, *options: str) -> tuple[DeadLetters, Result]:
    """A ledger of two letters, and what the command answers."""
    run_dir = RunDir.create(path)
    ledger = DeadLetters(run_dir.topology_state("poison"))
    ledger.add("numbers", 0, 333, (333, "x" * 1000), Failure("exception", "bad", 3, "node-1:6700", LONG, 5))
    ledger.add("numbers", 0, 334, (334, "y"), Failure("worker died", attempt=2))
    return ledger, CliRunner().invoke(dead_letters_command, ["poison", "--dir", str(run_dir.path), *options])


def test_a_long_error_takes_no_room_from_the_others(tmp_path: Path) -> None:
    ledger, shown = ask(tmp_path)
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    long, other = (next(line for line in lines if letter.id in line) for letter in ledger.read())
    assert long.split()[2:4] == ["numbers[0]", "333"]
    assert "exception in bad[3] on node-1:6700: ValueError: cannot digest" in long
    assert long.endswith("... (attempt 5)")
    assert "(334, 'y')" in other
    assert other.endswith("worker died (attempt 2)")
    _, as_json = ask(tmp_path / "again", "--json")
    assert json.loads(as_json.output)["letters"][0]["error"] == LONG


@pytest.mark.parametrize("replay", [(), ("--replay",)])
def test_an_id_that_is_not_there_is_an_error(tmp_path: Path, replay: tuple[str, ...]) -> None:
    ledger, wrong = ask(tmp_path, "--id", "none", *replay)
    assert isinstance(wrong.exception, UsageError)
    assert "there is no dead letter 'none' in " in str(wrong.exception)
    assert len(ledger.read()) == 2
