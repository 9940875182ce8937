"""A source that delivers again after a new connection: what is confirmed then was not on its way to the task."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from squall.connect import Source
from squall.testing import wait_for


class Delivers(Source):
    """Delivers "a" at each connection until it is confirmed."""

    outputs = ("value",)
    delivers_again = True
    pause_secs = 0.001

    def __init__(self) -> None:
        self.cut, self.looks, self.confirmed_after = False, 0, list[int]()
        self.emitted = 0

    def read_from(self, position: Any) -> Iterator[Any]:
        if not self.confirmed_after:
            yield "a", ("a",)
        while not self.cut:
            self.looks += 1
            yield None
        self.cut = False
        raise ConnectionResetError("cut")

    def confirm(self, positions: Sequence[Any]) -> None:
        assert positions == ["a"]
        self.confirmed_after.append(self.emitted)

    def emit_batch(self, columns: Any, message_ids: list[str]) -> None:
        self.emitted += len(message_ids)

    def report_error(self, error: BaseException) -> None:
        assert "cut" in str(error)

    def begin(self) -> None:
        context: Any = SimpleNamespace(
            component_id="a", task_id=1, task_index=0, state_root=None, now_ns=lambda: 0, random=random.Random(0))
        self.open({}, context, self)  # type: ignore[arg-type]

    def emit(self, number: int) -> None:
        def all_out() -> bool:
            self.next_batch(10)
            return self.emitted == number

        wait_for("an emit", all_out)

    def look(self) -> None:
        """Wait until its thread has looked for acks."""
        before = self.looks
        wait_for("its thread", lambda: self.looks > before + 3)

    def renew(self) -> None:
        before, self.cut = self.connection, True
        wait_for("a new connection", lambda: self.connection > before)
        self.look()


def test_an_ack_of_an_earlier_connection_confirms_nothing_that_is_delivered_again() -> None:
    source = Delivers()
    source.begin()
    try:
        source.emit(1)
        source.renew()
        source.ack_batch(["a"])  # of the first delivery, while the second one is read and not emitted
        source.look()
        assert source.confirmed_after == []
        source.emit(2)
        source.ack_batch(["a"])
        wait_for("it to be confirmed", lambda: source.confirmed_after)
        assert source.confirmed_after == [2]
        source.ack_batch(["a"])  # of the other attempt
        source.look()
        assert source.confirmed_after == [2]
    finally:
        source.close()
