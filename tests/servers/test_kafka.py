"""KafkaSource and KafkaSink against a real broker: workers and broker killed, consumers that join, wrong input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from squall import ColumnBatch, Config, LocalCluster, Topology, TopologyBuilder, UsageError
from squall.connect import KafkaSink, KafkaSource, Unreadable
from squall.engine.api.columns import Columns
from squall.engine.api.replaying import Record
from squall.engine.api.stream import Stream
from squall.engine.api.tuple import TupleSource
from squall.testing import check_source
from tests.docs.doc_program import running_program
from tests.process.alone import Alone
from tests.process.parts import Numbers, Seen, notes
from tests.process.waiting import wait_for
from tests.servers.kafka import Broker
from tests.servers.once import counted, counts

pytestmark = pytest.mark.xdist_group("kafka")  # one server for all

NO_CONTEXT: Any = None


@pytest.fixture
def broker(kafka_server: Broker) -> Iterator[Broker]:
    kafka_server.start()
    yield kafka_server
    kafka_server.disconnect()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W", "-", request.node.name)


def written_and_read(broker: Broker, topic: str, directory: Path, count: int, source: KafkaSource) -> Topology:
    """Numbers, by way of the topic."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(str(directory), count))
    builder.set_bolt("sink", KafkaSink(broker.servers, topic, value="n")).shuffle_grouping("numbers")
    builder.set_spout("source", source, parallelism=2)
    builder.set_bolt("seen", Seen(str(directory))).shuffle_grouping("source")
    return builder.build()


def numbers(*bounds: int) -> list[str]:
    return list(map(str, range(*bounds)))


def seen(directory: Path) -> set[Any]:
    return {value for _, _, value in notes(directory, "seen")}


def told(cluster: LocalCluster) -> str:
    return "".join(path.read_text() for path in cluster.run_dir.logs.rglob("*") if path.is_file())


def test_what_is_written_is_read_and_what_is_committed_is_acked_whoever_is_killed(
    broker: Broker, topic: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    broker.make_topic(topic, 3)
    source = KafkaSource(broker.servers, topic, group=topic, decode="json", config={"auto.commit.interval.ms": 10})
    job = cluster.submit("both", written_and_read(broker, topic, tmp_path, 4000, source), Config(workers=2))
    for kill, count in enumerate((500, 2000)):
        wait_for(f"{count} values", lambda count=count: len(seen(tmp_path)) >= count)
        cluster.inject("kill", f"node-1:{6700 + kill}")
        committed = broker.committed(topic, topic, 3)
        written = broker.read_all(topic)
        assert {
            json.loads(value or b"") for partition, end in committed.items() for _, value in written[partition][:end]
        } <= seen(tmp_path)
        wait_for("its successor", lambda kill=kill: len(job.stats().restarts) > kill
                 and all(one.ready_after_secs is not None for one in job.stats().restarts))
    wait_for("everything", lambda: len(seen(tmp_path)) == 4000)
    # The sink may write some again still.
    wait_for("all commits", lambda: broker.committed(topic, topic, 3) == {
        partition: len(values) for partition, values in broker.read_all(topic).items()
    })
    written = broker.read_all(topic)
    assert seen(tmp_path) == {json.loads(value or b"") for values in written.values() for _, value in values}


def test_a_topic_is_read_to_its_end_and_on_from_there_by_any_number_of_tasks(
    broker: Broker, topic: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    broker.make_topic(topic, 4)
    expected = list[str]()
    for tasks in (3, 1, 2):
        values = [f"{tasks}.{number}" for number in range(300)]
        broker.fill(topic, values, partitions=3)  # the last partition has no record
        source = KafkaSource(broker.servers, topic, until_end=True)
        builder = TopologyBuilder()
        builder.set_spout("source", source, parallelism=tasks)
        builder.set_bolt("seen", Seen(str(tmp_path))).shuffle_grouping("source")
        job = cluster.submit("reads", builder.build(), fresh=tasks == 3)
        assert job.wait_until_drained(timeout=100).acked == 300
        job.kill(wait_secs=0)
        expected += values
    assert sorted(value for _, _, value in notes(tmp_path, "seen")) == sorted(expected)


def test_the_broker_is_away_at_first_and_once_more(
    broker: Broker, topic: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    broker.kill()
    source = KafkaSource(broker.servers, topic, group="all", decode="json")
    topology = written_and_read(broker, topic, tmp_path, 20_000, source)
    job = cluster.submit("both", topology, Config(workers=2, max_spout_pending=500))
    for who in ("Source", "Sink"):
        wait_for(f"the Kafka{who} to say that it is away", lambda who=who: re.search(
            rf"Kafka{who} is cut off from {broker.servers}: .*Connection refused; it tries again", told(cluster)))
    broker.start()
    unknown = f"topic {topic}: Broker: Unknown topic or partition; make it, or mend its name"
    wait_for("word of the topic", lambda: unknown in told(cluster))
    broker.make_topic(topic, 3)
    wait_for("1000 acks", lambda: job.stats().components["sink"].acked >= 1000)
    broker.kill()
    assert job.stats().components["sink"].acked < 20_000
    broker.start()
    wait_for("everything", lambda: len(seen(tmp_path)) == 20_000)
    assert not notes(tmp_path, "dead")
    assert not job.stats().restarts


@pytest.mark.parametrize(("limit", "large"), [(1_048_588, 2_000_000), (2000, 5000)])
def test_what_cannot_be_written_is_refused_alone(broker: Broker, topic: str, limit: int, large: int) -> None:
    broker.make_topic(topic, max_message_bytes=limit)
    wrong = {100: "x" * large, 101: "\ud800", 102: 1j}
    rows = [(str(number), wrong.get(number, "x" * 100)) for number in range(300)]
    sink = KafkaSink(broker.servers, topic, value="text", key="number")
    sink.connect(NO_CONTEXT)
    why = sink.write(ColumnBatch(Columns.of(rows), TupleSource("rows", 1, "default", Stream("number", "text"))))
    sink.disconnect()
    assert why is not None
    assert why.keys() == wrong.keys()
    assert re.search(f"KafkaSink, topic {topic}: .*Broker: Message size too large", why[100])
    assert "KafkaSink cannot write " in why[101]
    assert "KafkaSink cannot write 1j: " in why[102]
    assert {int(key or b"") for key, _ in broker.read_all(topic)[0]} == set(range(300)) - set(wrong)


def test_the_example_of_the_docs(broker: Broker, tmp_path: Path) -> None:
    broker.make_topic("lines")
    broker.make_topic("words")
    broker.fill("lines", ["the cat", "and the hat"])
    with running_program("kafka_words.py", tmp_path, "localhost:9092", broker.servers):
        wait_for("the words", lambda: sorted(value for _, value in broker.read_all("words")[0]) == [
            b"and", b"cat", b"hat", b"the", b"the"])


def test_a_record_has_one_identity_in_every_life_and_task(
    broker: Broker, topic: str, cluster: LocalCluster
) -> None:
    topics = iter((f"{topic}-1", f"{topic}-2"))

    def make(records: int) -> KafkaSource:
        name = next(topics)
        broker.make_topic(name, 3, numbers(records))
        return KafkaSource(broker.servers, name, group=name)

    check_source(cluster, make, lambda values: int(values[1]), ordered=False, tasks=2, records=300)


# ---- before state ----


def test_a_partition_that_moves_and_comes_back_has_its_records_counted_once(
    broker: Broker, topic: str, cluster: LocalCluster
) -> None:
    broker.make_topic(topic, 4, numbers(4000))
    source = KafkaSource(broker.servers, topic, group=topic, decode="json", config={
        "session.timeout.ms": 2000, "heartbeat.interval.ms": 300, "auto.commit.interval.ms": 5000,
    })
    job = cluster.submit("moves", counted(source), Config(workers=2, worker_timeout_secs=None))
    wait_for("both members", lambda: broker.shares(topic) == [2, 2])
    wait_for("records of both", lambda: job.stats().acked > 2000)
    cluster.inject("stop", "node-1:6700", for_secs=300)
    wait_for("the partitions to move", lambda: broker.shares(topic) == [4])
    broker.fill(topic, numbers(4000, 6000))
    # The task that has them now reads what the other had read, acked and not committed.
    wait_for("records of the other", lambda: len(counts(job)) > 3000)
    cluster.heal()
    wait_for("all commits", lambda: broker.committed(topic, topic, 4) == dict.fromkeys(range(4), 1500))
    assert counts(job) == dict.fromkeys(range(6000), 1)


# ---- one source by itself ----


@pytest.mark.parametrize("group", [True, False])
def test_nothing_is_lost_or_read_twice_where_reading_pauses(group: bool, broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 2, numbers(2000))
    with Alone(KafkaSource(broker.servers, topic, group=topic if group else None)) as alone:
        found = alone.until(lambda found: len(found) >= 2000, alone.source.keep_alive)
    for partition in range(2):
        assert [at for (of, at), _ in found if of.endswith(f"-{partition}")] == list(range(1, 1001))


def test_begin_at_the_latest_is_committed_at_once(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 2, ["old", "old", "old"])
    with Alone(KafkaSource(broker.servers, topic, group=topic, begin="latest")) as alone:
        alone.until(lambda _: broker.committed(topic, topic, 2) == {0: 2, 1: 1})
        broker.fill(topic, ["new"])
        # Nothing of it is committed: the next one reads it, although it is not the latest any more.
        assert [values for _, values in alone.until(bool)] == [(None, "new")]
    with Alone(KafkaSource(broker.servers, topic, group=topic, begin="latest")) as alone:
        assert [values for _, values in alone.until(bool)] == [(None, "new")]


def test_records_that_kafka_removed_are_told(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 1, numbers(10))
    with Alone(KafkaSource(broker.servers, topic, group=topic)) as alone:
        found = alone.until(lambda found: len(found) == 10)
        alone.source.commit(found[0][0])
    broker.admin.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0, 5)].result(60)
    with Alone(KafkaSource(broker.servers, topic, group=topic)) as alone:
        left = alone.until(lambda found: len(found) >= 5)
        assert [values for _, values in left] == [(None, str(number)) for number in range(5, 10)]
        assert len(alone.told) == 1
        assert f"Kafka removed records of {topic}, partition 0, before they were read" in alone.told[0]


@pytest.mark.parametrize("group", [True, False])
def test_a_topic_that_is_made_again_is_another(group: bool, broker: Broker, topic: str, tmp_path: Path) -> None:
    """While it is read, and between two lives, where an offset of the first is committed for the second."""

    def source() -> KafkaSource:
        return KafkaSource(broker.servers, topic, group=topic if group else None)

    def made_again(values: str) -> None:
        broker.delete_topic(topic)
        broker.make_topic(topic, 1, values)

    broker.make_topic(topic, 1, "abc")
    connected_again = source()
    with Alone(connected_again, tmp_path) as alone:
        found = alone.until(lambda found: len(found) == 3)
        alone.source.commit(found[-1][0])
        made_again("defg")
        strays = list[Record]()
        with pytest.raises(alone.source.away, match=r"deleted|Unknown topic"):
            alone.until(strays.extend)
        assert strays == []
    with Alone(connected_again, tmp_path) as alone:
        assert f"topic {topic} of Kafka was deleted and made again" in alone.told[0]
        again = alone.until(lambda found: len(found) == 4)
        assert [values[1] for _, values in again] == ["d", "e", "f", "g"]
        alone.source.commit(again[1][0])
    with Alone(source(), tmp_path) as alone:
        assert alone.until(lambda found: len(found) == 2) == again[2:]
    made_again("hijk")
    with Alone(source(), tmp_path) as alone:
        third = alone.until(lambda found: len(found) == 4)
    assert len({position for position, _ in found + again + third}) == 11


def test_records_that_the_broker_lost_are_an_error_or_are_told(broker: Broker, topic: str, tmp_path: Path) -> None:
    groups = [None, topic]
    topics = [f"{topic}-{group is None}" for group in groups]

    def life(number: int, after_loss: str) -> Alone:
        source = KafkaSource(broker.servers, topics[number], group=groups[number], after_loss=after_loss)
        return Alone(source, tmp_path)

    first = list[Record]()
    for number, name in enumerate(topics):
        broker.make_topic(name, 1, ["a", "b", "c", "d"])
        with life(number, "stop") as alone:
            first += alone.until(lambda found: len(found) == 4)
            alone.source.commit(first[-1][0])
    broker.lose(*topics)
    for number, name in enumerate(topics):
        broker.fill(name, ["e", "f"])
        lost = f"Kafka lost records of {name}, partition 0, which ends at offset 2 and was read up to 4; "
        with life(number, "stop") as alone, pytest.raises(UsageError, match=lost):
            alone.until(lambda _: False)
        with life(number, "continue") as alone:
            again = alone.until(lambda found: len(found) == 2)
            assert f"Kafka lost records of {name}, partition 0" in alone.told[0]
            broker.fill(name, ["g", "h", "i"])
            alone.until(lambda found: len(found) == 3)
            alone.source.commit(again[0][0])
        with life(number, "stop") as alone:
            rest = alone.until(lambda found: len(found) == 4)
        assert [values[1] for _, values in again[:1] + rest] == ["e", "f", "g", "h", "i"]
        assert rest[0] == again[1]
        assert not {position for position, _ in first} & {position for position, _ in again + rest}


def test_a_partition_is_caught_up_at_its_end(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 2)
    broker.fill(topic, ["a", "b"], partitions=1)
    with Alone(KafkaSource(broker.servers, topic)) as alone:

        def caught_up() -> list[bool]:
            found = alone.source.partitions() or {}
            assert all(name.endswith(f"-{number}") for number, (name,) in enumerate(found))
            return list(found.values())

        assert alone.source.partitioned
        alone.until(lambda _: caught_up() == [True, True])
        broker.fill(topic, ["c"])
        alone.until(lambda found: found and caught_up() == [False, True])
        alone.until(lambda _: caught_up() == [True, True])


def test_a_partition_that_another_consumer_has_for_a_while(broker: Broker, topic: str) -> None:
    """Nothing is lost or read by both, and event time waits for it meanwhile."""
    broker.make_topic(topic, 2, ["a", "b"])
    config = {"heartbeat.interval.ms": 300, "auto.commit.interval.ms": 10}
    with Alone(KafkaSource(broker.servers, topic, group=topic, config=config)) as alone:
        ours, theirs = list[Any](), list[bytes]()

        def caught_up() -> list[bool]:
            return sorted((alone.source.partitions() or {}).values())

        def read(enough: Callable[[list[Record]], object], between: Callable[[], object] = lambda: None) -> None:
            for position, (_, value) in alone.until(enough, between):
                alone.source.commit(position)
                ours.append(value)

        assert caught_up() == [False]  # which partitions it will have is not known
        read(lambda _: caught_up() == [True, True])
        wait_for("the commits", lambda: broker.committed(topic, topic, 2) == {0: 1, 1: 1})
        with broker.member(topic, topic) as other:

            def take() -> None:
                if (message := other.poll(0)) is not None and not message.error():
                    theirs.append(message.value() or b"")

            read(lambda _: broker.shares(topic) == [1, 1], take)
            read(lambda _: caught_up() == [False, True])
            broker.fill(topic, ["c", "d"])
            read(lambda found: found and theirs, take)
            other.commit(asynchronous=False)
        broker.fill(topic, ["e", "f"])
        read(lambda found: len(found) == 2 and caught_up() == [True, True])
    assert sorted(ours + [value.decode() for value in theirs]) == ["a", "b", "c", "d", "e", "f"]


def test_a_task_commits_for_its_own_partitions_and_never_back(broker: Broker, topic: str) -> None:
    broker.make_topic(topic, 1, numbers(10))
    with Alone(KafkaSource(broker.servers, topic, group=topic)) as alone:
        name = alone.until(lambda found: len(found) == 10)[0][0][0]
        for position in [(name, 6), (name, 4), (name + "7", 9)]:
            alone.source.commit(position)
    assert broker.committed(topic, topic, 1) == {0: 6}


class Timed(KafkaSource):
    outputs = ("value", "timestamp")


def test_what_cannot_be_decoded_is_told_with_its_place_and_its_bytes(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    values = [b"[1]", b"\xff", b"{", b"[" * 100_000, b"[" * 500 + b"]" * 500, b"[2]"]
    broker.fill(topic, values)
    with Alone(Timed(broker.servers, topic, decode=None)) as alone:
        found = alone.until(lambda found: len(found) == 6)
    assert [value for _, (value, _) in found] == values
    assert all(timestamp > 1_700_000_000 for _, (_, timestamp) in found)
    with Alone(Timed(broker.servers, topic, decode="json")) as alone:
        found = alone.until(lambda found: len(found) == 6)
    assert [found[0][1][0], found[5][1][0]] == [[1], [2]]
    for offset in range(1, 5):
        assert isinstance(unreadable := found[offset][1], Unreadable)
        assert unreadable.values[0] == values[offset]
        assert unreadable.why.startswith(f"{topic}, partition 0, offset {offset}: ")
    with Alone(KafkaSource(broker.servers, topic)) as alone:
        assert isinstance(alone.until(lambda found: len(found) == 6)[1][1], Unreadable)
