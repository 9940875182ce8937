"""RabbitSource, RabbitSink: a RabbitMQ queue as a spout, and an exchange or queue as a sink; with pika.

Guarantees
    * A message is confirmed to the broker when it is acked or a dead letter. What is not confirmed when a connection or
      a worker ends, the broker delivers again.
    * Messages are sent as persistent ones, and their rows are acked when the broker has confirmed them.
    * Passwords are read in the worker; what is wrong for good (a password, a queue that is not there) ends the worker
      with one line, and is not tried again and again.

A delivery tag is worth nothing after its connection, so a message's id is, unless its publisher gives it one, a digest
of what it holds. By it, one that ends its worker is known when the broker delivers it again, and in the end becomes a
dead letter. Of messages that hold the same, and are pending together, the later ones have something added. As two
messages may hold the same one after the other, a digest is no name for state that counts each record once.

The broker answers no confirmation. So a `message_id` is forgotten, for such state, when the broker has answered
something else `SURE_SECS` later, on the same connection; if it does not come to that, never.

Thread: that of the source or sink, which calls everything here.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xxhash

from squall.connect.outside import Outside, check_installed, check_url
from squall.connect.sink import Sink
from squall.connect.source import Source, Unreadable
from squall.engine.api.replaying import Record
from squall.engine.errors import UsageError
from squall.engine.foreign.given_columns import values_of
from squall.engine.foreign.text import repr_of, text_of_error

if TYPE_CHECKING:
    from squall.engine.api.columns import ColumnBatch
    from squall.engine.api.context import TopologyContext

LOOK_SECS = 0.02
ANSWER_SECS = 10.0
"""Longest that the broker may take to answer, or to confirm a batch."""
CLOSE_SECS = 1.0
SURE_SECS = 5.0
"""Time after which a broker has written down a confirmation, so that it delivers the message to nobody else: RabbitMQ
3.10, killed 0.2 s after it had read confirmations, delivered all again, after 1 s none."""
BY_MESSAGE_ID, BY_DELIVERY = "message_id", "none"
_WRONG_FOR_GOOD = ("ACCESS_REFUSED", "NOT_ALLOWED", "NOT_FOUND - no ")
_LONGEST_KEY = 255


class RabbitSource(Source):
    """Reads a queue, which must be there: `RabbitSource("amqp://user:${PASSWORD}@host/", "orders")`."""

    outputs = ("value", "routing_key")
    every_task = True
    delivers_again = True
    pause_secs = 0
    record_identity: str | None = None
    identity_remedy = (
        'set identity="message_id" if each publisher sets unique message ids, or identity="none" to count at least once'
    )

    def __init__(
        self, url: str, queue: str, *, prefetch: int = 5000, decode: Callable[[bytes], Any] = bytes.decode,
        identity: str | None = None,
    ) -> None:
        """`prefetch`: messages that the broker has delivered to a task, and that are not done, at most. `decode` makes
        the value of a message's body, by default a text; if it raises, the message becomes a dead letter. `identity`,
        for state that counts each record once: "message_id", which publishers set, and without which a message becomes
        a dead letter; or "none": each delivery counts."""
        _check(self, url)
        if not isinstance(queue, str) or not queue:
            raise UsageError(f"RabbitSource has queue {repr_of(queue)}; allowed: a name")
        if not isinstance(prefetch, int) or not 1 <= prefetch <= 65_535:
            raise UsageError(f"RabbitSource has prefetch {repr_of(prefetch)}; allowed: 1 to 65535")
        if identity not in (None, BY_MESSAGE_ID, BY_DELIVERY):
            raise UsageError(
                f'RabbitSource has identity {repr_of(identity)}; expected "{BY_MESSAGE_ID}", "{BY_DELIVERY}" or None'
            )
        self._url, self._queue, self._prefetch, self._decode = url, queue, prefetch, decode
        self._identity, self.record_identity = identity, identity and "name"
        self.counts_at_least_once = identity == BY_DELIVERY
        self._sure = deque[str]()
        """Positions of messages that the broker delivers to nobody any more, if state asks for them."""

    def connect(self, context: TopologyContext) -> None:
        self._arrived: list[tuple[int, str | bytes, bytes, str | None]] = []
        self._tags: dict[str, tuple[Any, list[int]]] = {}
        """Values and delivery tags of each message that is not confirmed, by its position, in the order of delivery:
        several tags if it was published again."""
        self._name = secrets.token_hex(8)
        """Of this connection, of which a tag is worth something."""
        self._confirmed, self._earlier, self._sure_at = list[str](), list[str](), 0.0
        """Positions that were confirmed since `_sure_at` was set, and `SURE_SECS` before."""
        self._next, self._apart = 1, set[int]()
        """The first tag that is not confirmed, and tags after it that are."""
        link = self._link = self._other_side = Link(self, self._url)
        channel = link.open()
        link.ask(channel.basic_qos, prefetch_count=self._prefetch)
        channel.add_on_cancel_callback(lambda _: link.end(ConnectionError(f"queue {self._queue!r} has been deleted")))
        link.ask(channel.basic_consume, self._queue, self._take)

    def _take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._arrived.append((method.delivery_tag, method.routing_key, body, properties.message_id))
        if len(self._arrived) == 1:
            self._link.wake()

    def read_from(self, position: Any) -> Iterator[list[Record]]:
        while True:
            self._serve(LOOK_SECS)
            arrived, self._arrived = self._arrived, []
            yield [record for message in arrived if (record := self._record(*message)) is not None]

    def _record(self, tag: int, key: str | bytes, body: bytes, message_id: str | None) -> Record | None:
        raw = key if isinstance(key, bytes) else key.encode()  # pika gives bytes if it is no UTF-8
        values: Any
        try:
            values = self._decode(body), raw.decode()
        except Exception as error:
            values = Unreadable((body, key), f"cannot decode the message: {text_of_error(error)}")
        name = delivery = f"{self._name}-{tag}"
        if self._identity == BY_MESSAGE_ID:
            name = message_id or delivery
            if not message_id:
                values = Unreadable((body, key), f'it has no message_id, by which identity="{BY_MESSAGE_ID}" knows it')
        elif self._identity is None and values.__class__ is not Unreadable:
            digest = xxhash.xxh3_64_hexdigest(raw + b"\0" + body)
            name = f"{digest}+{delivery}" if digest in self._tags else digest
        if name in self._tags:
            self._tags[name][1].append(tag)  # published again: done when the first is
            return None
        self._tags[name] = values, [tag]
        return name, values

    def confirm(self, positions: Sequence[Any]) -> None:
        channel, last = self._link.channel, 0
        known = [position for position in positions if position in self._tags]
        if self.feeds_state:
            self._confirmed += known
        for tag in sorted(tag for position in known for tag in self._tags.pop(position)[1]):
            if tag != self._next:
                channel.basic_ack(tag)
                self._apart.add(tag)
                continue
            last, self._next = tag, tag + 1
            while self._next in self._apart:
                self._apart.remove(self._next)
                self._next += 1
        if last:
            channel.basic_ack(last, multiple=True)
        self.keep_alive()

    def confirmed(self) -> Sequence[Any]:
        return [self._sure.popleft() for _ in range(len(self._sure))]

    def keep_alive(self) -> None:
        self._serve(0)

    def _serve(self, secs: float) -> None:
        self._link.serve(secs)
        if (now := time.monotonic()) >= self._sure_at:
            if self._earlier:
                # The broker reads in order: with this, the confirmations. Nothing else is asked of it.
                self._link.ask(self._link.channel.basic_qos, prefetch_count=self._prefetch)
                self._sure += self._earlier
            self._earlier, self._confirmed, self._sure_at = self._confirmed, [], now + SURE_SECS

    def cut_off(self, error: BaseException) -> str:
        if timeout := re.search(r"acknowledgement on channel.*?(\d+ ms)", str(error)):
            # The broker names no message, but waits for the oldest.
            values, _ = next(iter(self._tags.values()), ("a message", ()))
            error = ConnectionError(
                f"queue {self._queue!r}: {repr_of(getattr(values, 'values', values))} is unconfirmed {timeout[1]} "
                f"after delivery; raise consumer_timeout over its time with retries or lower prefetch, {self._prefetch}"
            )
        return super().cut_off(error)


class RabbitSink(Sink):
    """Sends a field's value, a text or bytes: `RabbitSink("amqp://user:${PASSWORD}@host/", "orders")` to a queue, and
    `RabbitSink(url, exchange="events", key="kind")` to an exchange, with another field as routing key."""

    _most_bytes: float = math.inf
    """The longest message that the broker takes, once it has told."""

    def __init__(
        self, url: str, routing_key: str = "", *, exchange: str = "", value: str = "value", key: str = ""
    ) -> None:
        """`value` and `key` are names of fields; without `key`, every message has the same `routing_key`. The exchange
        "" takes the routing key for the name of a queue."""
        _check(self, url)
        names = routing_key, key, exchange
        if not all(isinstance(each, str) for each in (*names, value)) or not any(names) or (routing_key and key):
            raise UsageError(
                f"RabbitSink has routing_key {repr_of(routing_key)}, key {repr_of(key)}, exchange {repr_of(exchange)} "
                f"and value {repr_of(value)}; allowed: names, and not both of the first two"
            )
        self._url, self._routing_key, self._exchange, self._value, self._key = url, routing_key, exchange, value, key
        self.needed_fields = (value, key) if key else (value,)

    def connect(self, context: TopologyContext) -> None:
        import pika

        self._properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent.value)
        self._sent = 0
        self._open: dict[int, int] = {}
        """Row of each message that is not confirmed, by its number, in order."""
        self._lost: list[int] = []
        self._unroutable: set[str] = set()
        # It is served while it writes only, so it cannot answer heartbeats.
        link = self._link = self._other_side = Link(self, self._url, heartbeat=0)
        channel = link.open()
        if self._exchange:
            link.ask(channel.exchange_declare, self._exchange, passive=True)
        elif self._routing_key:
            link.ask(channel.queue_declare, self._routing_key, passive=True)
        channel.add_on_return_callback(lambda _, method, *others: self._unroutable.add(method.routing_key))
        link.ask(channel.confirm_delivery, self._confirmed)

    def write(self, batch: ColumnBatch) -> Mapping[int, str]:
        publish, exchange, properties = self._link.channel.basic_publish, self._exchange, self._properties
        keys = list(values_of(batch[self._key])) if self._key else [self._routing_key] * len(batch)
        refused = dict[int, str]()
        self._unroutable.clear()
        self._lost.clear()
        for row, (value, key) in enumerate(zip(values_of(batch[self._value]), keys, strict=True)):
            if why := _misfit(value, key, self._most_bytes):
                refused[row] = f"RabbitSink cannot send {repr_of(value)}: {why}"
                continue
            publish(exchange, key, value, properties, mandatory=True)
            self._sent += 1
            self._open[self._sent] = row
        try:
            self._link.wait(lambda: not self._open, f"confirmed {len(batch)} messages")
        except ConnectionError as error:
            # The broker closes the channel on a message that is too large: it is refused when its batch comes again.
            if found := re.search(r"larger than configured max size (\d+)", str(error)):
                self._most_bytes = int(found[1])
            raise
        refused |= dict.fromkeys(self._lost, "RabbitSink: the broker did not take the message; its queue may be full")
        if self._unroutable:
            for row, key in enumerate(keys):
                if key in self._unroutable:
                    refused[row] = f"RabbitSink: exchange {exchange!r} has no queue for routing key {key!r}"
        return refused

    def _confirmed(self, frame: Any) -> None:
        answer, waiting = frame.method, self._open
        tags = [tag for tag in waiting if tag <= answer.delivery_tag] if answer.multiple else [answer.delivery_tag]
        rows = [waiting.pop(tag) for tag in tags]
        if answer.NAME == "Basic.Nack":
            self._lost += rows
        if not waiting:
            self._link.wake()


class Link:
    """A connection with one channel. All that happens to it happens inside `serve`, and methods that call it."""

    def __init__(self, user: Outside, url: str, **parameters: Any) -> None:
        import pika

        given = pika.URLParameters(user.fill_url(url))
        for name, value in parameters.items():
            setattr(given, name, value)
        if not (log := logging.getLogger("pika")).level:
            log.setLevel(logging.CRITICAL)  # its errors are told here, in one line each
        self._who, self._at = type(user).__name__, f"{given.host}:{given.port}"
        self._error: BaseException | None = None
        self._connection = pika.SelectConnection(
            given, on_open_callback=self.wake, on_open_error_callback=self._closed, on_close_callback=self._closed
        )

    def open(self) -> Any:
        """Wait until it is open; return the channel."""
        self.wait(lambda: self._connection.is_open, "answered")
        self.channel = self._connection.channel(on_open_callback=self.wake)
        self.channel.add_on_close_callback(self._closed)
        self.wait(lambda: self.channel.is_open, "opened a channel")
        return self.channel

    def ask(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Call a method of the channel that has a callback, and wait for its answer."""
        answers = list[Any]()

        def answered(frame: Any) -> None:
            answers.append(frame)
            self.wake()

        method(*arguments, callback=answered, **named)
        self.wait(lambda: answers, "answered")

    def wait(self, is_done: Callable[[], Any], what: str) -> None:
        """Serve until something is done that calls `wake`. ConnectionError if that takes too long."""
        end = time.monotonic() + ANSWER_SECS
        while not is_done():
            if time.monotonic() > end:
                raise ConnectionError(f"{self._at} has not {what} within {ANSWER_SECS:g} s")
            self.serve(end - time.monotonic())

    def serve(self, secs: float) -> None:
        """Send and receive for so long, or until `wake`. Raises what has ended the connection."""
        if self._error is None:
            timer = self._connection.ioloop.call_later(max(0, secs), self.wake)
            self._connection.ioloop.start()
            self._connection.ioloop.remove_timeout(timer)
        if self._error is not None:
            raise self._error

    def wake(self, *_: Any) -> None:
        self._connection.ioloop.stop()

    def _closed(self, _: Any, error: BaseException) -> None:
        text = text_of_error(_innermost(error))
        if any(sign in text for sign in _WRONG_FOR_GOOD):
            self.end(UsageError(f"{self._who} is refused by {self._at}: {text}"))
        else:
            self.end(ConnectionError(f"{self._at}: {text}"))

    def end(self, error: BaseException) -> None:
        """From now on, `serve` raises this."""
        self._error = self._error or error
        self.wake()

    def close(self) -> None:
        if self._connection.is_open:
            self._connection.close()
            self._connection.ioloop.call_later(CLOSE_SECS, self.wake)
            self._connection.ioloop.start()
        self._connection.ioloop.close()


def _check(user: Outside, url: str) -> None:
    check_url(who := type(user).__name__, url, "amqp", "amqps")
    check_installed(who, "pika", "pika", "amqp")


def _misfit(value: Any, key: Any, most_bytes: float) -> str:
    """Why a row cannot be a message; "" if it can."""
    try:
        if isinstance(value, str):
            value = value.encode()
        elif not isinstance(value, bytes):
            return "it is no text and no bytes"
        if len(value) > most_bytes:
            return f"it has {len(value)} bytes, more than the broker's max_message_size of {most_bytes}"
        if not isinstance(key, str) or len(key.encode()) > _LONGEST_KEY:
            return f"its routing key {repr_of(key)} is no text of at most {_LONGEST_KEY} bytes"
    except UnicodeEncodeError as error:
        return text_of_error(error)
    return ""


def _innermost(error: BaseException) -> BaseException:
    """The error below those of the steps in which pika connects."""
    around = (getattr(error, "exception", None), *error.args, *getattr(error, "exceptions", ()))
    below = [each for each in around if isinstance(each, BaseException)]
    return _innermost(below[-1]) if below else error
