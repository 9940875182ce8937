"""RedisSource and RedisSink with a real server: nothing is lost, whatever is killed (a worker is, where they keep their
promises); what is wrong is told once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from squall import Config, LocalCluster, TopologyBuilder, spout
from squall.connect import RedisSink, RedisSource, Unreadable
from squall.testing import check_sink, check_source
from tests.docs.doc_program import running_program
from tests.process.alone import Alone
from tests.process.told import Told
from tests.process.waiting import wait_for
from tests.servers import redis_server
from tests.servers.once import counted, counts
from tests.servers.redis_server import RedisServer
from tests.servers.test_wrong_arguments import check_refusals

pytestmark = pytest.mark.xdist_group("redis")  # one server for all

RECORDS = 2000


@pytest.fixture
def server(redis: RedisServer) -> RedisServer:
    """The server, which is empty."""
    redis.start()
    with redis.client() as client:
        client.flushall()
    return redis


def add(server: RedisServer, *values: str | bytes, **others: str) -> None:
    with server.client() as client:
        pipeline = client.pipeline(transaction=False)
        for value in values:
            pipeline.xadd("in", {"value": value, **others})
        pipeline.execute()


def numbers(start: int, end: int) -> list[str]:
    return list(map(str, range(start, end)))


def written(server: RedisServer) -> Counter[str]:
    with server.client() as client:
        return Counter(fields["value"] for _, fields in client.xrange("out"))


def pending(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.xpending("in", "g")["pending"])


def test_entries_that_cannot_be_read_are_told(server: RedisServer) -> None:
    add(server, "deleted", b"\xff", "")
    with server.client() as client:
        client.xadd("in", {"other": "1"})
        client.xgroup_create("in", "g", "0")
        client.xreadgroup("g", "alone-source-0", {"in": ">"}, count=1)
        client.xdel("in", client.xrange("in", count=1)[0][0])
    with Alone(RedisSource(server.url, "in", "g")) as alone:
        deleted, misfit, empty, other = [values for _, values in alone.until(lambda found: len(found) == 4)]
    assert empty == ("",)
    for unreadable, why in ((deleted, "it was deleted"), (misfit, "invalid start byte"), (other, "no field 'value'")):
        assert isinstance(unreadable, Unreadable)
        assert why in unreadable.why


def test_each_entry_counts_once_and_is_written_though_the_server_is_killed(
    server: RedisServer, cluster: LocalCluster
) -> None:
    server.kill()
    source, sink = RedisSource(server.url, "in", "g"), RedisSink(server.url, stream="out")
    job, told = cluster.submit("once", counted(source, sink=sink), Config(workers=2)), Told(cluster)
    wait_for("RedisSource to tell it", lambda: told.has("RedisSource is cut off: "))
    server.start()
    add(server, *[str(number % 100) for number in range(RECORDS)])
    wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
    server.kill()
    server.start()
    wait_for("all", lambda: sum(counts(job).values()) >= RECORDS)
    wait_for("all to be confirmed", lambda: not pending(server))
    job.kill()
    expected = Counter(dict.fromkeys(numbers(0, 100), RECORDS // 100))
    assert counts(job) == expected
    assert written(server) >= expected
    assert not told.has(redis_server.PASSWORD)


def test_a_source_that_may_not_read_takes_nothing(server: RedisServer) -> None:
    add(server, *numbers(0, 1000))
    with Alone(RedisSource(server.url, "in", "g")) as alone:
        found = alone.until(lambda found: len(found) >= 1000, alone.source.keep_alive)
    assert [values for _, values in found] == [(number,) for number in numbers(0, 1000)]


def test_a_consumer_is_seen_while_nothing_comes(server: RedisServer) -> None:
    add(server, "a")
    with server.client() as client, Alone(RedisSource(server.url, "in", "g")) as alone:
        alone.until(bool)
        idle_ms = [0]

        def seen(_: object) -> bool:
            idle_ms.append(client.xinfo_consumers("in", "g")[0]["idle"])
            return idle_ms[-1] < idle_ms[-2]

        alone.until(seen)


def test_entries_of_a_consumer_that_is_gone_are_claimed_and_those_under_way_are_not_emitted_twice(
    server: RedisServer
) -> None:
    add(server, *numbers(0, 3))
    with server.client() as client, Alone(RedisSource(server.url, "in", "g", claim_secs=3)) as alone:
        ids = [position for position, _ in alone.until(lambda found: len(found) == 3)]
        add(server, "left", "behind")
        client.xreadgroup("g", "gone", {"in": ">"})
        client.xclaim("in", "g", "gone", 0, ids)
        alone.source.confirm(ids[:1])
        more = alone.until(lambda _: [each["name"] for each in client.xpending("in", "g")["consumers"]] != ["gone"])
        more += alone.until(lambda found: len(more + found) >= 2 and len(client.xpending("in", "g")["consumers"]) == 1)
        assert [values for _, values in more] == [("left",), ("behind",)]
        alone.source.confirm([*ids[1:], *(position for position, _ in more)])
        assert pending(server) == 0


def test_a_source_and_a_sink_keep_their_promises(server: RedisServer, cluster: LocalCluster) -> None:
    def make(records: int) -> RedisSource:
        with server.client() as client:
            client.delete("in")
        add(server, *numbers(0, records))
        return RedisSource(server.url, "in", "g")

    check_source(cluster, make, lambda values: int(values[0]), records=300)
    check_sink(cluster, RedisSink(server.url, stream="out", maxlen=1_000_000), lambda: [
        int(number) for number in written(server).elements()
    ], outputs=("value",), row=lambda number: (str(number),), records=300)


ROWS = [
    ("a", 1), ("b", 2.5), ("a", 3), ("a", "2"), ("no number", "x"), (None, 4), ("half \ud800", 5),
    ("nan", float("nan")),
]


def test_hashes_and_sorted_sets_hold_the_last_or_the_greatest_of_each_key(
    server: RedisServer, cluster: LocalCluster
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("rows", spout("word", "count")(lambda: iter(ROWS)))
    for name, kind, rises in (("hash", "hash", False), ("last", "sorted_set", False), ("greatest", "sorted_set", True)):
        sink = RedisSink(server.url, key="word", value="count", rises=rises, **{kind: name})  # type: ignore[arg-type]
        builder.set_bolt(name, sink).shuffle_grouping("rows")
    with server.client() as client:
        job = cluster.submit("rows", builder.build(), Config(max_attempts=1))
        assert job.wait_until_drained(timeout=60).dead_letters == 4
        assert client.hgetall("hash") == {"a": "2", "b": "2.5", "no number": "x", "nan": "nan"}
        assert client.zrange("last", 0, -1, withscores=True) == [("a", 2.0), ("b", 2.5)]
        assert client.zrange("greatest", 0, -1, withscores=True) == [("b", 2.5), ("a", 3.0)]


def test_the_example_of_the_docs(server: RedisServer, tmp_path: Path) -> None:
    with server.client() as client:
        for fields in ({"id": "pen", "price": "2"}, {"id": "desk", "price": "300"}, {"id": "pen", "price": "3"}):
            client.xadd("prices", fields)
        with running_program("prices.py", tmp_path, "redis://:${REDIS_PASSWORD}@localhost/0", server.url):
            wait_for("both prices", lambda: client.hgetall("latest") == {"pen": "3", "desk": "300"})


def test_what_is_wrong_for_good_is_told(server: RedisServer) -> None:
    with server.client() as client:
        client.set("text", "1")
    refused, unset = (server.url.replace("REDIS_PASSWORD", name) for name in ("WRONG", "UNSET"))
    check_refusals(
        (RedisSource(refused, "in", "g"), "RedisSource is refused by Redis: Authentic"),
        (RedisSource(unset, "in", "g"), "needs the environment variable UNSET, which"),
        (RedisSource(server.url, "text", "g"), "Source has the name 'text', which is a string"),
        (RedisSink(server.url, stream="text"), "RedisSink has the name 'text', which is a string"),
    )
