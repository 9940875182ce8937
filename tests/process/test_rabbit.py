"""RabbitSource and RabbitSink with a real broker: nothing is lost, whatever is killed; what is wrong is told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pika
import pytest

from squall import Config, LocalCluster, Topology, TopologyBuilder
from squall.connect import RabbitSink, RabbitSource
from tests.process import rabbitmq
from tests.process.rabbitmq import Broker
from tests.process.waiting import wait_for

RECORDS = 6000
WORKERS = "node-1:6700", "node-1:6701"


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with rabbitmq.running() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The server, with empty queues."""
    monkeypatch.setenv("RABBIT_PASSWORD", rabbitmq.PASSWORD)
    with shared.channel() as channel:
        for queue in ("in", "out"):
            channel.queue_delete(queue)
            channel.queue_declare(queue, durable=True)
    return shared


def publish(broker: Broker, *bodies: bytes) -> None:
    lasting = pika.BasicProperties(delivery_mode=2)
    with broker.channel() as channel:
        channel.tx_select()
        for body in bodies:
            channel.basic_publish("", "in", body, lasting)
        channel.tx_commit()


def numbers(start: int = 0, end: int = RECORDS) -> list[bytes]:
    return [str(number).encode() for number in range(start, end)]


def length(broker: Broker, queue: str) -> int:
    with broker.channel() as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


def take(broker: Broker, queue: str) -> list[bytes]:
    """Everything that waits in a queue."""
    found = list[bytes]()
    with broker.channel() as channel:
        while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
            found.append(body)
    return found


def copied(broker: Broker, **given: object) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("in", RabbitSource(broker.url, "in", **given), parallelism=2)  # type: ignore[arg-type]
    builder.set_bolt("out", RabbitSink(broker.url, "out"), parallelism=2).shuffle_grouping("in")
    return builder.build()


def test_messages_arrive_and_those_that_are_no_text_are_dead_letters(broker: Broker) -> None:
    publish(broker, *numbers(), b"\xff", b"\xff", b"twice", b"twice", b"")
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("copy", copied(broker, prefetch=500), Config(workers=2))
        wait_for("all of it", lambda: job.stats().acked >= RECORDS + 3)
        wait_for("dead letters", lambda: job.stats().dead_letters == 2)
        read = Counter(reading.stats.emitted for reading in job.readings() if reading.component == "in")
        job.kill()
    assert length(broker, "in") == 0
    assert Counter(take(broker, "out")) == Counter([*numbers(), b"twice", b"twice", b""])
    assert 0 not in read, "both tasks read"
