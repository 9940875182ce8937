"""RabbitSource and RabbitSink with a real broker: nothing is lost, whatever is killed (a worker is, where they keep
their promises); what is wrong is told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import pika
import pytest

from squall import Config, LocalCluster, TopologyBuilder, spout
from squall.connect import RabbitSink, RabbitSource
from squall.testing import check_sink, check_source
from tests.docs.doc_program import running_program
from tests.process.told import Told
from tests.process.waiting import wait_for
from tests.servers import rabbitmq
from tests.servers.once import counted, counts
from tests.servers.rabbitmq import Broker
from tests.servers.test_wrong_arguments import check_refusals

pytestmark = pytest.mark.xdist_group("rabbit")  # one server for all

RECORDS = 2000


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


def test_each_message_counts_once_and_is_sent_on_though_the_broker_is_killed(
    broker: Broker, cluster: LocalCluster
) -> None:
    values = [str(number % 100) for number in range(RECORDS)]
    publish(broker, *map(str.encode, values), b"", b"\xff", message_ids=list(map(str, range(RECORDS + 2))))
    source = RabbitSource(broker.url, "in", identity="message_id", prefetch=300)
    topology = counted(source, sink=RabbitSink(broker.url, "out"))
    job, told = cluster.submit("once", topology, Config(workers=2)), Told(cluster)
    wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
    wait_for("both tasks to read", lambda: all(
        reading.counters["emitted"] for reading in job.readings() if reading.component == "in"
    ))
    broker.kill()
    for who in ("RabbitSource", "RabbitSink"):
        wait_for("the news", lambda who=who: told.has(f"{who} is cut off: ConnectionError: "))  # type: ignore[misc]
    broker.start()
    wait_for("all", lambda: sum(counts(job).values()) > RECORDS)
    wait_for("the dead letter", lambda: job.stats().dead_letters == 1)
    wait_for("an empty queue", lambda: not length(broker, "in"))
    wait_for("the last retry", lambda: not job.stats().waiting)
    assert job.kill() == 0
    expected = Counter([*values, ""])
    assert counts(job) == expected
    assert Counter(body.decode() for body in take(broker, "out")) >= expected
    assert not told.has(rabbitmq.PASSWORD)


def test_a_source_and_a_sink_keep_their_promises(broker: Broker, cluster: LocalCluster) -> None:
    written = list[int]()

    def make(records: int) -> RabbitSource:
        with broker.channel() as channel:
            channel.queue_purge("in")
        publish(broker, *[str(number).encode() for number in range(records)])
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


def test_what_is_wrong_for_good_is_told(broker: Broker) -> None:
    refused, unset = (broker.url.replace("RABBIT_PASSWORD", name) for name in ("WRONG", "UNSET"))
    check_refusals(
        (RabbitSource(refused, "in"), "RabbitSource is refused by 127.0.0.1:"),
        (RabbitSource(unset, "in"), "needs the environment variable UNSET, which"),
        (RabbitSource(broker.url, "no"), "NOT_FOUND - no queue 'no' in vhost '/'"),
        (RabbitSink(broker.url, exchange="no"), "NOT_FOUND - no exchange 'no' in vhost '/'"),
    )
