"""KafkaSource and KafkaSink: read a topic of Kafka, write to one.

Guarantees
    * With a group, Kafka shares the partitions out among the tasks. What is committed is the offset up to which
      everything is acked; a task commits for its own partitions only, and moves no offset back.
    * Without a group, each task reads every so-manieth partition; offsets are stored by partition, for any number of
      tasks.
    * A record's identity is (partition name, offset after it). The name begins with the topic's id, which a topic that
      is made anew does not have; it is kept with the offset, so that what was committed of another topic, or before a
      log was cut, is not taken for this one's.
    * A task has the same name in its group in each life: a worker that was replaced goes on with its partitions, and
      the others need not share them out anew.
    * A row is acked when all replicas in sync have it. Sent again by the client, it is there once.

Relies on confluent-kafka, imported on use, whose client connects by itself when its broker is back.

Thread: that of the source, that of the sink.
"""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from squall.connect.outside import Outside, check_installed, check_secret
from squall.connect.read_ahead import ROWS
from squall.connect.sink import Sink
from squall.connect.source import Source, Unreadable, read_json
from squall.engine.api.replaying import Record
from squall.engine.errors import ClusterError, Unavailable, UsageError
from squall.engine.foreign.files import replace_file
from squall.engine.foreign.given_columns import values_of
from squall.engine.foreign.text import repr_of, text_of_error

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, TopicPartition

    from squall.engine.api.columns import ColumnBatch
    from squall.engine.api.context import TopologyContext

RECORD_SECS, ANSWER_SECS, DELIVERY_SECS = 0.1, 5.0, 10.0
"""Longest waits for a record, an answer, and the delivery of rows, which is shorter than `execute_timeout_secs`."""
LOOK_SECS, LOOK_ANSWER_SECS = 0.25, 1.0
"""Time between two looks whether the topic is still the same, and for the answer. The client fetches nothing for 500 ms
after it was told that a topic is gone, so there is a look before the first record of the next one is handed on."""
SEEN_SECS = 5.0
"""So long after a look, what was read to its end may count as that."""
HANDOVER_SECS = 60.0
"""So long event time waits for a partition that was taken away."""
_OURS = "squall:"
"""Begins the metadata of an offset that a KafkaSource committed; the name of its partition follows."""
_SECRET = ("password", "secret", "key.pem")
_BEGINS, _DECODES, _AFTER_LOSS = ("earliest", "latest"), (None, "utf-8", "json"), ("stop", "continue")
_MISFIT = (ValueError, TypeError, msgspec.MsgspecError, RecursionError)
_PLAIN = frozenset((str, bytes, type(None)))


def _text(error: BaseException) -> str:
    """Kafka's own words."""
    told: Any = error.args[0] if error.args else None
    return str(told.str()) if hasattr(told, "str") else str(error)


class _Client(Outside):
    """A client of Kafka, and what it says is wrong."""

    _client: Any = None
    _kafka: Any = None

    def _set(self, servers: str, topic: str, config: Mapping[str, Any] | None, own: Mapping[str, Any]) -> None:
        """Keep what both have. `own`: settings of the client that `config` may not have."""
        self._servers, self._topic, self._config, self._own = servers, topic, dict(config or {}), own
        who = type(self).__name__
        check_installed(who, "confluent_kafka", "confluent-kafka", "kafka")
        for what, value in (("servers", servers), ("topic", topic)):
            if not isinstance(value, str) or not value:
                raise UsageError(f"{who} has {what} {repr_of(value)}; allowed: a text, as 'localhost:9092', 'lines'")
        for name, value in self._config.items():
            if name in own or name == "bootstrap.servers":
                raise UsageError(f"{who} has {name} in its config, which it sets itself; allowed: other settings")
            if any(word in name for word in _SECRET):
                check_secret(who, name, str(value))

    def _open(self, kind: str, usual: Mapping[str, Any]) -> int:
        """Make the client, with settings that `config` may change; return how many partitions the topic has."""
        import confluent_kafka

        self._kafka, self._heard = confluent_kafka, ""
        self.away = (OSError, confluent_kafka.KafkaException)
        try:
            # What it would log, its errors, is told.
            own = {**self._own, "bootstrap.servers": self._servers, "error_cb": self._hear}
            usual = {"log_level": 2, "reconnect.backoff.max.ms": 2000, **usual}
            self._client = getattr(confluent_kafka, kind)({**usual, **self._given(), **own})
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise UsageError(f"{type(self).__name__} has a wrong config: {self.hide(_text(error))}") from None
        try:
            found = self._client.list_topics(self._topic, timeout=ANSWER_SECS).topics[self._topic]
        except confluent_kafka.KafkaException as error:
            self._client.poll(0)
            raise ConnectionError(self._heard or _text(error)) from None
        if found.error is not None:
            raise ConnectionError(f"topic {self._topic}: {found.error.str()}; make it, or mend its name")
        return len(found.partitions)

    def _given(self) -> dict[str, Any]:
        return {name: self.fill(value) if isinstance(value, str) else value for name, value in self._config.items()}

    def _hear(self, error: KafkaError) -> None:
        """Note what the client says is wrong."""
        if error.code() != error._ALL_BROKERS_DOWN:
            # Without how long it took: equal errors are told once.
            self._heard = re.sub(r" \(after [^()]*\)", "", error.str())

    def cut_off(self, error: BaseException) -> str:
        return f"{type(self).__name__} is cut off from {self._servers}: {self.hide(_text(error))}; it tries again"


class KafkaSource(_Client, Source):
    """A spout over a topic: `KafkaSource("localhost:9092", "lines", group="words")`. A subclass may name other
    `outputs`, of key, value, and timestamp, in seconds."""

    outputs = ("key", "value")
    every_task = True
    partitioned = True
    pause_secs = 0.0

    def __init__(
        self, servers: str, topic: str, *, group: str | None = None, begin: str = "earliest",
        decode: str | None = "utf-8", until_end: bool = False, after_loss: str = "stop",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`servers`: "HOST:PORT", or several with commas. `group`: the tasks share the partitions with all consumers
        of this group; without one, they share them among themselves. `begin`: "earliest" or "latest", for partitions
        of which nothing is committed. `decode`: "utf-8" or "json", for the value, and the key is UTF-8; None for bytes.
        `until_end`: stop at the end of each partition; not in a group. `after_loss`: "stop" or "continue", when the
        brokers lost records that were read; "continue" reads what is left, as new records. `config`: more settings of
        the client; those that are secret are written `${NAME}`, for the environment variable NAME."""
        if begin not in _BEGINS or decode not in _DECODES:
            what = f"begin {repr_of(begin)} and decode {repr_of(decode)}"
            raise UsageError(f"KafkaSource has {what}; allowed: one of {_BEGINS}, and one of {_DECODES}")
        if group is not None and (not isinstance(group, str) or not group or until_end):
            raise UsageError(f"KafkaSource has group {repr_of(group)}; allowed: a name, without until_end, or None")
        if after_loss not in _AFTER_LOSS:
            raise UsageError(f"KafkaSource has after_loss {repr_of(after_loss)}; expected: one of {_AFTER_LOSS}")
        self._group, self._begin, self._decode = group, begin, decode
        self._until_end, self._after_loss = until_end, after_loss
        self._id = ""
        """Of the topic that it read last: a topic that is made again has another."""
        self._is_assigned, self._names = False, dict[int, str]()
        """The names of this task's partitions, once these are known."""
        self._left = dict[str, float]()
        """Partitions that were taken away, and until when event time waits for them."""
        self._set(servers, topic, config, {
            "group.id": group or "squall", "enable.auto.commit": group is not None, "enable.auto.offset.store": False,
            "auto.offset.reset": "error", "enable.partition.eof": True,
            "partition.assignment.strategy": "cooperative-sticky",
        })

    def connect(self, context: TopologyContext) -> None:
        name = f"{socket.gethostname()}.{context.topology_name}.{context.component_id}.{context.task_index}"
        count = self._open("Consumer", {
            "auto.commit.interval.ms": 1000, "session.timeout.ms": 10_000,
            # Full of records it would fetch no more for a second, which is time to run dry.
            "fetch.queue.backoff.ms": 10,
            "group.instance.id": re.sub(r"[^\w.-]", "_", name, flags=re.ASCII),
        })
        before, self._id = self._id, self._asked_id(ANSWER_SECS)
        if before not in ("", self._id):
            self.tell(ClusterError(f"topic {self._topic} of Kafka was deleted and made again; it is read as a new one"))
        self._directory = None if self._group or context.state_root is None else context.shared_state_dir
        self._all = range(context.task_index, count, len(context.component_tasks(context.component_id)))
        self._readers = self._columns_of()

    def disconnect(self) -> None:
        self._client.close()

    def _open(self, kind: str, usual: Mapping[str, Any]) -> int:
        count = super()._open(kind, usual)
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({**self._given(), "bootstrap.servers": self._servers, "log_level": 0})
        return count

    # ---- whether it is still the same topic ----

    def _asked_id(self, within_secs: float) -> str:
        """Ask for the topic's id, and wait for it."""
        topics = self._kafka.TopicCollection([self._topic])
        asked = self._admin.describe_topics(topics, request_timeout=within_secs)[self._topic]
        known = str(asked.result().topic_id)
        self._seen_at = time.monotonic()
        self._look_at = self._seen_at + LOOK_SECS
        return known

    def _check_topic(self) -> None:
        """Raise if the topic was deleted, or is another one of its name."""
        try:
            if self._asked_id(LOOK_ANSWER_SECS) != self._id:
                raise ConnectionError(f"topic {self._topic} was deleted")
        except self._kafka.KafkaException as error:
            if error.args[0].code() == error.args[0].UNKNOWN_TOPIC_OR_PART:
                raise
            self._look_at = time.monotonic() + LOOK_SECS

    def _columns_of(self) -> list[Callable[[Sequence[Any]], list[Any]]]:
        """Return a function from messages to a column, for each output."""
        text = bytes.decode if self._decode else bytes
        value = read_json if self._decode == "json" else text
        known: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
            "key": lambda them: [None if (raw := one.key()) is None else text(raw) for one in them],
            "value": lambda them: [None if (raw := one.value()) is None else value(raw) for one in them],
            "timestamp": lambda them: [one.timestamp()[1] / 1000 for one in them],
        }
        if wrong := set(self.outputs) - set(known):
            raise UsageError(f"{type(self).__name__} has outputs {wrong}; allowed: {', '.join(known)}")
        return [known[name] for name in self.outputs]

    # ---- reading ----

    def partitions(self) -> Mapping[tuple[Any, ...], bool]:
        if not self._is_assigned:
            # Which of them are this task's is not known yet: event time waits.
            return {(self._topic,): False}
        names, ends, now = self._names.copy(), self._ends.copy(), time.monotonic()
        if not self.is_taken():
            ends.clear()
        read = {name for each, name in names.items() if self._next.get(name, 0) <= ends.get(each, -1)}
        is_up = now - self._seen_at < SEEN_SECS
        # Until the task that is given such a partition says that it reads it, nothing else would hold up event time.
        left = {(name,): False for name, until in self._left.copy().items() if now < until and self._id in name}
        return left | {
            (name,): name in read and is_up for name in names.values() if not (self._until_end and name in read)
        }

    def stored_position(self) -> None:
        """Nothing for all of them: each partition is looked up when it is this task's."""

    def read_from(self, position: Mapping[str, tuple[str, int]] | None) -> Iterator[list[Record]]:
        self._next = dict((position or {}).values())
        """Of each partition, by its name, the offset that was not read yet."""
        self._done = dict[int, int]()
        """Of each partition of this task, the offset up to which all is acked."""
        self._early: list[Message] = []
        self._is_paused = False
        self._ends = dict[int, int]()
        """Of each partition, the end that was seen; all before it has been passed on."""
        self._is_assigned, self._names = False, {}
        if self._group is None:
            self._client.assign([self._begun(partition, *self._stored_at(partition)) for partition in self._all])
            self._is_assigned = True
        else:
            self._client.subscribe([self._topic], on_assign=self._take, on_revoke=self._leave)
        while not self._until_end or len(self._ends) < len(self._all):
            if self._is_paused:
                self._client.resume(self._client.assignment())
                self._is_paused = False
            messages, self._early = self._early, []
            if (first := self._client.poll(0 if messages else RECORD_SECS)) is not None:
                messages += [first, *self._client.consume(ROWS - 1, 0)]
            if time.monotonic() >= self._look_at:
                self._check_topic()
            # A partition may have been taken away meanwhile.
            yield self._made_of([one for one in messages if one.error() is None and one.partition() in self._names])
            # Not before: what was yielded has been passed on now.
            for one in messages:
                if (error := one.error()) is not None:
                    self._met(one.partition() or 0, one.offset() or 0, error)

    def _made_of(self, messages: list[Message]) -> list[Record]:
        names: Any = self._names
        positions: list[Any] = [(names[message.partition()], message.offset() + 1) for message in messages]  # type: ignore[operator]
        self._next.update(positions)
        try:
            columns = [read(messages) for read in self._readers]
            return list(zip(positions, zip(*columns, strict=True), strict=True))
        except _MISFIT:
            return list(zip(positions, map(self._readable, messages), strict=True))

    def _readable(self, message: Message) -> Any:
        try:
            return tuple([read([message])[0] for read in self._readers])
        except _MISFIT as error:
            where = f"{self._topic}, partition {message.partition()}, offset {message.offset()}"
            raw = tuple(getattr(message, name)() for name in self.outputs)
            return Unreadable(raw, f"{where}: {text_of_error(error)}")

    def _met(self, partition: int, offset: int, error: KafkaError) -> None:
        """Note an end; raise what reading cannot go on after."""
        if error.code() == error._PARTITION_EOF:
            self._ends[partition] = offset
        elif error.code() != error._AUTO_OFFSET_RESET:
            raise self._kafka.KafkaException(error)
        elif partition in self._names:
            self._check_topic()
            self._go_on(partition, *self._client.get_watermark_offsets(self._at(partition, 0), ANSWER_SECS))

    def _go_on(self, partition: int, first: int, end: int) -> None:
        """Read on at the oldest record left, as the next one is not there. Kafka has removed it, or lost its log's
        end: then records to come would have the identities of others, so the partition gets another name."""
        name = self._names[partition]
        where, wanted = f"{self._topic}, partition {partition}", self._next.get(name, -1)
        if wanted <= first:
            what = f"removed records of {where}, before they were read; the oldest left is next"
        elif self._after_loss == "stop":
            raise UsageError(
                f"KafkaSource: Kafka lost records of {where}, which ends at offset {end} and was read up to {wanted}; "
                "to read what is left, as new records, set after_loss='continue'"
            )
        else:
            what = f"lost records of {where}, which was read up to {wanted}; what is left, from {first}, is read as new"
            name, _, losses = name.partition("~")
            name = self._names[partition] = f"{name}~{int(losses or 0) + 1}"
        self.tell(ClusterError(f"Kafka {what}"))
        self._next[name] = first
        self._ends.pop(partition, None)
        self._store_at_once(partition, first)
        self._client.incremental_unassign([self._at(partition, 0)])
        self._client.incremental_assign([self._at(partition, self._kafka.OFFSET_BEGINNING)])

    def keep_alive(self) -> None:
        self._client.pause(self._client.assignment())
        self._is_paused = True
        if (message := self._client.poll(0)) is not None:
            self._early.append(message)

    def _hear(self, error: KafkaError) -> None:
        super()._hear(error)
        if error.code() in (error._ALL_BROKERS_DOWN, error._AUTHENTICATION):
            self.tell(Unavailable(self.cut_off(ConnectionError(self._heard or error.str()))))

    # ---- what is committed, and whose partitions are whose ----

    def commit(self, position: tuple[str, int]) -> None:
        name, offset = position
        partition = next((number for number, its in self._names.items() if its == name), -1)
        if offset <= self._done.get(partition, math.inf):
            return
        self._done[partition] = offset
        if self._group is None:
            # Not synced, ten times a second: after a power loss reading begins where nothing is known, and what is
            # read again is settled.
            self._store(partition, position, is_synced=False)
        else:
            self._client.store_offsets(offsets=[self._at(partition, offset)])

    def _take(self, _: Any, given: list[TopicPartition]) -> None:
        self._look_at = 0.0
        known = self._client.committed(given, ANSWER_SECS)
        self._client.incremental_assign([
            self._begun(each.partition, (each.metadata or "").partition(_OURS)[2], each.offset) for each in known
        ])
        self._is_assigned = True

    def _leave(self, _: Any, taken: list[TopicPartition]) -> None:
        for each in taken:
            self._done.pop(each.partition, None)
            self._ends.pop(each.partition, None)
            if (name := self._names.pop(each.partition, None)) is not None:
                self._left[name] = time.monotonic() + HANDOVER_SECS

    def _begun(self, partition: int, name: str, offset: int) -> TopicPartition:
        """Where to begin in a partition of which an offset is known with its name. What is before its end, where
        reading begins, is done: the next life reads what comes from now on."""
        own = f"{self._id}-{partition}"
        if name and name.partition("~")[0] != own:
            # Of a topic that had this name before.
            name, offset = "", -1
        name = self._names[partition] = name or own
        self._left.pop(name, None)
        self._done[partition] = offset
        # What this task read when it had the partition before is in memory still.
        offset = max(offset, self._next.get(name, -1))
        if offset < 0 and self._begin == "earliest":
            return self._at(partition, self._kafka.OFFSET_BEGINNING)
        if offset < 0:
            _, offset = self._client.get_watermark_offsets(self._at(partition, 0), ANSWER_SECS)
            self._store_at_once(partition, offset)
        self._next[name] = offset
        return self._at(partition, offset)

    # What is committed, by partition.

    def _store_at_once(self, partition: int, offset: int) -> None:
        self._done[partition] = offset
        if self._group is None:
            self._store(partition, (self._names[partition], offset))
        else:
            self._client.commit(offsets=[self._at(partition, offset)], asynchronous=False)

    def _store(self, partition: int, position: tuple[str, int], is_synced: bool = True) -> None:
        if self._directory is not None:
            path = os.path.join(self._directory, f"partition-{partition}")
            replace_file(path, msgspec.json.encode(position), is_synced)

    def _stored_at(self, partition: int) -> tuple[str, int]:
        """The name of a partition and its offset; none if nothing was stored."""
        path = os.path.join(self._directory or "", f"partition-{partition}")
        with suppress(FileNotFoundError, msgspec.DecodeError), open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=tuple[str, int])
        return "", -1

    def _at(self, partition: int, offset: int) -> TopicPartition:
        name = self._names.get(partition, "")
        return self._kafka.TopicPartition(self._topic, partition, offset, _OURS + name)  # type: ignore[no-any-return]


class KafkaSink(_Client, Sink):
    """A bolt that writes a record for each row: `KafkaSink("localhost:9092", "counts", key="word", value="count")`."""

    component_config: Mapping[str, Any] = {"batch_rows": 4096}
    """A call waits for the broker: it takes what is there."""

    def __init__(
        self, servers: str, topic: str, *, value: str = "value", key: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`servers`: "HOST:PORT", or several with commas. `value`, `key`: fields; text and bytes are written as they
        are, others as JSON, None as nothing. `config`: more settings of the client; those that are secret are written
        `${NAME}`, for the environment variable NAME."""
        self.needed_fields = (value,) if key is None else (value, key)
        self._set(servers, topic, config, {
            "enable.idempotence": True, "delivery.report.only.error": True,
            "message.timeout.ms": round(1000 * DELIVERY_SECS),
            # The rows of a batch are in memory anyway.
            "queue.buffering.max.messages": 0, "queue.buffering.max.kbytes": 2_147_483_647,
        })

    def connect(self, context: TopologyContext) -> None:
        self._open("Producer", {})

    def disconnect(self) -> None:
        if self._client is not None:
            self._client.purge()
            self._client.flush(0)
            self._client = None

    def write(self, batch: ColumnBatch) -> Mapping[int, str] | None:
        wrong = dict[int, str]()
        columns = [_payloads(values_of(batch[name]), wrong) for name in self.needed_fields]
        rows = [row for row in range(len(batch)) if row not in wrong]
        return wrong | self._send(rows, list(zip(*columns, strict=True)))

    def _send(self, rows: Sequence[int], payloads: Sequence[tuple[Any, ...]]) -> dict[int, str]:
        """Write rows; return which were refused, and why."""
        refused, errors = dict[int, str](), dict[int, Any]()

        def answered(row: int, error: Any, _: Any) -> None:
            if error is not None:
                errors[row] = error

        for row in rows:
            try:
                self._client.produce(self._topic, *payloads[row], on_delivery=partial(answered, row))
            except self._kafka.KafkaException as error:
                errors[row] = error.args[0]
            except UnicodeEncodeError as error:
                refused[row] = f"KafkaSink cannot write {repr_of(payloads[row])}: {error}"
        if self._client.flush(ANSWER_SECS + DELIVERY_SECS):
            raise ConnectionError(self._heard or "no answer")
        for row, why in errors.items():
            if why.code() not in (why.MSG_SIZE_TOO_LARGE, why.INVALID_RECORD, why._INVALID_DIFFERENT_RECORD):
                raise ConnectionError(self._heard or why.str())
            refused[row] = f"KafkaSink, topic {self._topic}: {why.str()}"
        if len(refused) > 1:
            # Kafka refuses all that came with one that is wrong, and what is too large together.
            again, half = list(refused), len(refused) // 2
            return self._send(again[:half], payloads) | self._send(again[half:], payloads)
        return refused


def _payloads(column: Sequence[Any], wrong: dict[int, str]) -> Sequence[Any]:
    """What is written for each value; those that are no JSON are noted as wrong, by their row."""
    made = list(column)
    for row in [row for row, kind in enumerate(map(type, column)) if kind not in _PLAIN]:
        try:
            made[row] = msgspec.json.encode(column[row])
        except _MISFIT as error:
            wrong[row] = f"KafkaSink cannot write {repr_of(column[row])}: {text_of_error(error)}"
    return made
