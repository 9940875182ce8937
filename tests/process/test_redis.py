"""RedisSource and RedisSink with a real server: nothing is lost, whatever is killed; what is wrong is told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from squall import Config, LocalCluster, Topology, TopologyBuilder
from squall.connect import RedisSink, RedisSource
from tests.process import redis_server
from tests.process.redis_server import RedisServer
from tests.process.told import Told
from tests.process.waiting import wait_for

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
            job = cluster.submit("copy", builder.build())
            wait_for("all of it", lambda: written(server) == Counter(numbers(0, 3000)))
            wait_for("all to be confirmed", lambda: not pending(server))
            assert job.stats().failed == 0


def test_an_entry_that_was_deleted_is_a_dead_letter(server: RedisServer) -> None:
    add(server, "a", "b")
    with server.client() as client, LocalCluster(nodes=1, slots_per_node=1) as cluster:
        client.xgroup_create("in", "g", "0")
        client.xreadgroup("g", "copy-in-0", {"in": ">"})
        client.xdel("in", client.xrange("in")[0][0])
        job = cluster.submit("copy", copied(server))
        wait_for("it", lambda: written(server) == {"b": 1} and job.stats().dead_letters == 1)
        wait_for("all to be confirmed", lambda: not pending(server))


@pytest.mark.parametrize(("wrong", "says"), [
    ("password", "RedisSource is refused by Redis: AuthenticationError: "),
    ("stream", "RedisSource has the name 'in', which is a string in Redis; allowed: a stream, or a new name"),
    ("variable", "RedisSource needs the environment variable REDIS_PASSWORD, which is not set"),
])
def test_what_is_wrong_for_good_is_told_and_not_tried_for_ever(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, wrong: str, says: str
) -> None:
    if wrong == "password":
        monkeypatch.setenv("REDIS_PASSWORD", "blue-herring")
    elif wrong == "variable":
        monkeypatch.delenv("REDIS_PASSWORD")
    else:
        with server.client() as client:
            client.set("in", "1")
    with LocalCluster(nodes=1, slots_per_node=1) as cluster:
        job, told = cluster.submit("copy", copied(server)), Told(cluster)
        wait_for("the error", lambda: says in job.why_stopped())
        assert told.has(says)
        assert "herring" not in told.text + job.why_stopped()
