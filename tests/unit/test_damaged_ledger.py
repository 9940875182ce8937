"""A damaged ledger of dead letters: what can be read is listed and given back, the rest is named, the code is 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.cli.data.kept import dead_letters_command
from squall.engine.api.failure import Failure
from squall.ipc.rundir import RunDir
from squall.scheduler.records.dead_letters import LEDGER, DeadLetters

WHY = Failure("exception", "bad", 3, "node-1:6700", "ValueError: no", 5)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir.create(tmp_path / "run")
    for number in range(3):
        ledger_of(run_dir).add("numbers", 0, number, (number,), WHY)
    return run_dir


def ledger_of(run_dir: RunDir) -> DeadLetters:
    return DeadLetters(run_dir.topology_state("poison"))


def asked(run_dir: RunDir, *options: str) -> Result:
    return CliRunner().invoke(
        dead_letters_command, ["poison", "--dir", str(run_dir.path), *options], catch_exceptions=False
    )


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 0x80]) + data[place + 1 :]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], list[str], int]] = {
    "a flipped byte in line 1": (flipped(20), ["1", "2"], 1),
    "cut at its end": (lambda data: data[:-50], ["0", "1"], 3),
    "its last newline missing": (lambda data: data[:-1], ["0", "1"], 3),
    "zeros at its end": (lambda data: data + bytes(3000), ["0", "1", "2"], 4),
    "null": (lambda data: b"null\n" + data, ["0", "1", "2"], 1),
    "nested without end": (lambda data: b"[" * 100_000 + b"\n" + data, ["0", "1", "2"], 1),
    "a number for a text": (lambda data: data.replace(b'"spout": "numbers"', b'"spout": 5', 1), ["1", "2"], 1),
    "an id that is a path": (lambda data: data.replace(b'"id": "', b'"id": "../', 1), ["1", "2"], 1),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_the_others_are_listed_and_the_line_is_named(run_dir: RunDir, what: str) -> None:
    change, left, number = DAMAGE[what]
    path = ledger_of(run_dir).directory / LEDGER
    path.write_bytes(change(path.read_bytes()))
    shown = asked(run_dir)
    assert shown.exit_code == 1
    assert f"{len(left)} dead letters of poison" in shown.stdout
    assert f"{path}, line {number} is no dead letter: " in shown.stderr
    document = json.loads(asked(run_dir, "--json").stdout)
    assert [letter["message_id"] for letter in document["letters"]] == left
    assert len(document["damaged"]) == 1


def test_the_others_are_given_back(run_dir: RunDir) -> None:
    ledger = ledger_of(run_dir)
    path = ledger.directory / LEDGER
    path.write_bytes(flipped(20)(path.read_bytes()))
    replayed = asked(run_dir, "--replay")
    assert replayed.exit_code == 1
    assert "2 given back to poison" in replayed.stdout
    assert "line 1 is no dead letter" in replayed.stderr
    assert sorted(letter.message_id for _, letter in ledger.take("numbers", 0, (), str)) == [1, 2]


def test_a_damaged_mark_of_what_was_given_back_is_named_and_its_letter_listed(run_dir: RunDir) -> None:
    ledger = ledger_of(run_dir)
    ledger.give_back()
    path = ledger.directory / "dead-letters.given-back"
    path.write_bytes(flipped(3)(path.read_bytes()))
    shown = asked(run_dir)
    assert shown.exit_code == 1
    assert "1 dead letter of poison" in shown.stdout
    assert f"{path}, line 1 names no dead letter" in shown.stderr
