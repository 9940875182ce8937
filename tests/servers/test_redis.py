"""RedisSource and RedisSink with a real server: nothing is lost, whatever is killed; what is wrong is told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from squall import Config, LocalCluster, TopologyBuilder, UsageError, spout
from squall.connect import RedisSink, RedisSource
from squall.testing import check_sink, check_source
from tests.docs.doc_program import running_program
from tests.process.alone import Alone
from tests.process.told import Told
from tests.process.waiting import wait_for
from tests.servers import redis_server
from tests.servers.once import counted, counts, ends_with, kill_each_worker
from tests.servers.redis_server import RedisServer

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


def test_entries_arrive_and_those_that_cannot_be_read_are_dead_letters(
    server: RedisServer, cluster: LocalCluster
) -> None:
    add(server, "deleted", *numbers(0, 500), b"\xff", "")
    builder = TopologyBuilder()
    builder.set_spout("in", RedisSource(server.url, "in", "g"), parallelism=2)
    builder.set_bolt("out", RedisSink(server.url, stream="out"), parallelism=2).shuffle_grouping("in")
    with server.client() as client:
        client.xadd("in", {"other": "1"})
        client.xgroup_create("in", "g", "0")
        client.xreadgroup("g", "copy-in-0", {"in": ">"}, count=1)
        client.xdel("in", client.xrange("in", count=1)[0][0])
    job = cluster.submit("copy", builder.build(), Config(workers=2))
    wait_for("all of it", lambda: job.stats().acked >= 501)
    wait_for("dead letters", lambda: job.stats().dead_letters == 3)
    wait_for("all to be confirmed", lambda: not pending(server))
    assert written(server) == Counter([*numbers(0, 500), ""])


@pytest.mark.parametrize("killed", ["workers", "server"])
def test_each_entry_counts_once_and_is_written_whoever_is_killed(
    server: RedisServer, cluster: LocalCluster, killed: str
) -> None:
    if killed == "server":
        server.kill()
    source, sink = RedisSource(server.url, "in", "g"), RedisSink(server.url, stream="out")
    job, told = cluster.submit("once", counted(source, sink=sink), Config(workers=2)), Told(cluster)
    if killed == "server":
        wait_for("RedisSource to tell it", lambda: told.has("RedisSource is cut off: "))
        server.start()
    add(server, *[str(number % 100) for number in range(RECORDS)])
    wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
    if killed == "server":
        server.kill()
        server.start()
    else:
        kill_each_worker(job, cluster)
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
        assert pending(server) == 4
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
        job, told = cluster.submit("rows", builder.build(), Config(max_attempts=1)), Told(cluster)
        assert job.wait_until_drained(timeout=60).dead_letters == 4
        assert client.hgetall("hash") == {"a": "2", "b": "2.5", "no number": "x", "nan": "nan"}
        assert client.zrange("last", 0, -1, withscores=True) == [("a", 2.0), ("b", 2.5)]
        assert client.zrange("greatest", 0, -1, withscores=True) == [("b", 2.5), ("a", 3.0)]
        assert told.has("RedisSink cannot write (None, 4): DataError: Invalid input of type: 'NoneType'")
        assert told.has("'x' is no score; allowed: a number")


def test_the_example_of_the_docs(server: RedisServer, tmp_path: Path) -> None:
    with server.client() as client:
        for fields in ({"id": "pen", "price": "2"}, {"id": "desk", "price": "300"}, {"id": "pen", "price": "3"}):
            client.xadd("prices", fields)
        with running_program("prices.py", tmp_path, "redis://:${REDIS_PASSWORD}@localhost/0", server.url):
            wait_for("both prices", lambda: client.hgetall("latest") == {"pen": "3", "desk": "300"})


def test_what_is_wrong_for_good_is_told_and_not_tried_for_ever(server: RedisServer, cluster: LocalCluster) -> None:
    with server.client() as client:
        client.set("text", "1")
    told = Told(cluster)
    refused, unset = (server.url.replace("REDIS_PASSWORD", name) for name in ("WRONG", "UNSET"))
    for source, sink, says in (
        (RedisSource(refused, "in", "g"), None, "RedisSource is refused by Redis: Authentic"),
        (RedisSource(unset, "in", "g"), None, "needs the environment variable UNSET, which"),
        (RedisSource(server.url, "text", "g"), None, "Source has the name 'text', which is a string"),
        (None, RedisSink(server.url, stream="text"), "RedisSink has the name 'text', which is a string"),
    ):
        ends_with(cluster, source, sink or RedisSink(server.url, stream="out"), says)
        assert told.has(says)
    assert not told.has("p@ss")
    assert not told.has("p%40ss")


@pytest.mark.parametrize(("make", "says"), [
    (lambda: RedisSource("redis://:secret@host/0", "in", "g"), "RedisSource has its password written out"),
    (lambda: RedisSource("redis://host/0?db=1&password=secret", "in", "g"), "RedisSource has its password written out"),
    (lambda: RedisSource("redi://:secret@host", "in", "g"), "RedisSource has url 'redi://***@host'; allowed: redis"),
    (lambda: RedisSource("http://host", "in", "g"), "RedisSource has url 'http://host'; allowed: redis://HOST"),
    (lambda: RedisSource("redis://host", "", "g"), "RedisSource has stream ''; allowed: a name"),
    (lambda: RedisSource("redis://host", "in", "g", fields="value"), "RedisSource has fields 'value'; allowed: names"),
    (lambda: RedisSource("redis://host", "in", "g", claim_secs=1), "claim_secs 1; allowed: "),
    (lambda: RedisSink("redis://host"), "RedisSink has stream '', hash '' and sorted_set ''; allowed: the name of one"),
    (lambda: RedisSink("redis://host", stream="out", hash="out"), "allowed: the name of one"),
    (lambda: RedisSink("redis://host", stream="out", maxlen=-1), "RedisSink has maxlen -1; allowed: a number"),
])
def test_wrong_arguments_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)
