"""RedisSource and RedisSink with a real server: nothing is lost, whatever is killed; what is wrong is told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall import Config, LocalCluster, Topology, TopologyBuilder, UsageError, spout
from squall.connect import RedisSink, RedisSource
from squall.testing import check_sink, check_source
from tests.docs.doc_program import running_program
from tests.process.alone import Alone
from tests.process.told import Told
from tests.process.waiting import wait_for
from tests.servers import redis_server
from tests.servers.redis_server import RedisServer

pytestmark = pytest.mark.xdist_group("redis")  # one server for all

RECORDS = 4000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setenv("REDIS_PASSWORD", redis_server.PASSWORD)
    with redis_server.running() as server:
        yield server


def add(server: RedisServer, *values: str | bytes, **others: str) -> None:
    with server.client() as client:
        pipeline = client.pipeline(transaction=False)
        for value in values:
            pipeline.xadd("in", {"value": value, **others})
        pipeline.execute()


def numbers(start: int = 0, end: int = RECORDS) -> list[str]:
    return list(map(str, range(start, end)))


def written(server: RedisServer) -> Counter[str]:
    with server.client() as client:
        return Counter(fields["value"] for _, fields in client.xrange("out"))


def pending(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.xpending("in", "g")["pending"])


def copied(server: RedisServer) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("in", RedisSource(server.url, "in", "g"), parallelism=2)
    builder.set_bolt("out", RedisSink(server.url, stream="out"), parallelism=2).shuffle_grouping("in")
    return builder.build()


def test_entries_arrive_and_those_that_are_no_text_are_dead_letters(server: RedisServer) -> None:
    add(server, *numbers(), b"\xff", "")
    with server.client() as client:
        client.xadd("in", {"other": "1"})
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("copy", copied(server), Config(workers=2))
        wait_for("all of it", lambda: job.stats().acked >= RECORDS + 1)
        wait_for("dead letters", lambda: job.stats().dead_letters == 2)
        job.kill()
    assert pending(server) == 0
    assert written(server) == Counter([*numbers(), ""])


@pytest.mark.parametrize("killed", ["worker", "server"])
def test_nothing_is_lost_whatever_is_killed(server: RedisServer, killed: str) -> None:
    add(server, *numbers())
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job, told = cluster.submit("copy", copied(server), Config(workers=2)), Told(cluster)
        wait_for("some", lambda: job.stats().acked >= RECORDS // 4)
        if killed == "worker":
            cluster.inject("kill", "node-1:6700")
        else:
            server.kill()
            wait_for("RedisSource to tell it", lambda: told.has("RedisSource is cut off: "))
            server.start()
        add(server, *numbers(RECORDS, 2 * RECORDS))
        expected = set(numbers(0, 2 * RECORDS))
        wait_for("all of it", lambda: written(server).keys() == expected)
        wait_for("all to be confirmed", lambda: not pending(server))
        assert not told.has(redis_server.PASSWORD)


def test_a_server_may_come_later(server: RedisServer) -> None:
    server.kill()
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        cluster.submit("copy", copied(server))
        told = Told(cluster)
        wait_for("RedisSource to tell it", lambda: told.has("RedisSource is cut off: "))
        server.start()
        add(server, "late")
        wait_for("it", lambda: written(server) == {"late": 1})


def test_entries_of_a_consumer_that_is_gone_are_claimed(server: RedisServer) -> None:
    add(server, *numbers(0, 3000))
    with server.client() as client:
        client.xgroup_create("in", "g", "0")
        client.xreadgroup("g", "gone", {"in": ">"}, count=1500)
        builder = TopologyBuilder()
        builder.set_spout("in", RedisSource(server.url, "in", "g", claim_secs=3), parallelism=2)
        builder.set_bolt("out", RedisSink(server.url, stream="out")).shuffle_grouping("in")
        with LocalCluster(nodes=1, slots_per_node=1) as cluster:
            cluster.submit("copy", builder.build())
            wait_for("all of it", lambda: written(server).keys() == set(numbers(0, 3000)))
            wait_for("all to be confirmed", lambda: not pending(server))


def test_a_source_that_may_not_read_takes_nothing(server: RedisServer) -> None:
    add(server, *numbers(0, 3000))
    with Alone(RedisSource(server.url, "in", "g")) as alone:
        found = alone.until(lambda found: len(found) >= 3000, alone.source.keep_alive)
    assert [values for _, values in found] == [(number,) for number in numbers(0, 3000)]


def test_a_consumer_is_seen_while_nothing_comes(server: RedisServer) -> None:
    add(server, "a")
    with server.client() as client, Alone(RedisSource(server.url, "in", "g")) as alone:
        alone.until(bool)
        idle_ms = [0]

        def seen(_: object) -> bool:
            idle_ms.append(client.xinfo_consumers("in", "g")[0]["idle"])
            return idle_ms[-1] < idle_ms[-2]

        alone.until(seen)


def test_what_is_claimed_back_while_it_is_under_way_is_not_emitted_twice(server: RedisServer) -> None:
    add(server, *numbers(0, 3))
    with server.client() as client, Alone(RedisSource(server.url, "in", "g", claim_secs=3)) as alone:
        first = alone.until(lambda found: len(found) == 3)
        ids = [position for position, _ in first]
        client.xclaim("in", "g", "another", 0, ids)
        alone.source.confirm(ids[:1])
        assert pending(server) == 2
        more = alone.until(lambda _: client.xpending("in", "g")["consumers"][0]["name"] != "another")
    assert not more


def test_an_entry_that_was_deleted_is_a_dead_letter(server: RedisServer) -> None:
    add(server, "a", "b")
    with server.client() as client, LocalCluster(nodes=1, slots_per_node=1) as cluster:
        client.xgroup_create("in", "g", "0")
        client.xreadgroup("g", "copy-in-0", {"in": ">"})
        client.xdel("in", client.xrange("in")[0][0])
        job = cluster.submit("copy", copied(server))
        wait_for("it", lambda: written(server) == {"b": 1} and job.stats().dead_letters == 1)
        wait_for("all to be confirmed", lambda: not pending(server))


def test_a_source_and_a_sink_keep_their_promises(server: RedisServer, squall_cluster: LocalCluster) -> None:
    def make(records: int) -> RedisSource:
        with server.client() as client:
            client.delete("in")
        add(server, *numbers(0, records))
        return RedisSource(server.url, "in", "g")

    check_source(squall_cluster, make, lambda values: int(values[0]), records=300)
    check_sink(squall_cluster, RedisSink(server.url, stream="out", maxlen=1_000_000), lambda: [
        int(number) for number in written(server).elements()
    ], outputs=("value",), row=lambda number: (str(number),), records=300)


ROWS = [
    ("a", 1), ("b", 2.5), ("a", 3), ("a", "2"), ("no number", "x"), (None, 4), ("half \ud800", 5),
    ("nan", float("nan")),
]


def test_hashes_and_sorted_sets_hold_the_last_or_the_greatest_of_each_key(server: RedisServer) -> None:
    builder = TopologyBuilder()
    builder.set_spout("rows", spout("word", "count")(lambda: iter(ROWS)))
    for name, kind, rises in (("hash", "hash", False), ("last", "sorted_set", False), ("greatest", "sorted_set", True)):
        sink = RedisSink(server.url, key="word", value="count", rises=rises, **{kind: name})  # type: ignore[arg-type]
        builder.set_bolt(name, sink).shuffle_grouping("rows")
    with server.client() as client, LocalCluster(nodes=1, slots_per_node=1) as cluster:
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


def test_what_is_wrong_for_good_is_told_and_not_tried_for_ever(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG", "p@ss/word")
    with server.client() as client, LocalCluster(nodes=1, slots_per_node=4) as cluster:
        client.set("text", "1")
        told = Told(cluster)
        refused = server.url.replace("REDIS_PASSWORD", "WRONG")
        unset = server.url.replace("REDIS_PASSWORD", "UNSET")
        for name, source, sink, says in (
            ("password", RedisSource(refused, "in", "g"), None, "RedisSource is refused by Redis: Authentic"),
            ("variable", RedisSource(unset, "in", "g"), None, "needs the environment variable UNSET, which"),
            ("stream", RedisSource(server.url, "text", "g"), None, "Source has the name 'text', which is a string"),
            ("sink", None, RedisSink(server.url, stream="text"), "RedisSink has the name 'text', which is a string"),
        ):
            builder = TopologyBuilder()
            builder.set_spout("in", source or spout("value")(lambda: iter(("a" * 10).split("a"))))
            builder.set_bolt("out", sink or RedisSink(server.url, stream="out")).shuffle_grouping("in")
            job = cluster.submit(name, builder.build())
            wait_for(says, lambda says=says, job=job: says in job.why_stopped())  # type: ignore[misc]
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
