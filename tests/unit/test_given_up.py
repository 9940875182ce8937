"""A message that its spout gives up instead of emitting it is a dead letter: counted, told, and written down once."""

from __future__ import annotations

from typing import Any

import pytest

from squall import Config, Failure, Spout
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.attempts import Remembered
from squall.engine.tracking.open_messages import OpenMessages
from squall.testing.simulated import SimulatedCluster
from tests.unit.rig import Does, Feeder, acks, chain, copy_component


class Picky(Feeder):
    """Emits even numbers, and gives up odd ones."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.numbers = iter(range(numbers))
        self.dead: list[tuple[int, Failure]] = []

    def next_tuple(self) -> None:
        number = next(self.numbers, None)
        if number is None:
            self.exhausted = True
        elif number % 2:
            self.collector.give_up((f"{number}",), number, f"{number} is odd")
        else:
            self.collector.emit((number,), message_id=number)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self.dead.append((message_id, failure))


@pytest.mark.parametrize("settings", [{}, {"max_crashes": None}, {"ackers": 0}])
def test_it_is_in_the_ledger_and_the_account_and_the_others_flow(settings: dict[str, Any]) -> None:
    topology = chain(Picky(6), Does(acks)).build()
    with SimulatedCluster(topology, Config(**settings), record=False, copy=copy_component) as lab:
        lab.settle()
        spout: Picky = lab.user("spout")
        task = lab.plan.tasks_of("spout")[0]
        failures = [Failure("failed", "spout", task, error=f"{number} is odd") for number in (1, 3, 5)]
        assert [(number, values, failure) for _, _, number, values, failure in lab.dead_letters] == [
            (1, ("1",), failures[0]), (3, ("3",), failures[1]), (5, ("5",), failures[2]),
        ]
        assert spout.dead == [(1, failures[0]), (3, failures[1]), (5, failures[2])]
        assert spout.acked == [0, 2, 4]
        report = lab.report()
        # Without ackers, what is emitted is in no account.
        emitted = 3 if settings.get("ackers") == 0 else 6
        assert (report.emitted, report.dead_letters, report.failed, report.pending) == (emitted, 3, 0, 0)
        assert lab.drained


def test_one_that_is_in_the_ledger_already_is_not_written_there_again() -> None:
    failure = Failure("failed", "spout", 1, error="odd")

    def task(left: Remembered) -> tuple[OpenMessages, list[Any]]:
        written: list[Any] = []
        messages = OpenMessages(
            7, Spout(), lambda: 0, 1, SpoutStats(), lambda *init: None, lambda root: 0,
            lambda message_id, values, _: written.append(values),
        )
        messages.attempts.resume(left)
        return messages, written

    first, written = task(Remembered())
    first.bury("m", ("1",), failure)
    assert written == [("1",)]
    second, written = task(Remembered(dict(first.attempts.tries)))
    second.bury("m", ("1",), failure)
    assert written == []
    # Its source gives it up once more, on purpose; or a message with other contents has its id.
    second.bury("m", ("1",), failure)
    second.bury("m", ("2",), failure)
    assert written == [("1",), ("2",)]
