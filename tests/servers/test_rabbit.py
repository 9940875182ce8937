"""RabbitSource and RabbitSink with a real broker: nothing is lost, whatever is killed; what is wrong is told once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

import pika
import pytest

from squall import BasicBolt, BasicCollector, Config, LocalCluster, TopologyBuilder, Tuple, UsageError, spout
from squall.connect import RabbitSink, RabbitSource
from squall.testing import check_sink, check_source
from tests.docs.doc_program import running_program
from tests.process.told import Told
from tests.process.waiting import wait_for
from tests.servers import rabbitmq
from tests.servers.once import counted, counts, ends_with, kill_each_worker
from tests.servers.rabbitmq import Broker

pytestmark = pytest.mark.xdist_group("rabbit")  # one server for all

RECORDS = 2000


class Dies(BasicBolt):
    """Ends its worker when it sees poison."""

    outputs = ("value",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["value"] == "poison":
            os._exit(1)
        collector.emit((tup["value"],))


@pytest.fixture
def broker(rabbit: Broker) -> Broker:
    """The server, with two empty queues."""
    rabbit.start()
    with rabbit.channel() as channel:
        for queue in ("in", "out"):
            # Not made anew for each test: killed too soon after it, the broker forgets a queue.
            channel.queue_declare(queue, durable=True)
            channel.queue_purge(queue)
    return rabbit


def publish(broker: Broker, *bodies: bytes, message_ids: Sequence[str] = ()) -> None:
    with broker.channel() as channel:
        channel.tx_select()
        for body, message_id in zip_longest(bodies, message_ids):
            channel.basic_publish("", "in", body, pika.BasicProperties(delivery_mode=2, message_id=message_id))
        channel.tx_commit()


def numbers(start: int, end: int) -> list[bytes]:
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


def test_messages_arrive_and_those_that_are_no_text_are_dead_letters(broker: Broker, cluster: LocalCluster) -> None:
    publish(broker, *numbers(0, 1000), b"\xff", b"\xff", b"twice", b"twice", b"")
    builder = TopologyBuilder()
    builder.set_spout("in", RabbitSource(broker.url, "in", prefetch=100), parallelism=2)
    builder.set_bolt("out", RabbitSink(broker.url, "out"), parallelism=2).shuffle_grouping("in")
    job = cluster.submit("copy", builder.build(), Config(workers=2))
    wait_for("all of it", lambda: job.stats().acked >= 1003)
    wait_for("dead letters", lambda: job.stats().dead_letters == 2)
    read = [reading.counters["emitted"] for reading in job.readings() if reading.component == "in"]
    job.kill()
    assert length(broker, "in") == 0
    assert Counter(take(broker, "out")) == Counter([*numbers(0, 1000), b"twice", b"twice", b""])
    assert 0 not in read, "not both tasks read"


def test_a_message_that_ends_its_worker_becomes_a_dead_letter(broker: Broker, cluster: LocalCluster) -> None:
    publish(broker, *numbers(0, 20), b"poison", *numbers(20, 40))
    builder = TopologyBuilder()
    builder.set_spout("in", RabbitSource(broker.url, "in"))
    builder.set_bolt("mid", Dies()).shuffle_grouping("in")
    builder.set_bolt("out", RabbitSink(broker.url, "out")).shuffle_grouping("mid")
    job = cluster.submit("copy", builder.build(), Config(workers=1))
    wait_for("a dead letter", lambda: job.stats().dead_letters == 1)
    expected, found = set(numbers(0, 40)), set[bytes]()
    wait_for("the rest", lambda: found.update(take(broker, "out")) or found == expected)  # type: ignore[func-returns-value]
    job.kill()
    assert length(broker, "in") == 0


@pytest.mark.parametrize("killed", ["workers", "broker"])
def test_each_message_counts_once_and_is_sent_on_whoever_is_killed(
    broker: Broker, cluster: LocalCluster, killed: str
) -> None:
    values = [str(number % 100) for number in range(RECORDS)]
    publish(broker, *map(str.encode, values), message_ids=list(map(str, range(RECORDS))))
    source = RabbitSource(broker.url, "in", identity="message_id", prefetch=300)
    topology = counted(source, sink=RabbitSink(broker.url, "out"))
    job, told = cluster.submit("once", topology, Config(workers=2)), Told(cluster)
    wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
    if killed == "workers":
        kill_each_worker(job, cluster)
    else:
        broker.kill()
        for who in ("RabbitSource", "RabbitSink"):
            wait_for("the news", lambda who=who: told.has(f"{who} is cut off: ConnectionError: "))  # type: ignore[misc]
        broker.start()
    wait_for("all", lambda: sum(counts(job).values()) >= RECORDS)
    wait_for("an empty queue", lambda: not length(broker, "in"))
    job.kill()
    expected = Counter(values)
    assert counts(job) == expected
    assert Counter(body.decode() for body in take(broker, "out")) >= expected
    assert not told.has(rabbitmq.PASSWORD)


def test_equal_messages_without_names_count_each(broker: Broker, cluster: LocalCluster) -> None:
    job = cluster.submit("clicks", counted(RabbitSource(broker.url, "in", identity="none")), Config(workers=2))
    for number in range(1, 11):  # one by one
        publish(broker, b"click")
        wait_for("its ack", lambda number=number: job.stats().acked == number)  # type: ignore[misc]
    publish(broker, *[b"click"] * 300)
    wait_for("acks of a burst", lambda: job.stats().acked == 310)
    assert counts(job) == {"click": 310}


def test_a_source_and_a_sink_keep_their_promises(broker: Broker, cluster: LocalCluster) -> None:
    written = list[int]()

    def make(records: int) -> RabbitSource:
        with broker.channel() as channel:
            channel.queue_purge("in")
        publish(broker, *numbers(0, records))
        return RabbitSource(broker.url, "in")

    def read() -> list[int]:
        written.extend(map(int, take(broker, "out")))
        return written

    check_source(cluster, make, lambda values: int(values[0]), records=300)
    sink = RabbitSink(broker.url, "out")
    check_sink(cluster, sink, read, outputs=("value",), row=lambda number: (str(number),), records=300)


def test_the_example_of_the_docs(broker: Broker, tmp_path: Path) -> None:
    with broker.channel() as channel:
        for queue in ("orders", "copies"):
            channel.queue_declare(queue, durable=True)
        channel.basic_publish("", "orders", b"a pen")
    with running_program("orders.py", tmp_path, "amqp://shop:${RABBIT_PASSWORD}@localhost/", broker.url):
        wait_for("the copy", lambda: length(broker, "copies") == 1)
    assert length(broker, "orders") == 0
    assert take(broker, "copies") == [b"a pen"]


LARGE = "x" * 1_000_001
ROWS = [
    ("a", "out"), (5, "out"), ("b", "nowhere"), (b"\xff", "out"), (LARGE, "out"), ("c", "k" * 256),
    ("half \ud800", "out"), ("last", "out"),
]


def test_rows_that_cannot_be_sent_fail_alone(broker: Broker, cluster: LocalCluster) -> None:
    builder = TopologyBuilder()
    builder.set_spout("rows", spout("value", "queue")(lambda: iter(ROWS)))
    builder.set_bolt("out", RabbitSink(broker.url, key="queue")).shuffle_grouping("rows")
    report = cluster.submit("rows", builder.build(), Config(max_attempts=1)).wait_until_drained(timeout=100)
    assert report.dead_letters == 5
    why = "".join(failure.error for failure in report.failures["out"].last)
    assert "RabbitSink cannot send 5: it is no text and no bytes" in why
    assert "it has 1000001 bytes, more than the broker's max_message_size of 1000000" in why
    # What was sent with the large one may have come twice.
    assert set(take(broker, "out")) == {b"a", b"\xff", b"last"}


def test_what_is_wrong_for_good_is_told_and_not_tried_for_ever(broker: Broker, cluster: LocalCluster) -> None:
    told, sink = Told(cluster), RabbitSink(broker.url, "out")
    refused, unset = (broker.url.replace("RABBIT_PASSWORD", name) for name in ("WRONG", "UNSET"))
    for source, other, says in (
        (RabbitSource(refused, "in"), sink, "RabbitSource is refused by 127.0.0.1:"),
        (RabbitSource(unset, "in"), sink, "needs the environment variable UNSET, which"),
        (RabbitSource(broker.url, "no"), sink, "NOT_FOUND - no queue 'no' in vhost '/'"),
        (None, RabbitSink(broker.url, exchange="no"), "NOT_FOUND - no exchange 'no' in vhost '/'"),
    ):
        ends_with(cluster, source, other, says)
        assert told.has(says)
    assert not told.has("p@ss")
    assert not told.has("p%40ss")


@pytest.mark.parametrize(("make", "says"), [
    (lambda: RabbitSource("amqp://u:secret@host/", "in"), "RabbitSource has its password written out"),
    (lambda: RabbitSource("http://host", "in"), "RabbitSource has url 'http://host'; allowed: amqp://HOST"),
    (lambda: RabbitSource("amqp://host", ""), "RabbitSource has queue ''; allowed: a name"),
    (lambda: RabbitSource("amqp://host", "in", prefetch=0), "RabbitSource has prefetch 0; allowed: 1 to 65535"),
    (lambda: RabbitSink("amqp://host"), "RabbitSink has routing_key '', key '', exchange ''"),
    (lambda: RabbitSink("amqp://host", "out", key="queue"), "allowed: names, and not both of the first two"),
])
def test_wrong_arguments_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)
