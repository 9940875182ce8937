"""A Kafka broker for tests and benchmarks: one process, in a directory of its own, on ports of its own.

Relies on `.ci/bootstrap.sh kafka`, which installs it in build/kafka, and on a Java.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.process.ports import free_ports
from tests.process.waiting import wait_for
from tests.servers.program import Program, java, started

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


class Broker(Program):
    """A broker, and what tests ask of it."""

    def __init__(self, directory: Path) -> None:
        port, control = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self._directory = directory
        self._admin: AdminClient | None = None
        properties = directory / "properties"
        properties.write_text(_PROPERTIES.format(port=port, control=control, directory=directory))
        tool = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAA", "-c", str(properties)]
        subprocess.run([*java("kafka", 256), *tool], cwd=directory, check=True, stdout=subprocess.DEVNULL)
        super().__init__([*java("kafka", 256), "kafka.Kafka", properties], directory, self._has_brokers)

    @property
    def admin(self) -> AdminClient:
        """A client, until `disconnect`."""
        if self._admin is None:
            own = {"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": "200"}
            self._admin = AdminClient({**own, **_QUIET})
        return self._admin

    def disconnect(self) -> None:
        self._admin = None

    def _has_brokers(self) -> bool:
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def lose(self, *topics: str) -> None:
        """Lose what was written to the first partition of these, and start again."""
        self.kill()
        for topic in topics:
            shutil.rmtree(self._directory / "data" / f"{topic}-0")
        self.start()

    def make_topic(
        self, name: str, partitions: int = 1, values: Sequence[str | bytes] = (), **config: Any
    ) -> None:
        """Wait until it can be used, and fill it. `config`: of the topic, with _ for dots."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        [made] = self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
        made.result(60)
        wait_for(f"topic {name}", lambda: not self.admin.list_topics(name, timeout=10).topics[name].error)
        self.fill(name, values)

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

    def shares(self, group: str) -> list[int]:
        """How many partitions the members of a group have; none while the broker begins."""
        try:
            members = self.admin.describe_consumer_groups([group])[group].result(60).members
        except KafkaException:
            return []
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
        found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
        with self._consumer("reads") as consumer:
            for number in self.admin.list_topics(topic, timeout=60).topics[topic].partitions:
                records, partition = found.setdefault(number, []), TopicPartition(topic, number, 0)
                consumer.assign([partition])
                first, end = consumer.get_watermark_offsets(partition, timeout=60)
                while len(records) < end - first:
                    records += [(one.key(), one.value()) for one in consumer.consume(1000, 1) if one.error() is None]
        return found

    @contextlib.contextmanager
    def _consumer(self, group: str, **config: Any) -> Iterator[Consumer]:
        own = {"bootstrap.servers": self.servers, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer({**own, **_QUIET, **config})
        try:
            yield consumer
        finally:
            consumer.close()


def running() -> contextlib.AbstractContextManager[Broker]:
    """Start one; nothing is left of it."""
    return started(Broker, "kafka")
