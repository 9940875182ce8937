"""State before which records come from outside: each counts once, whatever it holds, whoever reads it and is killed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from squall import (
    BasicCollector,
    Config,
    Job,
    LocalCluster,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    UsageError,
)
from squall.connect import HttpSource, Queue, QueueSource, RabbitSource, RedisSource, Source
from tests.process.test_http import free_port, is_there, post
from tests.process.waiting import wait_for
from tests.servers import rabbitmq, redis_server
from tests.servers.rabbitmq import Broker
from tests.servers.redis_server import RedisServer

RECORDS, KILLS = 4000, 4


class Count(StatefulBolt):
    """How often it saw each value."""

    outputs = ()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.state[tup[0]] = self.state.get(tup[0], 0) + 1


def counted(source: Source, tasks: int = 2) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("in", source, parallelism=tasks)
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("in", source.outputs[0])  # type: ignore[index]
    return builder.build()


def counts(job: Job) -> dict[Any, int]:
    state: dict[Any, int] = job.state("count")
    return state


def killed(job: Job, cluster: LocalCluster) -> None:
    """Kill each worker in turn, once the one before is back."""
    for kill in range(KILLS):
        before = len(job.stats().restarts)
        cluster.inject("kill", f"node-1:{6700 + kill % 2}")
        wait_for("its successor", lambda before=before: len(job.stats().restarts) > before  # type: ignore[misc]
                 and all(one.ready_after_secs is not None for one in job.stats().restarts))


# ---- RabbitMQ ----


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with rabbitmq.running() as broker:
        with broker.channel() as channel:  # not for each test: killed too soon after it, the broker forgets a queue
            channel.queue_declare("in", durable=True)
        yield broker


@pytest.fixture
def broker(shared: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setenv("RABBIT_PASSWORD", rabbitmq.PASSWORD)
    with shared.channel() as channel:
        channel.queue_purge("in")
    return shared


def publish(broker: Broker, *messages: tuple[str, str | None]) -> None:
    with broker.channel() as channel:
        channel.tx_select()
        for body, message_id in messages:
            channel.basic_publish("", "in", body.encode(), pika.BasicProperties(delivery_mode=2, message_id=message_id))
        channel.tx_commit()


@pytest.mark.parametrize("identity", ["message_id", "none"])
def test_equal_messages_count_each(broker: Broker, identity: str) -> None:
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("clicks", counted(RabbitSource(broker.url, "in", identity=identity)), Config(workers=2))
        for number in range(1, 61):  # one by one
            publish(broker, ("click", str(number)))
            wait_for("its ack", lambda number=number: job.stats().acked == number)  # type: ignore[misc]
        publish(broker, *[("click", str(number)) for number in range(100, 1100)])
        wait_for("acks of a burst", lambda: job.stats().acked == 1060)
        assert counts(job) == {"click": 1060}


def test_a_source_that_names_no_message_is_refused(broker: Broker) -> None:
    for source, remedy in ((RabbitSource(broker.url, "in"), "message_id"), (HttpSource(80), "Idempotency-Key")):
        with pytest.raises(UsageError) as refused:
            counted(source)
        assert f'set identity="{remedy}" if each ' in str(refused.value)


@pytest.mark.parametrize("kill", ["workers", "broker"])
def test_each_message_counts_once(broker: Broker, kill: str) -> None:
    publish(broker, *[(str(number), str(number)) for number in range(RECORDS)])
    expected = dict.fromkeys(map(str, range(RECORDS)), 1)
    source = RabbitSource(broker.url, "in", identity="message_id", prefetch=300)
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("once", counted(source), Config(workers=2))
        wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
        if kill == "workers":
            killed(job, cluster)
        else:
            broker.kill()
            broker.start()
        wait_for("all", lambda: len(counts(job)) == RECORDS)
        job.kill()
        assert counts(job) == expected


# ---- the embedded queue ----


def filled(path: Path, first: int = 0, end: int = RECORDS) -> Queue:
    queue = Queue(path)
    queue.put([(number,) for number in range(first, end)])
    return queue


def test_each_record_of_a_queue_counts_once_whichever_task_reads_it(tmp_path: Path) -> None:
    queue = filled(tmp_path / "queue")
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("once", counted(QueueSource(tmp_path / "queue")), Config(workers=2))
        wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
        killed(job, cluster)
        wait_for("an empty queue", lambda: not queue.peek(1))
        job.kill()
        assert counts(job) == dict.fromkeys(range(RECORDS), 1)
    queue.close()


def test_what_another_consumer_gives_back_counts_once(tmp_path: Path) -> None:
    queue, another = filled(tmp_path / "queue"), Queue(tmp_path / "queue")
    taken = another.open(100)
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        job = cluster.submit("once", counted(QueueSource(tmp_path / "queue"), tasks=1), Config(workers=1))
        wait_for("the others", lambda: len(queue.peek(200)) == 100)
        another.confirm([record.id for record in taken[::2]])
        another.close()
        wait_for("an empty queue", lambda: not queue.peek(1))
        filled(tmp_path / "queue", RECORDS, RECORDS + 10).close()
        wait_for("an empty queue", lambda: not queue.peek(1))
        job.kill()
        assert counts(job) == dict.fromkeys([*range(1, 100, 2), *range(100, RECORDS + 10)], 1)
        assert not job.stats().restarts
    queue.close()


# ---- Redis ----


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setenv("REDIS_PASSWORD", redis_server.PASSWORD)
    with redis_server.running() as server:
        yield server


@pytest.mark.parametrize("kill", ["workers", "server"])
def test_each_entry_of_a_stream_counts_once(server: RedisServer, kill: str) -> None:
    with server.client() as client:
        for number in range(RECORDS):
            client.xadd("in", {"value": str(number % 100)})
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("once", counted(RedisSource(server.url, "in", "g")), Config(workers=2))
        wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
        if kill == "workers":
            killed(job, cluster)
        else:
            server.kill()
            server.start()
        wait_for("all", lambda: sum(counts(job).values()) >= RECORDS)
        job.kill()
        assert counts(job) == dict.fromkeys(map(str, range(100)), RECORDS // 100)


# ---- HTTP ----


def test_a_request_that_is_sent_again_counts_once() -> None:
    port = free_port()
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        source = HttpSource(port, identity="Idempotency-Key")
        job = cluster.submit("hook", counted(source, tasks=1), Config(workers=1))
        wait_for("the port", lambda: is_there(port))
        answers = Counter[int]()

        def send(number: int) -> None:
            answers[post(port, b"click", Idempotency_Key=str(number)).status] += 1

        senders = [threading.Thread(target=send, args=(number // 2,)) for number in range(40)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        send(0)
        assert answers == {204: 41}
        assert counts(job) == {"click": 20}
