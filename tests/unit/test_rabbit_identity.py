"""How RabbitSource names messages, with a broker that is played."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from squall import UsageError
from squall.connect import RabbitSource, rabbit
from squall.connect.source import Unreadable

Message = tuple[str, str | None]


class Played:
    """Stands in place of `rabbit.Link`, its channel and the broker."""

    now = 0.0
    arriving: list[Message]
    answers: int
    acked: list[tuple[int, bool]]

    def __init__(self, *_: Any) -> None:
        self.channel, self._tag = self, 0

    def open(self) -> Played:
        return self

    def ask(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        method(*arguments, **named)

    def basic_qos(self, prefetch_count: int) -> None:
        Played.answers += 1

    def basic_consume(self, queue: str, take: Callable[..., Any]) -> None:
        self._take = take

    def add_on_cancel_callback(self, _: Any) -> None:
        pass

    def basic_ack(self, tag: int, multiple: bool = False) -> None:
        Played.acked.append((tag, multiple))

    def serve(self, secs: float) -> None:
        arriving, Played.arriving = Played.arriving, []
        for body, message_id in arriving:
            self._tag += 1
            method = SimpleNamespace(delivery_tag=self._tag, routing_key="in")
            self._take(self, method, SimpleNamespace(message_id=message_id), body.encode())

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbit, "Link", Played)
    monkeypatch.setattr(rabbit, "time", SimpleNamespace(monotonic=lambda: Played.now))
    Played.arriving, Played.acked, Played.answers, Played.now = [], [], 0, 1000.0


class Read:
    """A source that is connected."""

    def __init__(self, identity: str | None) -> None:
        self.source = RabbitSource("amqp://host", "in", identity=identity)
        self.source.feeds_state = True
        self.connect()

    def connect(self) -> None:
        self.source.connect(SimpleNamespace())  # type: ignore[arg-type]
        self._records = self.source.read_from(None)

    def ids(self, *messages: Message) -> list[Any]:
        return [position for position, _ in self.records(*messages)]

    def records(self, *messages: Message) -> list[Any]:
        Played.arriving = list(messages)
        return next(self._records)

    def after(self, secs: float) -> list[Any]:
        """What is sure then."""
        Played.now += secs
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
    assert Played.acked == [(3, False), (4, False), (1, True)]
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


def test_an_id_is_forgotten_when_the_broker_has_surely_taken_the_confirmation() -> None:
    read = Read("message_id")
    answers = Played.answers
    assert read.source.confirmed() == []
    read.ids(("click", "a"), ("click", "b"))
    read.source.confirm(["a"])
    assert read.after(rabbit.SURE_SECS - 1) == []
    assert read.after(1) == []
    assert Played.answers == answers
    assert read.after(rabbit.SURE_SECS) == ["a"]
    assert Played.answers == answers + 1
    assert read.after(2 * rabbit.SURE_SECS) == []


def test_an_id_is_not_forgotten_if_its_connection_ends_before() -> None:
    read = Read("message_id")
    assert read.source.confirmed() == []
    read.ids(("click", "a"))
    read.source.confirm(["a"])
    read.connect()
    read.source.confirm(["a"])  # again, as the last time may have raised
    assert [read.after(rabbit.SURE_SECS) for _ in range(5)] == [[]] * 5


def test_nothing_is_gathered_without_state() -> None:
    read = Read("message_id")
    read.source.feeds_state = False
    read.ids(("click", "a"))
    read.source.confirm(["a"])
    Played.now += rabbit.SURE_SECS
    read.records()
    Played.now += rabbit.SURE_SECS
    read.records()
    assert Played.answers == 1
    assert read.source.confirmed() == []


def test_another_identity_is_refused() -> None:
    with pytest.raises(UsageError, match="RabbitSource has identity 'id'; expected \"message_id\", \"none\" or None"):
        RabbitSource("amqp://host", "in", identity="id")
