"""How RabbitSource names messages, with a broker that is played."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call, patch

import pytest

from squall import UsageError
from squall.connect import RabbitSource, rabbit
from squall.connect.source import Unreadable

Message = tuple[str, str | None]


@pytest.fixture(autouse=True)
def clock() -> Iterator[Mock]:
    with patch.object(rabbit, "time") as clock:
        clock.monotonic.return_value = 1000.0
        yield clock


class Read:
    """A source that is connected."""

    def __init__(self, identity: str | None) -> None:
        self.source = RabbitSource("amqp://host", "in", identity=identity)
        self.source.feeds_state = True
        self.connect()

    def connect(self) -> None:
        with patch.object(rabbit, "Link") as link:
            self.source.connect(Mock())
        self.link, self.tag = link(), 0
        self.take = self.link.ask.call_args.args[2]
        self._records = self.source.read_from(None)

    def ids(self, *messages: Message) -> list[Any]:
        return [position for position, _ in self.records(*messages)]

    def records(self, *messages: Message) -> list[Any]:
        for body, message_id in messages:
            self.tag += 1
            method = SimpleNamespace(delivery_tag=self.tag, routing_key="in")
            self.take(None, method, SimpleNamespace(message_id=message_id), body.encode())
        return next(self._records)

    def after(self, clock: Mock, secs: float) -> list[Any]:
        """What is sure then."""
        clock.monotonic.return_value += secs
        self.records()
        return list(self.source.confirmed())


def test_equal_messages_are_several_and_known_when_they_are_delivered_again() -> None:
    read = Read(None)
    first, second = read.ids(("click", "7"), ("click", "7"))
    assert first != second
    read.source.confirm([first])
    assert read.ids(("click", "7")) == [first], "after a death it would not be known"
    assert read.source.record_identity is None


def test_a_message_is_named_by_its_message_id() -> None:
    read = Read("message_id")
    assert read.source.record_identity == "name"
    assert read.ids(("click", "a"), ("click", "b")) == ["a", "b"]
    read.connect()
    assert read.ids(("click", "b"), ("other", "a")) == ["b", "a"]


def test_a_message_that_is_published_again_while_it_is_pending_is_done_with_the_first() -> None:
    read = Read("message_id")
    assert read.ids(("click", "a"), ("click", "b"), ("click", "a")) == ["a", "b"]
    assert read.ids(("click", "a")) == []
    read.source.confirm(["a"])
    assert read.link.channel.basic_ack.call_args_list == [call(3), call(4), call(1, multiple=True)]
    assert read.ids(("click", "a")) == ["a"]


def test_a_message_without_a_message_id_is_a_dead_letter() -> None:
    read = Read("message_id")
    records = read.records(("click", None), ("click", ""))
    assert len({position for position, _ in records}) == 2
    assert [values.why for _, values in records if isinstance(values, Unreadable)] == [
        'it has no message_id, by which identity="message_id" knows it'] * 2


def test_each_delivery_counts_if_so_told() -> None:
    read = Read("none")
    ids = read.ids(("click", "a"), ("click", "a"))
    read.connect()
    ids += read.ids(("click", "a"), ("click", "a"))
    assert len(set(ids)) == 4
    assert (read.source.record_identity, read.source.counts_at_least_once) == ("name", True)


@pytest.mark.parametrize("feeds_state", [True, False])
def test_an_id_is_forgotten_when_the_broker_has_surely_taken_the_confirmation(clock: Mock, feeds_state: bool) -> None:
    """If state remembers it."""
    read = Read("message_id")
    read.source.feeds_state = feeds_state
    asked = read.link.ask.call_count
    read.ids(("click", "a"), ("click", "b"))
    read.source.confirm(["a"])
    assert read.after(clock, rabbit.SURE_SECS - 1) == read.after(clock, 1) == []
    assert read.link.ask.call_count == asked
    assert read.after(clock, rabbit.SURE_SECS) == ["a"] * feeds_state
    assert read.link.ask.call_count == asked + feeds_state
    assert read.after(clock, 2 * rabbit.SURE_SECS) == []


def test_an_id_is_not_forgotten_if_its_connection_ends_before(clock: Mock) -> None:
    read = Read("message_id")
    read.ids(("click", "a"))
    read.source.confirm(["a"])
    read.connect()
    read.source.confirm(["a"])  # again, as the last time may have raised
    assert [read.after(clock, rabbit.SURE_SECS) for _ in range(5)] == [[]] * 5


def test_a_broker_that_waits_too_long_for_a_confirmation_is_told_with_the_message() -> None:
    read = Read("message_id")
    read.records(("slow", "a"), ("click", "b"))
    error = ConnectionError("delivery acknowledgement on channel 1 timed out. Timeout value used: 3000 ms. Change it")
    assert read.source.cut_off(error) == (
        "RabbitSource is cut off: ConnectionError: queue 'in': ('slow', 'in') is unconfirmed 3000 ms after delivery; "
        "raise consumer_timeout over its time with retries or lower prefetch, 5000; it tries again"
    )


def test_another_identity_is_refused() -> None:
    with pytest.raises(UsageError, match="RabbitSource has identity 'id'; expected \"message_id\", \"none\" or None"):
        RabbitSource("amqp://host", "in", identity="id")
