"""RabbitMQ and Redis, for `benchmarks.connectors`: each function returns (ours, bare) in records a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.connectors import RECORDS, TEXT, WARM, AtHand, Drop, Rates, acked_per_sec
from squall.connect import RabbitSink, RabbitSource, RedisSink, RedisSource

BATCH = 1000


@contextmanager
def _rabbit() -> Iterator[Any]:
    from tests.servers import rabbitmq

    os.environ["RABBIT_PASSWORD"] = rabbitmq.PASSWORD
    with rabbitmq.running() as broker:
        yield broker


def _link(broker: Any) -> Any:
    """A pika.SelectConnection with a channel, which is its fastest; its loop runs until something stops it."""
    import pika

    def stop(*_: Any) -> None:
        connection.ioloop.stop()

    url = pika.URLParameters(broker.url.replace("${RABBIT_PASSWORD}", os.environ["RABBIT_PASSWORD"]))
    connection = pika.SelectConnection(url, on_open_callback=stop, on_close_callback=stop)
    connection.ioloop.start()
    channel = connection.channel(on_open_callback=stop)
    connection.ioloop.start()
    return connection, channel


def _published(broker: Any, queue: str) -> float:
    """Publish RECORDS and wait for all confirms of a batch at once; return the rate."""
    import pika

    with broker.channel() as asked:
        asked.queue_declare(queue, durable=True)
        asked.queue_purge(queue)
    connection, channel = _link(broker)
    sent, began = 0, 0.0

    def confirmed(frame: Any) -> None:
        if frame.method.delivery_tag == sent:
            connection.ioloop.stop()

    channel.confirm_delivery(confirmed, callback=lambda _: connection.ioloop.stop())
    connection.ioloop.start()
    lasting = pika.BasicProperties(delivery_mode=2)
    while sent < RECORDS:
        for _ in range(BATCH):
            channel.basic_publish("", queue, TEXT, lasting, mandatory=True)
        sent += BATCH
        connection.ioloop.start()
        if sent == WARM:
            began = time.monotonic()
    rate = (RECORDS - WARM) / (time.monotonic() - began)
    connection.close()
    connection.ioloop.start()
    return rate


def rabbit_source(broker: Any) -> Rates:
    """Compare with basic_consume, an ack for a thousand, and their values."""
    _published(broker, "read")
    ours = acked_per_sec(RabbitSource(broker.url, "read"), Drop())
    _published(broker, "read")
    connection, channel = _link(broker)
    texts, began = list[str](), 0.0

    def take(_: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal began
        texts.append(body.decode())
        if len(texts) % BATCH == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
            began = began if len(texts) != WARM else time.monotonic()
            if len(texts) == RECORDS:
                connection.ioloop.stop()

    channel.basic_qos(prefetch_count=5000)
    channel.basic_consume("read", take)
    connection.ioloop.start()
    rate = (RECORDS - WARM) / (time.monotonic() - began)
    connection.close()
    connection.ioloop.start()
    return ours, rate


def rabbit_sink(broker: Any) -> Rates:
    """Compare with batches of a thousand, each confirmed before the next."""
    bare = _published(broker, "written")
    return acked_per_sec(AtHand("value"), RabbitSink(broker.url, "written")), bare


@contextmanager
def _redis() -> Iterator[Any]:
    from tests.servers import redis_server

    os.environ["REDIS_PASSWORD"] = redis_server.PASSWORD
    with redis_server.running() as server, server.client() as client:
        client.config_set("appendfsync", "everysec")  # as Redis is by default
        yield server


def _added(server: Any, stream: str) -> float:
    """Add RECORDS entries by pipelines; return the rate."""
    began = 0.0
    with server.client() as client:
        client.delete(stream)
        pipeline = client.pipeline(transaction=False)
        for sent in range(BATCH, RECORDS + 1, BATCH):
            for _ in range(BATCH):
                pipeline.xadd(stream, {"value": TEXT})
            pipeline.execute()
            if sent == WARM:
                began = time.monotonic()
    return (RECORDS - WARM) / (time.monotonic() - began)


def redis_source(server: Any) -> Rates:
    """Compare with XREADGROUP of a thousand, and an XACK for them."""
    _added(server, "read")
    ours = acked_per_sec(RedisSource(server.url, "read", "ours"), Drop())
    began, read = 0.0, 0
    with server.client() as client:
        client.xgroup_create("read", "bare", "0")
        while read < RECORDS:
            entries = client.xreadgroup("bare", "one", {"read": ">"}, count=BATCH)[0][1]
            texts = [fields["value"] for _, fields in entries]
            client.xack("read", "bare", *[name for name, _ in entries])
            read += len(texts)
            began = began if read != WARM else time.monotonic()
    return ours, (RECORDS - WARM) / (time.monotonic() - began)


def redis_sink(server: Any) -> Rates:
    """Compare with pipelines of a thousand XADD."""
    bare = _added(server, "written")
    return acked_per_sec(AtHand("value"), RedisSink(server.url, stream="written")), bare


SERVERS: dict[str, Callable[[], Any]] = {"RabbitMQ": _rabbit, "Redis": _redis}
CONNECTORS: dict[str, tuple[str, Callable[[Any], Rates]]] = {
    "RabbitSource": ("RabbitMQ", rabbit_source), "RabbitSink": ("RabbitMQ", rabbit_sink),
    "RedisSource": ("Redis", redis_source), "RedisSink": ("Redis", redis_sink),
}
