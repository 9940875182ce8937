"""State before which records come from outside: each counts once, whatever it holds, whoever reads it and is killed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from squall import Config, LocalCluster
from squall.connect import HttpSource, Queue, QueueSource
from tests.process.test_http import free_port, is_there, post
from tests.process.waiting import wait_for
from tests.servers.once import counted, counts, kill_each_worker

RECORDS = 2000


def test_each_record_of_a_queue_counts_once_whichever_task_reads_it(cluster: LocalCluster, tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue")
    queue.put([(number,) for number in range(RECORDS)])
    job = cluster.submit("once", counted(QueueSource(tmp_path / "queue")), Config(workers=2))
    wait_for("some acks", lambda: job.stats().acked >= RECORDS // 8)
    kill_each_worker(job, cluster)
    wait_for("an empty queue", lambda: not queue.peek(1))
    job.kill()
    assert counts(job) == dict.fromkeys(range(RECORDS), 1)
    queue.close()


def test_a_request_that_is_sent_again_counts_once(cluster: LocalCluster) -> None:
    port = free_port()
    source = HttpSource(port, identity="Idempotency-Key")
    job = cluster.submit("hook", counted(source, tasks=1, field="body"), Config(workers=1))
    wait_for("the port", lambda: is_there(port))

    def send(number: int) -> int:
        return post(port, b"click", Idempotency_Key=str(number // 2)).status

    with ThreadPoolExecutor(8) as senders:
        assert set(senders.map(send, range(40))) == {204}
    assert send(0) == 204
    assert counts(job) == {"click": 20}
