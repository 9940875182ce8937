"""The durable queue against a model: what is put comes in order, once, and again only if its consumer went."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from squall import UsageError
from squall.connect import Queue, QueueSource, read_ahead
from squall.connect.read_ahead import AckedInOrder
from squall.testing import wait_for
from tests.unit.test_source_partitions import opened, until

STEPS = st.lists(
    st.tuples(st.sampled_from(("put", "open", "confirm", "abort", "close")), st.integers(0, 2), st.integers(1, 7)),
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_each_record_is_open_at_one_consumer_until_it_is_confirmed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("queue")
    producer = Queue(path)
    queues = [Queue(path) for _ in range(3)]
    held: list[list[int]] = [[] for _ in queues]
    unconfirmed: set[int] = set()
    given_before: set[int] = set()
    count = 0
    for what, at, number in steps:
        if what == "put":
            producer.put([(count + n,) for n in range(number)])
            unconfirmed.update(range(count, count + number))
            count += number
        elif what == "open":
            found = {record.id: record.row[0] for record in queues[at].open(number) if record.row}
            ids = list(found)
            assert ids == sorted(ids)
            elsewhere = {id_ for ids in held for id_ in ids}
            assert not elsewhere & set(ids), "open at two"
            assert set(found.values()) <= unconfirmed
            free = unconfirmed - {id_ - 1 for id_ in elsewhere}
            assert bool(found) == bool(free)
            fresh = set(found.values()) - given_before
            assert not fresh or min(fresh) == min(unconfirmed - given_before), "out of order"
            given_before |= fresh
            held[at] += ids
        elif what == "confirm":
            done = held[at][::2]
            queues[at].confirm(done)
            unconfirmed -= {id_ - 1 for id_ in done}
            held[at] = held[at][1::2]
        elif what == "abort":
            queues[at].abort()
            held[at] = []
        else:
            queues[at].close()
            queues[at], held[at] = Queue(path), []
        counts = producer.counts()
        assert counts.open == sum(map(len, held))
        assert counts.waiting + counts.open == len(unconfirmed)
        # A record's number is one more than its value: none comes twice.
        assert producer.floor() == 1 + min(unconfirmed, default=count)
    for queue in (*queues, producer):
        queue.close()
    assert not list(path.glob("*.lock"))


def test_what_a_killed_consumer_had_open_comes_again(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.put([(number,) for number in range(10)])
    code = (
        "import os, signal, sys\nfrom squall.connect import Queue\nqueue = Queue(sys.argv[1])\n"
        "found = queue.open(4)\nqueue.confirm([found[1].id])\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -9
    found = [record.row for record in (*queue.open(100), *queue.open(100))]
    assert found == [(0,), (2,), (3,), *((number,) for number in range(4, 10))]
    queue.close()
    assert [path.name for path in tmp_path.glob("*.lock")] == []


def test_a_record_that_a_queue_did_not_write_is_told_from_others(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    row = ("é", 1, 2.5, None, b"\x00", {"a": [True]})
    queue.put([list(row)])
    with sqlite3.connect(tmp_path / "queue.db") as db:
        db.execute("INSERT INTO records (row) VALUES (x'c1')")
    db.close()
    assert [record.row for record in queue.open(10)] == [row, None]
    for record in ((object(),), "abc", 5):
        with pytest.raises(TypeError):
            queue.put([(1,), record])  # type: ignore[list-item]
    assert queue.counts().waiting == 0
    queue.close()


def test_a_place_that_can_be_no_queue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "queue.db").write_text("no database, as anyone can see, but long enough to be one" * 20)
    for path in (tmp_path / "file", tmp_path / "other"):
        with pytest.raises(UsageError, match=r"cannot be a queue: \w+: "):
            Queue(path)
    with pytest.raises(UsageError, match="holds no queue"):
        Queue(tmp_path / "nothing", must_exist=True)


def test_nothing_is_put_into_a_queue_that_was_removed(tmp_path: Path) -> None:
    place = tmp_path / "queue"
    queue = Queue(place)
    for again in (False, True):
        shutil.rmtree(place)
        if again:
            Queue(place).close()
        with pytest.raises(FileNotFoundError):
            queue.put([(1,)])
        Queue(place).close()
    assert Queue(place).counts().waiting == 0


def test_a_queue_has_an_id_of_its_own_that_stays(tmp_path: Path) -> None:
    one, other = Queue(tmp_path / "one"), Queue(tmp_path / "other")
    assert one.id != other.id
    assert Queue(tmp_path / "one").id == one.id
    with sqlite3.connect(tmp_path / "one/queue.db") as db:
        db.execute("DROP TABLE queue")  # as before there were ids
    db.close()
    assert Queue(tmp_path / "one").id not in (one.id, other.id)
    shutil.rmtree(tmp_path / "other")
    assert Queue(tmp_path / "other").id != other.id


def test_a_record_has_the_same_position_at_any_task(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.put([(number,) for number in range(4)])
    nobody: Any = None
    tasks = [QueueSource(tmp_path) for _ in range(2)]
    for task in tasks:
        task.fitting = 2
        assert task.floor() == {}
        task.connect(nobody)
    reads = [task.read_from(None) for task in tasks]
    assert [next(read) for read in reads] == [
        [((queue.id, 1), (0,)), ((queue.id, 2), (1,))], [((queue.id, 3), (2,)), ((queue.id, 4), (3,))]]
    tasks[1].confirm([(queue.id, 3)])
    tasks[0].confirm([(queue.id, 1)])
    assert [task.floor() for task in tasks] == [{(queue.id,): 2}, {(queue.id,): 1}]
    tasks[0].disconnect()
    assert next(reads[1]) == [((queue.id, 2), (1,))]
    assert next(reads[1]) is None
    assert tasks[1].floor() == {(queue.id,): 2}
    tasks[1].disconnect()
    queue.close()


def test_what_is_under_way_when_the_disk_is_full_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, confirm, full = Queue(tmp_path), Queue.confirm, ["database or disk is full"]
    queue.put([(number,) for number in range(4)])

    def confirmed(queue: Queue, ids: Sequence[int]) -> None:
        if full:
            raise sqlite3.OperationalError(full.pop())
        confirm(queue, ids)

    monkeypatch.setattr(Queue, "confirm", confirmed)
    with contextlib.closing(queue), contextlib.closing(opened(QueueSource(tmp_path))) as source:
        told = source.collector.report_error
        until(source, "all", lambda: len(source.kept) == 4)
        first, *rest = source.kept
        source.ack_batch([first])
        until(source, "another connection", lambda: not source.kept)
        until(source, "the rest again", lambda: told.called and [*source.kept] == rest)
        assert "disk is full" in str(told.call_args)
        source.ack_batch(rest)
        wait_for("an empty queue", lambda: not queue.peek(1))


def test_a_consumer_that_cannot_give_back_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, another = Queue(tmp_path), Queue(tmp_path)
    queue.put([(1,)])
    queue.open(1)

    def full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(queue, "abort", full)
    with pytest.raises(sqlite3.OperationalError):
        queue.close()
    assert [record.row for record in another.open(1)] == [(1,)]
    another.close()


@given(
    st.permutations(range(12)), st.none() | st.lists(st.integers(0, 1), min_size=12, max_size=12), st.integers(1, 12),
    st.sampled_from([0, 2, 256]),
)
def test_a_position_is_committed_when_all_before_it_are_acked(
    acks: list[int], partitions: list[int] | None, rows: int, most_chunks: int
) -> None:
    """Of its partition, if there are some."""
    names = partitions or [None] * 12
    positions = [(name, 10 * number) for number, name in enumerate(names)]  # with gaps
    given_as = {pair: pair if partitions else pair[1] for pair in positions}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "MOST_CHUNKS", most_chunks)
        order, pending, unread = AckedInOrder(bool(partitions)), set(positions), range(0, 12, rows)
        committed = dict.fromkeys(names, -1)
        for acked in acks:
            while unread and acked >= unread[0]:
                order.read([given_as[pair] for pair in positions[unread[0] : unread[0] + rows]])
                unread = unread[1:]
            pending.discard(positions[acked])
            for name, position in order.risen({given_as[pair] for pair in pending}).items():
                number = position[1] if partitions else position
                assert number > committed[name]
                committed[name] = number
            for name in committed:
                first = min((number for of, number in pending if of == name), default=1000)
                done = [number for of, number in positions if of == name and number < first]
                assert committed[name] == max(done, default=-1)


def test_what_is_done_behind_a_record_that_is_held_takes_no_memory() -> None:
    order, chunk = AckedInOrder(False), 100
    for begin in range(0, 200_000, chunk):
        order.read([*range(begin, begin + chunk)])
        assert not order.risen({0, 150_000})
    assert len(pickle.dumps(order)) < 300_000  # of 900,000
    assert order.risen({150_000}) == {None: 149_999}
    assert order.risen(()) == {None: 199_999}
