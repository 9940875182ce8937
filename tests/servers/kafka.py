"""A Kafka broker for tests and benchmarks: one process, in a directory of its own, on ports of its own.

Relies on `.ci/bootstrap.sh kafka`, which installs it in build/kafka, and on a Java.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.needs import require
from tests.process.waiting import wait_for

JARS = Path(__file__).parents[2] / "build" / "kafka"
_QUIET = {"log_level": 0}
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}/data
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def _free_ports() -> tuple[int, int]:
    """Two below those that the system gives to outgoing connections, so they stay free while the broker is down."""
    found = list[int]()
    while len(found) < 2:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found[0], found[1]


class Broker:
    """A broker that runs, or will again."""

    def __init__(self, directory: Path) -> None:
        port, control = _free_ports()
        self.servers = f"127.0.0.1:{port}"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.admin = AdminClient({"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": "200", **_QUIET})
        (directory / "properties").write_text(_PROPERTIES.format(port=port, control=control, directory=directory))
        format_ = self._java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAA", "-c")
        assert format_.wait(100) == 0, self._log()

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                ["java", *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{JARS}/*", *command,
                 self._directory / "properties"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._directory,
            )

    def _log(self) -> str:
        return (self._directory / "log").read_text()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._java("kafka.Kafka")
        wait_for("the broker to answer", self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        """As a crash: what it has acknowledged is there again after `start`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def lose(self, *topics: str) -> None:
        """Lose what was written to the first partition of these, and start again."""
        self.kill()
        for topic in topics:
            shutil.rmtree(self._directory / "data" / f"{topic}-0")
        self.start()

    def make_topic(self, name: str, partitions: int = 1, **config: Any) -> None:
        """Wait until it can be used. `config`: of the topic, with _ for dots."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        [made] = self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
        made.result(60)
        wait_for(f"topic {name}", lambda: not self.admin.list_topics(name, timeout=10).topics[name].error)

    def delete_topic(self, name: str) -> None:
        """Return when it is gone."""
        self.admin.delete_topics([name])[name].result(60)

    def fill(self, topic: str, values: Sequence[str | bytes], partitions: int = 0) -> None:
        """Write values in order, in turn to the first `partitions`, or to all."""
        partitions = partitions or len(self.admin.list_topics(topic, timeout=60).topics[topic].partitions)
        self.write(topic, [(number % partitions, value) for number, value in enumerate(values)])

    def write(self, topic: str, records: Iterable[tuple[int, str | bytes]], batch: int = 10_000) -> None:
        """Write values in order, each to the partition that it comes with, in batches of so many at most."""
        # Another producer that has to write again, as to a topic that is new, changes the order.
        producer = Producer({
            "bootstrap.servers": self.servers, "queue.buffering.max.messages": 0, "enable.idempotence": True,
            "batch.num.messages": batch, **_QUIET,
        })
        for partition, value in records:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(60) == 0

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset of the first partition."""
        with self._consumer(group) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    def shares(self, group: str) -> list[int]:
        """How many partitions the members of a group have."""
        members = self.admin.describe_consumer_groups([group])[group].result(60).members
        return [len(member.assignment.topic_partitions) for member in members]

    @contextlib.contextmanager
    def member(self, group: str, topic: str) -> Iterator[Consumer]:
        """Another consumer of a group, which takes part while it is polled."""
        with self._consumer(group, **{"partition.assignment.strategy": "cooperative-sticky"}) as consumer:
            consumer.subscribe([topic])
            yield consumer

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """Offset of each partition up to which a group has committed; none for one without."""
        with self._consumer(group) as consumer:
            found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=60)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def read_all(self, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        """(key, value) of all records, by partition."""
        with self._consumer("reads", **{"enable.partition.eof": True}) as consumer:
            numbers = self.admin.list_topics(topic, timeout=60).topics[topic].partitions
            found: dict[int, list[tuple[bytes | None, bytes | None]]] = {number: [] for number in numbers}
            consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
            unread = set(numbers)
            while unread:
                message = consumer.poll(60)
                assert message is not None, "no end of the topic in sight"
                partition = message.partition() or 0
                if message.error():
                    unread.discard(partition)
                else:
                    found[partition].append((message.key(), message.value()))
        return found

    @contextlib.contextmanager
    def _consumer(self, group: str, **config: Any) -> Iterator[Consumer]:
        own = {"bootstrap.servers": self.servers, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer({**own, **_QUIET, **config})
        try:
            yield consumer
        finally:
            consumer.close()


@contextlib.contextmanager
def made() -> Iterator[Broker]:
    """Make a broker that is not started yet; nothing is left of it."""
    require("kafka")
    with tempfile.TemporaryDirectory(prefix="kafka-") as name:
        broker = Broker(Path(os.path.realpath(name)))
        try:
            yield broker
        finally:
            broker.kill()


@contextlib.contextmanager
def running() -> Iterator[Broker]:
    """Make a broker, and start it."""
    with made() as broker:
        broker.start()
        yield broker
