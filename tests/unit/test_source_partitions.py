"""What a Source says of its partitions, and which ids it confirms, while its thread reads."""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable, Iterator
from queue import Queue
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from squall import ComponentError
from squall.connect import Source
from tests.process.waiting import wait_for


class Given(Source):
    """Yields what it is given; waits in a call while there is nothing."""

    outputs = ("n",)

    def __init__(self) -> None:
        self.given = Queue[Any]()
        self.committed: list[Any] = []

    def read_from(self, position: Any) -> Iterator[Any]:
        while (record := self.given.get()) != "end":
            if isinstance(record, Exception):
                raise record
            yield record

    def commit(self, position: Any) -> None:
        self.committed.append(position)


class Confirmed(Given):
    every_task = True

    def confirm(self, positions: Any) -> None:
        self.committed += positions


class DeliversAgain(Confirmed):
    delivers_again = True


class Parted(Given):
    every_task = partitioned = True


def opened(source: Any, task_index: int = 0) -> Any:
    context: Any = SimpleNamespace(
        component_id="source", task_id=1, task_index=task_index, state_root=None, now_ns=time.monotonic_ns,
        random=random.Random(0))
    source.feeds_state = True
    source.open({}, context, Mock())
    return source


def until(source: Source, what: str, condition: Callable[[], Any]) -> None:
    """Ask for batches until the condition holds."""

    def holds() -> bool:
        source.next_batch(9)
        return bool(condition())

    wait_for(what, holds)


@pytest.fixture(params=[Given])
def source(request: pytest.FixtureRequest) -> Iterator[Given]:
    source = opened(request.param())
    yield source
    source.given.put("end")
    until(source, "the thread to end", lambda: source.at_end)
    source.close()


def look(source: Given) -> None:
    """Wait until its thread has looked for acks."""
    for _ in range(2):
        source.given.put(None)
    wait_for("its thread", source.given.empty)


def read(source: Given, *positions: Any) -> None:
    for position in positions:
        source.given.put([(position, (1,))])
    until(source, "the records", lambda: set(positions) <= set(source.kept))


def test_a_source_is_caught_up_when_it_has_looked_and_found_nothing(source: Given) -> None:
    assert source.partitions() == {(): False}
    source.given.put(None)
    wait_for("the look", lambda: source.partitions() == {(): True})
    source.given.put([(1, (1,))])
    wait_for("the record", lambda: source.partitions() == {(): False})
    source.given.put(None)
    read(source, 2)
    assert source.partitions() == {(): False}
    source.given.put(None)
    wait_for("another look", lambda: source.partitions() == {(): True})
    # It is in a call that takes long.
    wait_for("doubt", lambda: source.partitions() == {(): False})


def test_a_task_that_does_not_read_has_no_partitions() -> None:
    assert opened(Given(), task_index=1).partitions() == {}


def test_a_source_that_has_ended_has_no_partitions(source: Given) -> None:
    read(source, ("file", 1))
    assert source.partitions() == {("file",): False}
    source.given.put("end")
    until(source, "the end", lambda: source.partitions() == {})


@pytest.mark.parametrize("source", [Parted], indirect=True)
def test_partitions_are_what_positions_begin_with(source: Given) -> None:
    read(source, ("a", 1), ("b", "x", 1))
    assert source.partitions() == {("a",): False, ("b", "x"): False}


def test_single_records_are_emitted_while_the_source_waits_for_more(source: Given) -> None:
    for number in range(3):
        source.given.put((number, (1,)))
    until(source, "them", lambda: [*source.kept] == [0, 1, 2])
    source.given.put([(3, (1,))])
    source.given.put((4, (1,)))
    until(source, "two more", lambda: [*source.kept] == [*range(5)])


@pytest.mark.parametrize(("kind", "identity"), [(Given, "partition"), (Parted, "partition"), (Confirmed, "name")])
def test_what_ids_name(kind: type[Given], identity: str) -> None:
    assert kind().record_identity == identity


@pytest.mark.parametrize(("kind", "ids"), [
    (Given, [1, 5, 3]), (Given, ["x", 5, 3]), (Given, [*range(1100), 3]), (Parted, [("a", 9), ("b", 5), ("b", 3)]),
])
@pytest.mark.parametrize("together", [True, False])
def test_positions_that_descend_before_state_are_refused(kind: type[Given], ids: list[Any], together: bool) -> None:
    source, records = opened(kind()), [(id_, ("x",)) for id_ in ids]
    for chunk in [records] if together else [[record] for record in records]:
        source.given.put(chunk)
    with pytest.raises(ComponentError, match=r"position (3|\('b', 3\)) after \d+; expected ascending"):
        until(source, "the error", lambda: False)
    source.close()


DAYS = [datetime.date(2020, 1, day) for day in range(1, 5)]


@pytest.mark.parametrize(("source", "ids", "named"), [
    (Given, DAYS, DAYS[:2]), (Confirmed, DAYS, DAYS[:2]), (Given, [1, 2, 3, 4], []), (Parted, [("a", 1), ("a", 2)], []),
], indirect=["source"])
def test_names_that_are_confirmed_are_said_once(source: Given, ids: list[Any], named: list[Any]) -> None:
    assert not source.confirmed()
    read(source, *ids)
    source.ack_batch(ids[:2])
    until(source, "the commit", lambda: look(source) or source.committed[-1:] == ids[1:2])
    if named:
        found = list[Any]()
        wait_for("what is confirmed", lambda: found.extend(source.confirmed()) or found == named)
    assert not source.confirmed()


@pytest.mark.parametrize("source", [DeliversAgain], indirect=True)
def test_an_ack_of_an_earlier_connection_confirms_nothing_that_is_delivered_again(source: Given) -> None:
    read(source, "a")
    source.given.put(ConnectionResetError("cut"))
    source.given.put([("a", (1,))])
    look(source)
    source.ack_batch(["a"])  # of the first delivery, while the second one is read and not emitted
    look(source)
    assert source.committed == []
    until(source, "the second one", lambda: "a" in source.kept)
    for _ in range(2):  # of either delivery
        source.ack_batch(["a"])
        look(source)
        assert source.committed == ["a"]


@pytest.mark.parametrize("source", [DeliversAgain], indirect=True)
def test_a_new_connection_copies_no_record_that_is_under_way_or_waits_for_its_retry(source: Any) -> None:
    read(source, "failing", "slow")
    source.on_failure("failing", SimpleNamespace(attempt=8))
    for _ in range(2):
        source.given.put(ConnectionResetError("cut"))
        source.given.put([("failing", (1,)), ("slow", (1,))])
        look(source)
        until(source, "both", source.is_taken)
    assert source.collector.emit_batch.call_count == 2
    until(source, "the retry", lambda: source.collector.emit.called)
    source.ack("slow")
    until(source, "it", lambda: look(source) or source.committed == ["slow"])
