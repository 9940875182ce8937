"""RabbitSource and RabbitSink with a real broker: nothing is lost, whatever is killed; what is wrong is told once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import pika
import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    LocalCluster,
    Topology,
    TopologyBuilder,
    Tuple,
    UsageError,
    spout,
)
from squall.connect import RabbitSink, RabbitSource
from squall.testing import check_sink, check_source
from tests.docs.doc_program import running_program
from tests.process.told import Told
from tests.process.waiting import wait_for
from tests.servers import rabbitmq
from tests.servers.rabbitmq import Broker

pytestmark = pytest.mark.xdist_group("rabbit")  # one server for all

RECORDS = 4000


class Dies(BasicBolt):
    """Ends its worker when it sees poison."""

    outputs = ("value",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["value"] == "poison":
            os._exit(1)
        collector.emit((tup["value"],))


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with rabbitmq.running() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The server, with two empty queues."""
    monkeypatch.setenv("RABBIT_PASSWORD", rabbitmq.PASSWORD)
    with shared.channel() as channel:
        for queue in ("in", "out"):
            channel.queue_delete(queue)
            channel.queue_declare(queue, durable=True)
    return shared


def publish(broker: Broker, *bodies: bytes, message_ids: Sequence[str] = ()) -> None:
    with broker.channel() as channel:
        channel.tx_select()
        for body, message_id in zip_longest(bodies, message_ids):
            channel.basic_publish("", "in", body, pika.BasicProperties(delivery_mode=2, message_id=message_id))
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
        read = [reading.counters["emitted"] for reading in job.readings() if reading.component == "in"]
        job.kill()
    assert length(broker, "in") == 0
    assert Counter(take(broker, "out")) == Counter([*numbers(), b"twice", b"twice", b""])
    assert 0 not in read, "not both tasks read"


@pytest.mark.parametrize("identity", [None, "message_id"])
def test_a_message_that_ends_its_worker_becomes_a_dead_letter(broker: Broker, identity: str | None) -> None:
    bodies = [*numbers(0, 20), b"poison", *numbers(20, 40)]
    publish(broker, *bodies, message_ids=[f"id-{number}" for number in range(41)] if identity else ())
    builder = TopologyBuilder()
    builder.set_spout("in", RabbitSource(broker.url, "in", identity=identity))
    builder.set_bolt("mid", Dies()).shuffle_grouping("in")
    builder.set_bolt("out", RabbitSink(broker.url, "out")).shuffle_grouping("mid")
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        job = cluster.submit("copy", builder.build(), Config(workers=1))
        wait_for("a dead letter", lambda: job.stats().dead_letters == 1)
        expected, found = set(numbers(0, 40)), set[bytes]()
        wait_for("the rest", lambda: found.update(take(broker, "out")) or found == expected)  # type: ignore[func-returns-value]
        job.kill()
    assert length(broker, "in") == 0


def test_what_is_published_again_while_it_is_pending_is_confirmed_with_it(broker: Broker) -> None:
    publish(broker, *numbers(0, 200), *numbers(0, 200), b"unnamed", message_ids=2 * list(map(str, range(200))))
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        job = cluster.submit("copy", copied(broker, identity="message_id"), Config(workers=1))
        wait_for("the dead letter", lambda: job.stats().dead_letters == 1)
        wait_for("all of it", lambda: job.stats().acked >= 200)
        assert not job.stats().restarts
        job.kill()
    assert length(broker, "in") == 0
    assert set(take(broker, "out")) == set(numbers(0, 200))


def test_a_source_and_a_sink_keep_their_promises(broker: Broker, squall_cluster: LocalCluster) -> None:
    written = list[int]()

    def make(records: int) -> RabbitSource:
        with broker.channel() as channel:
            channel.queue_purge("in")
        publish(broker, *numbers(0, records))
        return RabbitSource(broker.url, "in")

    def read() -> list[int]:
        written.extend(map(int, take(broker, "out")))
        return written

    check_source(squall_cluster, make, lambda values: int(values[0]), records=300)
    sink = RabbitSink(broker.url, "out")
    check_sink(squall_cluster, sink, read, outputs=("value",), row=lambda number: (str(number),), records=300)


def test_nothing_is_lost_if_the_broker_is_killed(broker: Broker) -> None:
    publish(broker, *numbers())
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job, told = cluster.submit("copy", copied(broker)), Told(cluster)
        wait_for("some", lambda: job.stats().acked >= RECORDS // 4)
        broker.kill()
        for who in ("RabbitSource", "RabbitSink"):
            wait_for("the news", lambda who=who: told.has(f"{who} is cut off: ConnectionError: "))  # type: ignore[misc]
        broker.start()
        publish(broker, *numbers(RECORDS, 2 * RECORDS))
        expected, found = set(numbers(0, 2 * RECORDS)), set[bytes]()
        wait_for("all of it", lambda: found.update(take(broker, "out")) or found == expected)  # type: ignore[func-returns-value]
        job.kill()
        # What was acked as the broker died is delivered once more: some of it may not have been read again by now.
        assert set(take(broker, "in")) <= set(numbers(0, RECORDS))
        assert not told.has(rabbitmq.PASSWORD)


def test_the_example_of_the_docs(broker: Broker, tmp_path: Path) -> None:
    with broker.channel() as channel:
        for queue in ("orders", "copies"):
            channel.queue_declare(queue, durable=True)
        channel.basic_publish("", "orders", b"a pen")
    with running_program("orders.py", tmp_path, "amqp://shop:${RABBIT_PASSWORD}@localhost/", broker.url):
        wait_for("the copy", lambda: length(broker, "copies") == 1)
    assert length(broker, "orders") == 0
    assert take(broker, "copies") == [b"a pen"]


ROWS = [("a", "out"), (5, "out"), ("b", "nowhere"), (b"\xff", "out"), ("c", "k" * 256), ("half \ud800", "out")]


def test_rows_that_cannot_be_sent_fail_alone(broker: Broker) -> None:
    builder = TopologyBuilder()
    builder.set_spout("rows", spout("value", "queue")(lambda: iter(ROWS)))
    builder.set_bolt("out", RabbitSink(broker.url, key="queue")).shuffle_grouping("rows")
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        job, told = cluster.submit("rows", builder.build(), Config(max_attempts=1)), Told(cluster)
        assert job.wait_until_drained(timeout=60).dead_letters == 4
        assert told.has("RabbitSink cannot send 5: it is no text and no bytes")
    assert sorted(take(broker, "out")) == [b"a", b"\xff"]


def test_a_message_that_is_too_large_fails_alone(broker: Broker) -> None:
    builder = TopologyBuilder()
    builder.set_spout("rows", spout("value")(lambda: iter(["a", "x" * 1_000_001, "b"])))
    builder.set_bolt("out", RabbitSink(broker.url, "out")).shuffle_grouping("rows")
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        job, told = cluster.submit("rows", builder.build(), Config(max_attempts=1)), Told(cluster)
        assert job.wait_until_drained(timeout=100).dead_letters == 1
        assert told.has("it has 1000001 bytes, more than the broker's max_message_size of 1000000")
    assert set(take(broker, "out")) == {b"a", b"b"}  # what was sent with it may have come twice


def test_what_is_wrong_for_good_is_told_and_not_tried_for_ever(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG", "p@ss/word")
    with LocalCluster(nodes=1, slots_per_node=4) as cluster:
        told = Told(cluster)
        refused, unset = (broker.url.replace("RABBIT_PASSWORD", name) for name in ("WRONG", "UNSET"))
        for name, source, sink, says in (
            ("password", RabbitSource(refused, "in"), None, "RabbitSource is refused by 127.0.0.1:"),
            ("variable", RabbitSource(unset, "in"), None, "needs the environment variable UNSET, which"),
            ("queue", RabbitSource(broker.url, "no"), None, "NOT_FOUND - no queue 'no' in vhost '/'"),
            ("sink", None, RabbitSink(broker.url, exchange="no"), "NOT_FOUND - no exchange 'no' in vhost '/'"),
        ):
            builder = TopologyBuilder()
            builder.set_spout("in", source or spout("value")(lambda: iter("abcdefghi")))
            builder.set_bolt("out", sink or RabbitSink(broker.url, "out")).shuffle_grouping("in")
            job = cluster.submit(name, builder.build())
            wait_for(says, lambda says=says, job=job: says in job.why_stopped())  # type: ignore[misc]
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
