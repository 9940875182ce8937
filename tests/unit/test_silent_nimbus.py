"""Nimbus or a worker that says nothing: who notices, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.engine.report.metrics import EMITTED, REPLAYED, TRACKED
from squall.ipc.control import ControlServer, Incoming, NoAnswer
from squall.ipc.rundir import RunDir
from squall.scheduler.client import nimbus_client
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, NimbusClient, NimbusGone
from squall.scheduler.client.standing import connect_to
from squall.scheduler.cluster.daemons import OPTIONS
from squall.scheduler.common.standstill import ProgressWatch
from squall.scheduler.faults.in_force import FaultsTold
from squall.ui.sampler import Sampler
from tests.unit.rig import Does, Feeder, Rig, acks, chain


def test_it_is_named_with_the_time_that_was_waited(run_dir: RunDir) -> None:
    lock = run_dir.lock()
    silent = rf"Nimbus \(pid {run_dir.lock_holder()}\) does not answer within 0\.1 s"
    with NimbusClient(run_dir, timeout_secs=0.1) as client, pytest.raises(NoAnswer, match=silent):
        client.activate("one")
    lock.close()


@pytest.mark.parametrize("question", [Sampler.names, lambda sampler: sampler.latest("words")])
def test_before_it_was_seen_nobody_knows_what_runs(run_dir: RunDir, question: Callable[[Sampler], object]) -> None:
    with pytest.raises(ClusterError, match="not looked at yet"):
        question(Sampler(run_dir))


def test_one_that_dies_before_it_answers_is_not_waited_for(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = run_dir.lock()
    with NimbusClient(run_dir, timeout_secs=300) as client:
        threading.Timer(0.1, lock.close).start()
        with pytest.raises(NimbusGone, match="; kill_topology was carried out or not: squall status tells"):
            client.kill_topology("one")
        monkeypatch.setattr(nimbus_client, "room_error", lambda _: "cannot write to here: No space left on device")
        with pytest.raises(UsageError, match=r"no cluster runs in .* \(cannot write to here: .*\): "):
            connect_to(run_dir.path)


def test_what_may_be_done_twice_is_asked_of_the_next_one(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    missed = threading.Event()
    monkeypatch.setattr(nimbus_client, "processes_of", lambda _: [missed.set()])

    def serve() -> None:
        nonlocal lock
        _take_request(run_dir)[0].close()
        lock.close()
        missed.wait()
        lock = run_dir.lock()
        server, asked = _take_request(run_dir)
        server.reply(asked, FaultsTold([]))
        server.close(1.0)

    lock = run_dir.lock()
    nimbus = threading.Thread(target=serve)
    nimbus.start()
    with NimbusClient(run_dir, timeout_secs=300, patience_secs=300) as client:
        assert client.heal() == []
    nimbus.join()
    lock.close()


def _take_request(run_dir: RunDir) -> tuple[ControlServer, Incoming]:
    server = ControlServer(run_dir.nimbus_socket, run_dir.key(), "nimbus")
    while (asked := server.recv()) is None:
        server.socket.poll(100)
    return server, asked


def test_commands_wait_longer_than_its_keeper_between_two_tries() -> None:
    """Once what kept Nimbus away has gone, such as a full disk, a command finds one; half the time is for its start."""
    assert OPTIONS.max_delay_secs * (1 + OPTIONS.jitter_ratio) <= AWAY_PATIENCE_SECS / 2


class Watched(list[int]):
    """Words that tell, before each change, what is at `index`."""

    def __init__(self, size: int, told: Callable[[int], None]) -> None:
        super().__init__([0] * size)
        self._told = told

    def __setitem__(self, index: int, value: int) -> None:  # type: ignore[override]
        self._told(index)
        super().__setitem__(index, value)


def test_before_an_emit_shows_in_the_account_or_as_sent_without_a_tree() -> None:
    spout, quiet = Feeder(), [1]
    seen: list[tuple[int, int]] = []

    def told(index: int) -> None:
        seen.append((index, quiet[0]))

    rig = Rig(chain(spout, Does(acks)), around={"said_quiet": quiet, "untracked": Watched(20, told)})
    task = rig.spout_task
    task.stats.account = Watched(len(task.stats.account), told)
    rig.settle()
    assert quiet == [1]
    spout.feed("x", id=1)
    rig.settle()
    assert seen == [(REPLAYED, 0), (EMITTED, 0), (TRACKED, 0)]
    quiet[0] = 1
    seen.clear()
    rig.settle()
    assert quiet == [1]
    spout.feed("x")
    rig.settle()
    assert [said for _, said in seen] == [0] * 4


def test_time_without_change_adds_up_and_a_change_or_forgetting_ends_it() -> None:
    watch = ProgressWatch(longest_gap_secs=2.0)
    assert [watch.still_secs(1, 7, now) for now in (10.0, 11.0, 12.5)] == [0.0, 1.0, 2.5]
    assert [watch.still_secs(1, 8, now) for now in (13.0, 14.0)] == [0.0, 1.0]
    # Ports are apart; and an observer that was away does not count the time.
    assert [watch.still_secs(2, 7, now) for now in (14.0, 1000.0, 1001.0)] == [0.0, 2.0, 3.0]
    for _ in range(2):
        watch.forget(1)
    assert [watch.still_secs(port, 8 - (port == 2), 1002.0) for port in (1, 2)] == [0.0, 4.0]
