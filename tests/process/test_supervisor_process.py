"""A supervisor as a process: real workers, sockets, boards and signals; only Nimbus is played by the test."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from squall.ipc.board import DEAD, READY, STARTING, STOPPED
from tests.process.fake_nimbus import NODE, FakeNimbus, fake_nimbus
from tests.process.history_check import broken_rules
from tests.process.scheduler_tools import children_of, eventually, importable_tests, is_alive, slot_assignment


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as made:
        yield made
        assert broken_rules(made.run_dir) == []


def start_worker(nimbus: FakeNimbus, worker: str = "ready") -> int:
    """A supervisor with one ready worker; the worker's pid."""
    nimbus.start(worker)
    nimbus.assign(p6700=slot_assignment(6700))
    nimbus.until_events("1 started", "1 ready")
    return nimbus.cell().pid


def forking_parent(nimbus: FakeNimbus) -> int:
    log = nimbus.run_dir.daemon_log(f"supervisor-{NODE}").read_text()
    return int([line for line in log.splitlines() if "forking parent" in line and "started" in line][-1].split()[-2])


def test_a_killed_worker_is_replaced(nimbus: FakeNimbus, record_property: Callable[[str, object], None]) -> None:
    pid = start_worker(nimbus)
    assert nimbus.cell()[:3] == (1, READY, pid)
    os.kill(pid, signal.SIGKILL)
    seen = [nimbus.cell()[:2]]
    while seen[-1] != (2, READY):
        now = nimbus.cell()[:2]
        if now != seen[-1]:
            seen.append(now)
        nimbus.take_in()
    # Nothing else, nothing out of order; this process may have slept through a step.
    assert seen == [step for step in [(1, READY), (1, DEAD), (2, STARTING), (2, READY)] if step in seen]
    nimbus.until_events("1 started", "1 ready", "1 died", "2 started", "2 ready")
    died, ready = nimbus.last("died"), nimbus.last("ready")
    assert (died.reason, died.error, died.pid) == ("killed by SIGKILL", "", pid)
    assert is_alive(ready.pid)
    assert ready.pid == nimbus.cell().pid != pid
    millis = (ready.at_monotonic_secs - died.at_monotonic_secs) * 1000
    record_property("death_to_ready_ms", millis)
    print(f"from the death to the replacement's ready: {millis:.1f} ms")


def test_the_board_knows_of_a_death_while_its_reason_is_still_waited_for(nimbus: FakeNimbus) -> None:
    pid = start_worker(nimbus)
    parent = forking_parent(nimbus)
    os.kill(parent, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    nimbus.until("the board to tell", lambda: nimbus.cell()[:3] == (1, DEAD, pid))
    nimbus.until("the death to be reported", lambda: "1 died" in nimbus.events())
    assert nimbus.last("died").reason == "exit status unknown"
    os.kill(parent, signal.SIGCONT)
    nimbus.until_events("1 started", "1 ready", "1 died", "2 started", "2 ready")


def test_last_words_are_in_the_report_and_a_crash_loop_backs_off(nimbus: FakeNimbus) -> None:
    nimbus.start("fails_while_opening")
    nimbus.assign(p6700=slot_assignment(6700))
    nimbus.until("five deaths", lambda: nimbus.events().count("5 died"))
    died = [changed for changed in nimbus.reports if changed.event == "died"]
    assert {changed.reason for changed in died} == {"exited with code 1"}
    assert {changed.error for changed in died} == {"split[3] raised ValueError: bad in prepare\nthe traceback"}
    gaps = [late.at_monotonic_secs - early.at_monotonic_secs for early, late in itertools.pairwise(died)]
    assert gaps[3] > 0.08


def test_workers_run_on_when_their_forking_parent_dies_and_are_still_explained(nimbus: FakeNimbus) -> None:
    pid = start_worker(nimbus)
    parent = forking_parent(nimbus)
    os.kill(parent, signal.SIGKILL)
    nimbus.until("another forking parent", lambda: forking_parent(nimbus) != parent)
    assert is_alive(pid)
    assert pid in children_of(nimbus.pid)
    os.kill(pid, signal.SIGSEGV)
    nimbus.until_events("1 started", "1 ready", "1 died", "2 started", "2 ready")
    assert nimbus.last("died").reason == "killed by SIGSEGV"
    assert children_of(nimbus.pid).keys() == {forking_parent(nimbus)}
    assert children_of(forking_parent(nimbus)).keys() == {nimbus.cell().pid}


def test_a_worker_that_dies_together_with_the_forking_parent_is_explained(nimbus: FakeNimbus) -> None:
    pid = start_worker(nimbus)
    parent = forking_parent(nimbus)
    os.kill(parent, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    os.kill(parent, signal.SIGKILL)
    nimbus.until("a replacement", lambda: nimbus.cell()[1] == READY and nimbus.cell().pid != pid)
    assert nimbus.last("died").pid in (pid, 0)
    eventually("no zombie", lambda: "Z" not in children_of(nimbus.pid).values())


def test_an_emptied_slot_stops_its_worker_politely(nimbus: FakeNimbus) -> None:
    pid = start_worker(nimbus)
    nimbus.assign()
    nimbus.until_events("1 started", "1 ready", "1 stopped")
    assert nimbus.last("stopped").reason == "exited with code 0"
    assert nimbus.cell()[:3] == (1, STOPPED, pid)
    assert "StopWorker" in nimbus.run_dir.worker_log("words-1", NODE, 6700).read_text()


def test_changed_work_restarts_the_worker_and_a_changed_status_does_not(nimbus: FakeNimbus) -> None:
    start_worker(nimbus)
    nimbus.assign(p6700=slot_assignment(6700, status="INACTIVE"))
    log = nimbus.run_dir.worker_log("words-1", NODE, 6700)
    nimbus.until("the worker to hear of it", lambda: "SetStatus" in log.read_text())
    assert nimbus.events() == ["1 started", "1 ready"]
    nimbus.make_next_board()
    nimbus.assign(p6700=slot_assignment(6700, version=2))
    nimbus.until_events("1 started", "1 ready", "1 stopped", "2 started", "2 ready")


def test_shutdown_stops_everything_within_the_grace(nimbus: FakeNimbus) -> None:
    pid = start_worker(nimbus, "deaf")
    parent = forking_parent(nimbus)
    nimbus.shut_down(grace_secs=0.2)
    assert nimbus.wait() == 0
    nimbus.take_in()
    assert nimbus.last("stopped").reason == "not stopped within 0.2 s: killed by SIGKILL"
    assert not is_alive(pid)
    assert not is_alive(parent)
    assert not nimbus.run_dir.node_socket(NODE).exists()


@pytest.mark.parametrize("how", ["SIGTERM", "lifeline"])
def test_it_leaves_politely(nimbus: FakeNimbus, how: str) -> None:
    pid = start_worker(nimbus)
    os.kill(nimbus.pid, signal.SIGINT)
    if how == "SIGTERM":
        os.kill(nimbus.pid, signal.SIGTERM)
    else:
        nimbus.cut_lifeline()
    assert nimbus.wait() == 0
    nimbus.until_events("1 started", "1 ready", "1 stopped")
    assert nimbus.last("stopped").reason == "exited with code 0"
    assert not is_alive(pid)


def test_a_second_sigterm_leaves_no_grace(nimbus: FakeNimbus) -> None:
    start_worker(nimbus, "deaf")
    os.kill(nimbus.pid, signal.SIGTERM)
    log = nimbus.run_dir.daemon_log(f"supervisor-{NODE}")
    nimbus.until("the first to be taken", lambda: "leaving" in log.read_text())
    os.kill(nimbus.pid, signal.SIGTERM)
    assert nimbus.wait() == 0


def test_nimbus_away_and_back(nimbus: FakeNimbus) -> None:
    pid = start_worker(nimbus)
    nimbus.restart()
    nimbus.until("the node to register again", lambda: len(nimbus.registrations) == 2)
    nimbus.until("the node to say where it stands", lambda: nimbus.events()[2:] == ["1 ready"])
    assert nimbus.cell()[:3] == (1, READY, pid)
    os.kill(pid, signal.SIGKILL)
    nimbus.until("the replacement", lambda: nimbus.events()[3:] == ["1 died", "2 started", "2 ready"])


def test_a_supervisor_that_was_killed_leaves_its_workers_to_the_next_one(nimbus: FakeNimbus) -> None:
    pid = start_worker(nimbus)
    parent = forking_parent(nimbus)
    nimbus.kill_supervisor()
    eventually("the end of its forking parent", lambda: not is_alive(parent))
    assert is_alive(pid)
    nimbus.start()
    assert nimbus.cell()[:3] == (1, READY, pid)
    assert set(nimbus.events()) == {"1 started", "1 ready"}
    os.kill(pid, signal.SIGKILL)
    nimbus.until("the replacement", lambda: nimbus.events()[-3:] == ["1 died", "2 started", "2 ready"])


def test_a_worker_that_died_without_a_supervisor_is_replaced_by_the_next_one(nimbus: FakeNimbus) -> None:
    pid = start_worker(nimbus)
    nimbus.kill_supervisor()
    os.kill(pid, signal.SIGKILL)
    eventually("the end of the worker", lambda: not is_alive(pid))
    nimbus.start()
    nimbus.until("the replacement", lambda: nimbus.events()[-2:] == ["2 started", "2 ready"])


def test_work_that_changed_while_the_supervisor_was_away(nimbus: FakeNimbus) -> None:
    """The worker does not speak to the new supervisor and cannot be told: it is replaced when its grace is over."""
    pid = start_worker(nimbus)
    nimbus.kill_supervisor()
    nimbus.make_next_board()
    nimbus.desired = {6700: slot_assignment(6700, version=2)}
    nimbus.start()
    nimbus.until("the end of the worker", lambda: not is_alive(pid))
    nimbus.until("the replacement", lambda: nimbus.events()[-2:] == ["2 started", "2 ready"])


def test_work_without_a_board_is_refused_and_the_rest_runs(nimbus: FakeNimbus) -> None:
    nimbus.start()
    nimbus.assign(p6700=slot_assignment(6700, index=2), p6701=slot_assignment(6701), p6702=slot_assignment(6702))
    nimbus.until_events("1 started", "1 ready", port=6701)
    assert nimbus.last("failed").reason == "slot index 2 of words-1: its board has 2 slots"
    assert nimbus.last("failed", 6702).reason == "node-1 has no port 6702"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--dir", "/", "--node", "n", "--ports", "6700,x"], "supervisor: ports are '6700,x'; allowed: "),
    ],
)
def test_wrong_use_is_one_line_and_code_2(arguments: list[str], line: str) -> None:
    with importable_tests():
        command = [sys.executable, "-m", "squall.scheduler.supervisor.main", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 2
    assert ended.stderr.startswith(line)
    assert ended.stderr.count("\n") == 1


def test_a_second_supervisor_of_a_node_is_refused(nimbus: FakeNimbus) -> None:
    nimbus.start()
    with importable_tests():
        command = [sys.executable, "-m", "squall.scheduler.supervisor.main", "--dir", str(nimbus.run_dir.path)]
        ended = subprocess.run(
            [*command, "--node", NODE, "--ports", "6700"], capture_output=True, text=True, timeout=100
        )
    assert ended.returncode == 1
    assert "another process listens on" in ended.stderr
