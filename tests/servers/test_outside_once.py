"""State before which records come from outside: each counts once, whatever it holds, whoever reads it and is killed."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from squall import Config, LocalCluster, UsageError
from squall.connect import HttpSource, Queue, QueueSource, RabbitSource
from tests.process.test_http import free_port, is_there, post
from tests.process.waiting import wait_for
from tests.servers.once import counted, counts, kill_each_worker

RECORDS = 2000


@pytest.mark.parametrize(("source", "remedy"), [
    (RabbitSource("amqp://host", "in"), "message_id"), (HttpSource(80), "Idempotency-Key"),
])
def test_a_source_that_names_no_record_is_refused(source: RabbitSource | HttpSource, remedy: str) -> None:
    with pytest.raises(UsageError, match=f'set identity="{remedy}" if each '):
        counted(source, field=source.outputs[0])


# ---- the embedded queue ----


def filled(path: Path, first: int = 0, end: int = RECORDS) -> Queue:
    queue = Queue(path)
    queue.put([(number,) for number in range(first, end)])
    return queue


def test_each_record_of_a_queue_counts_once_whichever_task_reads_it(cluster: LocalCluster, tmp_path: Path) -> None:
    queue = filled(tmp_path / "queue")
    job = cluster.submit("once", counted(QueueSource(tmp_path / "queue")), Config(workers=2))
    wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
    kill_each_worker(job, cluster)
    wait_for("an empty queue", lambda: not queue.peek(1))
    job.kill()
    assert counts(job) == dict.fromkeys(range(RECORDS), 1)
    queue.close()


def test_what_another_consumer_gives_back_counts_once(cluster: LocalCluster, tmp_path: Path) -> None:
    queue, another = filled(tmp_path / "queue"), Queue(tmp_path / "queue")
    taken = another.open(100)
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


# ---- HTTP ----


def test_a_request_that_is_sent_again_counts_once(cluster: LocalCluster) -> None:
    port = free_port()
    source = HttpSource(port, identity="Idempotency-Key")
    job = cluster.submit("hook", counted(source, tasks=1, field="body"), Config(workers=1))
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
