"""A Nimbus that is stopped, hangs or dies: commands say so, its keeper replaces it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from squall.ipc.control import ControlServer, Incoming, NoAnswer
from squall.ipc.rundir import RunDir
from squall.scheduler.client import nimbus_client
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, NimbusClient, NimbusGone, NoCluster
from squall.scheduler.cluster.daemons import OPTIONS
from squall.scheduler.common.messages import FaultsTold


def test_it_is_named_with_the_time_that_was_waited(run_dir: RunDir) -> None:
    lock = run_dir.lock()
    with NimbusClient(run_dir, timeout_secs=0.1) as client:
        silent = rf"Nimbus \(pid {run_dir.lock_holder()}\) does not answer within 0\.1 s"
        asked: list[Callable[[], object]] = [client.get_cluster, lambda: client.activate("one")]
        for ask in asked:
            with pytest.raises(NoAnswer, match=silent):
                ask()
    lock.release()


def test_one_that_dies_before_it_answers_is_not_waited_for(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = run_dir.lock()
    with NimbusClient(run_dir, timeout_secs=300) as client:
        threading.Timer(0.1, lock.release).start()
        with pytest.raises(NimbusGone, match="; kill_topology was carried out or not: squall status tells"):
            client.kill_topology("one")
        monkeypatch.setattr(nimbus_client, "room_error", lambda _: "cannot write to here: No space left on device")
        with pytest.raises(NoCluster, match=r"no cluster runs in .* \(cannot write to here: No space left on device\)"):
            client.get_cluster()


def test_what_may_be_done_twice_is_asked_of_the_next_one(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    missed = threading.Event()
    monkeypatch.setattr(nimbus_client, "processes_of", lambda _: [missed.set()])

    def serve() -> None:
        nonlocal lock
        _take_request(run_dir)[0].close()
        lock.release()
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
    lock.release()


def _take_request(run_dir: RunDir) -> tuple[ControlServer, Incoming]:
    server = ControlServer(run_dir.nimbus_socket, run_dir.key(), "nimbus")
    while (asked := server.recv()) is None:
        server.socket.poll(100)
    return server, asked


def test_commands_wait_longer_than_its_keeper_between_two_tries() -> None:
    """Once what kept Nimbus away has gone, such as a full disk, a command finds one; half the time is for its start."""
    assert OPTIONS.max_delay_secs * (1 + OPTIONS.jitter_ratio) <= AWAY_PATIENCE_SECS / 2
