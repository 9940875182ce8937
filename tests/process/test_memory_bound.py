"""What a worker holds has a bound in bytes, whatever its values' size; what exceeds it for good ends by an error."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from squall import BasicBolt, BasicCollector, Config, Job, Spout, TopologyBuilder, Tuple, spout
from squall.ipc.board import SLOT_CONGESTED, SLOT_HELD_BYTES
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for

MIB = 1 << 20
WINDOW = MIB


def loads(count: int, size: int) -> Spout:
    """`count` values of `size` bytes, each an object of its own."""
    return spout("n", "data")(lambda: ((n, bytes([n % 251]) * size) for n in range(count)))


class WaitsFor(BasicBolt):
    """On a thread: does nothing before a file is there. Then it checks what came."""

    blocking = True

    def __init__(self, path: str) -> None:
        self.path = path

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["n"] == 0:
            while not Path(self.path).exists():
                threading.Event().wait(0.01)
        assert tup["data"] == bytes([tup["n"] % 251]) * len(tup["data"])


def peak_bytes(pid: int) -> int:
    """The most memory a process has occupied so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10


def words(job: Job, word: int) -> list[int]:
    view = job.view()
    assert view is not None
    return view.board.column(word).tolist()


def pids(job: Job) -> list[int]:
    view = job.view()
    assert view is not None
    return [view.board.slot(slot).pid for slot in range(view.board.n_slots)]


@pytest.mark.parametrize(("size", "count"), [(100, 60_000), (10 * MIB, 30)])
def test_a_receiver_that_does_nothing_stops_the_spout_and_nobody_holds_more_than_the_bound(
    shared_cluster: SharedCluster, tmp_path: Path, size: int, count: int
) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", loads(count, size))
    builder.set_bolt("sink", WaitsFor(str(tmp_path / "go"))).shuffle_grouping("source")
    config = Config(workers=2, ackers=1, link_window_bytes=WINDOW, max_spout_pending=None, message_timeout_secs=600)
    job = shared_cluster.submit("bound", builder.build(), config)
    job.wait_until_ready(60)
    before = [peak_bytes(pid) for pid in pids(job)]
    seen: list[int] = []

    def has_stopped() -> bool:
        emitted = job.stats().emitted
        seen.append(emitted)
        # The first frame may be on its way for longer than five looks: then nobody holds anything yet.
        arrived = any(words(job, SLOT_CONGESTED)) and any(words(job, SLOT_HELD_BYTES))
        return arrived and emitted > 0 and len(seen) > 5 and len(set(seen[-5:])) == 1

    wait_for("the spout has stopped", has_stopped)
    assert 0 < seen[-1] < count
    # A queue, a window on its way into it, and what a turn adds, which on a busy machine may be two frames. A value
    # alone may be bigger than any of these.
    bound = 4 * WINDOW + 2 * size
    assert max(words(job, SLOT_HELD_BYTES)) <= bound
    (tmp_path / "go").touch()
    report = job.wait_until_drained(timeout=90)
    assert (report.acked, report.failed) == (count, 0)
    # Beside the queues: frames on their way in and out, the arena, what is pending, and Python's own.
    for pid, at_first in zip(pids(job), before, strict=True):
        assert peak_bytes(pid) - at_first < 3 * bound + 24 * MIB
    wait_for("both to hold nothing", lambda: words(job, SLOT_HELD_BYTES) == [0, 0])
