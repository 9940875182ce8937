"""Records a second of each source and sink of squall.connect, beside its client library used bare, in one process.

    python -m benchmarks.connectors [NAME ...] [--rounds 3]

Both move the same records of 100 bytes, in turns; the table has the medians and their ratio. Bare is the client at its
best: it keeps nothing, and tracks nothing. What it takes to start is left out on both sides.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.publish import publish
from benchmarks.results import Part
from benchmarks.rounds import say
from squall import BatchBolt, BatchSpout, Config, Job, LocalCluster, Topology, TopologyBuilder

RECORDS, WARM = 200_000, 30_000
"""Records of a round, of which the first ones are not measured."""
TEXT = "x" * 100
_ABOUT = """\
Records of 100 bytes through one worker, from a source to a bolt that does nothing, or from a spout that has them at
hand to a sink; and by the client library in a loop that keeps and tracks nothing, in batches of 1,000 where it has
them. Medians of rounds in turn."""
Rates = tuple[float, float]
"""Records a second, ours and bare."""


class AtHand(BatchSpout):
    """RECORDS times a number and the same text, or the text alone."""

    def __init__(self, *outputs: str) -> None:
        self.outputs = outputs

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.collector, self.next = collector, 0

    def next_batch(self, rows: int) -> None:
        ids = range(self.next, min(self.next + rows, RECORDS))
        self.next, self.exhausted = ids.stop, ids.stop == RECORDS
        if ids:
            columns = [list(ids), [TEXT] * len(ids)]
            self.collector.emit_batch(columns[-len(self.outputs) :], message_ids=ids)

    def ack_batch(self, message_ids: list[Any]) -> None:
        pass


class Drop(BatchBolt):
    """Takes them."""

    def execute_batch(self, batch: Any, collector: Any) -> None:
        """Nothing more."""


def acked_per_sec(spout: Any, bolt: Any) -> float:
    """Run a topology of one worker until RECORDS are acked."""
    builder = TopologyBuilder(Config(workers=1))
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    with tempfile.TemporaryDirectory(prefix="sq-bench-") as folder, LocalCluster(run_dir=f"{folder}/run") as cluster:
        return _rate(cluster, builder.build())


def _rate(cluster: LocalCluster, topology: Topology) -> float:
    job = cluster.submit("connector", topology)
    before, began = _reached(job, WARM)
    acked, ended = _reached(job, RECORDS)
    job.kill(wait_secs=0)
    return (acked - before) / (ended - began)


def _reached(job: Job, count: int) -> tuple[int, float]:
    deadline = time.monotonic() + 120
    while (acked := job.stats().acked) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{acked} of {count} records after 120 s")
        time.sleep(0.005)
    return acked, time.monotonic()


# ---- Kafka ----


@contextmanager
def _kafka() -> Iterator[Any]:
    from tests.servers import kafka

    with kafka.running() as broker:
        broker.make_topic("read", 3)
        broker.fill("read", [TEXT] * RECORDS)
        broker.make_topic("written", 3)
        yield broker


def kafka_source(broker: Any) -> Rates:
    """Compare with consume() of a thousand messages, and their values."""
    from confluent_kafka import Consumer

    from squall.connect import KafkaSource

    ours = acked_per_sec(KafkaSource(broker.servers, "read"), Drop())
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "bare", "auto.offset.reset": "earliest",
                         "enable.auto.commit": False, "fetch.queue.backoff.ms": 10, "log_level": 0})
    consumer.subscribe(["read"])
    read, measured, began = 0, 0, 0.0
    while read < RECORDS:
        read += len([message.value() for message in consumer.consume(1000, 0.1) if message.error() is None])
        if not began and read >= WARM:
            measured, began = read, time.monotonic()
    rate = (read - measured) / (time.monotonic() - began)
    consumer.close()
    return ours, rate


def kafka_sink(broker: Any) -> Rates:
    """Compare with produce() and flush() of four thousand at a time, as a sink has to, asking for those that failed."""
    from confluent_kafka import Producer

    from squall.connect import KafkaSink

    ours = acked_per_sec(AtHand("value"), KafkaSink(broker.servers, "written"))
    producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True, "log_level": 0,
                         "delivery.report.only.error": True})
    began, failed = 0.0, list[Any]()
    for number in range(WARM + RECORDS):
        producer.produce("written", TEXT, on_delivery=lambda *error: failed.append(error))
        if number % 4096 == 0 or number == WARM:
            producer.flush()
            began = time.monotonic() if number == WARM else began
    producer.flush()
    assert not failed
    return ours, RECORDS / (time.monotonic() - began)


SERVERS: dict[str, Callable[[], Any]] = {"Kafka": _kafka}
CONNECTORS: dict[str, tuple[str, Callable[[Any], Rates]]] = {
    "KafkaSource": ("Kafka", kafka_source), "KafkaSink": ("Kafka", kafka_sink),
}


def main() -> None:
    """Measure and print; of all together, keep the results."""
    from benchmarks import connector_brokers, connector_others

    servers = SERVERS | connector_brokers.SERVERS | connector_others.SERVERS
    connectors = CONNECTORS | connector_brokers.CONNECTORS | connector_others.CONNECTORS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(connectors), metavar="NAME", help=", ".join(connectors))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="print only; leave results and RESULTS.md")
    given = parser.parse_args()
    part = Part("Connectors", _ABOUT, ["", "records/s", "bare", "ratio"], command="python -m benchmarks.connectors")
    for server, start in servers.items():
        if names := [name for name in given.names if connectors[name][0] == server]:
            with start() as running:
                for name in names:
                    rounds = [connectors[name][1](running) for _ in range(given.rounds)]
                    ours, bare = (statistics.median(rates) for rates in zip(*rounds, strict=True))
                    part.rows.append([name, f"{ours:,.0f}", f"{bare:,.0f}", f"{ours / bare:.2f}"])
                    say(" ".join(part.rows[-1]))
    publish({"connectors": part}, write=not given.no_write and given.names == list(connectors))


if __name__ == "__main__":
    main()
