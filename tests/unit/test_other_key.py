"""Frames that were signed with another key are refused; whoever sent them, or looks, is told of the key."""

from __future__ import annotations

import pytest

from squall.cli.standing import tell_refused
from squall.ipc.control import ControlServer, NoAnswer
from squall.ipc.rundir import RunDir
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.common.messages import ClusterState
from squall.testing.waiting import wait_for


def flip(run_dir: RunDir) -> None:
    key = bytearray(run_dir.key())
    key[7] ^= 1
    run_dir.key_file.write_bytes(key)


def test_a_client_asks_whether_the_key_is_the_right_one(run_dir: RunDir) -> None:
    lock = run_dir.lock()
    server = ControlServer(run_dir.nimbus_socket, run_dir.key(), "nimbus")
    flip(run_dir)
    with NimbusClient(run_dir, timeout_secs=0.2) as client:
        for request in (client.get_cluster, client.forget_unknown):
            with pytest.raises(NoAnswer, match=f"does not answer .* {run_dir.key_file} is not the key that it"):
                request()
            assert server.recv() is None
    wait_for("both are refused", lambda: server.recv() is None and server.refused == 2)
    server.close()
    lock.release()


def test_commands_say_why_a_cluster_has_no_supervisor(run_dir: RunDir, capfd: pytest.CaptureFixture[str]) -> None:
    assert not tell_refused(run_dir, ClusterState({}, [], []))
    assert not tell_refused(run_dir, ClusterState({"node-1": [6700]}, [], [], refused_frames=3))
    assert capfd.readouterr().err == ""
    assert tell_refused(run_dir, ClusterState({}, [], [], refused_frames=3))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("no supervisor is registered, and Nimbus has refused 3 frames")
    assert f"is {run_dir.key_file} the key" in line
