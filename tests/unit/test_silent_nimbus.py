"""A Nimbus that is stopped or hangs: commands say so, `down` ends the cluster without it, its keeper replaces it."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from squall.cli.cluster import tell_stopped
from squall.ipc.control import NoAnswer
from squall.ipc.rundir import RunDir
from squall.scheduler.client import nimbus_client
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, NimbusClient, NimbusGone, NoCluster
from squall.scheduler.cluster import stopping
from squall.scheduler.cluster.keeper import LOOK_SECS, OPTIONS, STOPPED_SECS, Keeper
from squall.scheduler.cluster.stopping import Stopped, stop_cluster
from squall.scheduler.common.mark import daemon_environment, processes_of
from squall.scheduler.faults.in_force import FaultInForce

HANGS = """
import signal, sys
from squall.ipc.rundir import RunDir
lock = RunDir.open(sys.argv[1]).lock()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("locked", flush=True)
while True:
    signal.pause()
"""


SERVES = """
import os, sys
from squall.ipc.control import ControlServer
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import FaultsTold, Shutdown
run_dir = RunDir.open(sys.argv[1])
lock = run_dir.lock()
server = ControlServer(run_dir.nimbus_socket, run_dir.key(), "nimbus")
print("locked", flush=True)
while True:
    asked = server.recv()
    if asked is not None and sys.argv[2:] == ["and dies"]:
        os.kill(os.getpid(), 9)
    if asked is not None and sys.argv[2:] == ["and stops"] and asked.method != "shutdown":
        server.reply_error(asked, "Nimbus is shutting down", "ClusterError")
    elif asked is not None and asked.method == "shutdown":
        server.reply(asked, asked.decode(Shutdown))
        server.close(1.0)
        sys.exit()
    elif asked is not None:
        server.reply(asked, FaultsTold([]))
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run")


@pytest.fixture
def hung(run_dir: RunDir) -> Iterator[subprocess.Popen[str]]:
    """Holds the directory as Nimbus does, hears no SIGTERM and answers nothing."""
    with _nimbus(run_dir, HANGS) as process:
        yield process


@contextlib.contextmanager
def _nimbus(run_dir: RunDir, program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", program, str(run_dir.path), *arguments], stdout=subprocess.PIPE, text=True,
        env=daemon_environment(run_dir),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_it_is_named_with_the_time_that_was_waited(run_dir: RunDir, hung: subprocess.Popen[str]) -> None:
    with NimbusClient(run_dir, timeout_secs=0.1) as client:
        with pytest.raises(NoAnswer) as asked:
            client.get_cluster()
        with pytest.raises(NoAnswer) as told:
            client.activate("one")
    for error, besides in ((asked, ""), (told, "; activate may still be carried out")):
        first, _, rest = str(error.value).partition(" s: ")
        named, _, waited = first.rpartition(" ")
        assert named == f"Nimbus (pid {hung.pid}) does not answer within"
        assert float(waited) >= 0.1
        assert rest == (
            f"it is stopped or hung, or {run_dir.key_file} is not the key that it was started with{besides}; "
            f"SIGCONT continues a stopped one, `squall down --dir {run_dir.path}` ends the cluster without it"
        )


def test_one_that_dies_before_it_answers_is_not_waited_for(run_dir: RunDir) -> None:
    with _nimbus(run_dir, SERVES, "and dies") as dies, NimbusClient(run_dir, timeout_secs=300) as client:
        with pytest.raises(NimbusGone) as told:
            client.kill_topology("one")
        assert str(told.value) == (
            f"Nimbus (pid {dies.pid}) ended before it answered; kill_topology was carried out or not: squall status "
            "tells, and it may be asked again"
        )
        with _nimbus(run_dir, SERVES, "and dies"), pytest.raises(NimbusGone):
            client.kill_topology("one")


def test_the_end_of_its_cluster_has_a_reason(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nimbus_client, "room_error", lambda _: "cannot write to here: No space left on device")
    assert _said_at_its_end(run_dir) == (
        f"the cluster in {run_dir.path} has ended (cannot write to here: No space left on device): mend that, then "
        f"start one with `squall up --dir {run_dir.path}`"
    )
    # Nobody but `squall run` itself can start its cluster again.
    assert _said_at_its_end(run_dir, is_own=True) == (
        f"the cluster in {run_dir.path} has ended (cannot write to here: No space left on device): mend that or choose "
        "another directory (`squall run --dir DIR`), then run it again"
    )
    monkeypatch.setattr(nimbus_client, "room_error", lambda _: "")
    run_dir.nimbus_words.write_text("its last words\n")
    assert _said_at_its_end(run_dir, is_own=True).endswith(" has ended (its last words): run it again")
    with pytest.raises(NoCluster, match="no cluster runs in"):
        NimbusClient(run_dir)


def _said_at_its_end(run_dir: RunDir, **options: bool) -> str:
    dies = _nimbus(run_dir, SERVES, "and dies")
    with dies, NimbusClient(run_dir, timeout_secs=300, **options) as client, pytest.raises(NoCluster) as told:
        client.get_cluster()
    return str(told.value)


def test_what_may_be_done_twice_is_asked_of_the_next_one(run_dir: RunDir) -> None:
    keeper = subprocess.Popen(["sleep", "300"], env=daemon_environment(run_dir))
    with _nimbus(run_dir, SERVES, "and dies") as dies, ThreadPoolExecutor(1) as pool:

        def heal() -> list[FaultInForce]:
            with NimbusClient(run_dir, timeout_secs=300, patience_secs=300) as client:
                return client.heal()

        healed = pool.submit(heal)
        dies.wait()
        with _nimbus(run_dir, SERVES):
            assert healed.result() == []
    keeper.kill()
    keeper.wait()


def test_down_ends_the_cluster_without_it(
    run_dir: RunDir, hung: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stopping, "ANSWER_SECS", 0.1)
    stopped = stop_cluster(run_dir, 1.0)
    assert stopped == Stopped(killed=1, is_silent=True, by_nimbus=False)
    assert processes_of(run_dir) == []
    tell_stopped(stopped, 1.0, 1.1)
    assert capsys.readouterr().err == "Nimbus does not answer; ended 1 process without draining\n"


@pytest.mark.parametrize("how", ["and dies", "and stops"])
def test_a_second_down_returns_when_the_first_has_stopped_the_cluster(run_dir: RunDir, how: str) -> None:
    # A process of the cluster that outlives Nimbus by a moment, as the keeper does.
    last = subprocess.Popen(["sleep", "300"], env=daemon_environment(run_dir))
    with _nimbus(run_dir, SERVES, how) as nimbus, ThreadPoolExecutor(1) as pool:
        second = pool.submit(stop_cluster, run_dir, 1.0)
        nimbus.wait()
        last.kill()
        last.wait()
        assert second.result() == Stopped()


class OneDaemon:
    """As much of `Daemons` as the keeper looks at."""

    count = 1

    def __init__(self) -> None:
        self.stopped = False
        self.killed: list[str] = []

    def ended(self) -> list[object]:
        return []

    def is_stopped(self, name: str) -> bool:
        return self.stopped and name == "nimbus"

    def kill(self, name: str) -> None:
        self.killed.append(name)


def test_its_keeper_kills_one_that_does_not_go_on() -> None:
    daemons, said = OneDaemon(), []
    keeper = Keeper(daemons, random.Random(1), said.append)  # type: ignore[arg-type]
    now = 100.0

    def look(times: int) -> None:
        nonlocal now
        for _ in range(times):
            keeper.tick(now)
            # A turn that comes early is no look.
            keeper.tick(now + LOOK_SECS / 2)
            now += LOOK_SECS

    patience = int(STOPPED_SECS / LOOK_SECS)
    look(3)
    daemons.stopped = True
    look(patience)
    daemons.stopped = False
    look(1)
    daemons.stopped = True
    # The keeper may have been stopped meanwhile: what it did not see does not count.
    now += 1000.0
    look(patience)
    assert (daemons.killed, said) == ([], [])
    look(1)
    assert daemons.killed == ["nimbus"]
    assert said == ["nimbus was stopped by a signal and has not gone on for 10 s: it is killed"]


def test_commands_wait_longer_than_its_keeper_between_two_tries() -> None:
    """Once what kept Nimbus away has gone, such as a full disk, a command finds one; half the time is for its start."""
    assert OPTIONS.max_delay_secs * (1 + OPTIONS.jitter_ratio) <= AWAY_PATIENCE_SECS / 2
    assert OPTIONS.crash_loop_secs > 100
