"""A Nimbus for one supervisor under test: the real sockets, frames and boards, and no decisions of its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import zmq

from squall.ipc.board import Board, SlotCell
from squall.ipc.control import ControlServer
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import AssignNode, RegisterSupervisor, Shutdown, SlotAssignment, SlotChanged
from tests.process.scheduler_tools import DEADLINE_SECS, entry, importable_tests

T = TypeVar("T")
NODE = "node-1"


class FakeNimbus:
    """The serving end of a run directory, and the supervisor's parent. Pumped by `until`."""

    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self.registrations: list[RegisterSupervisor] = []
        self.reports: list[SlotChanged] = []
        self.heartbeats = 0
        self.desired: dict[int, SlotAssignment] = {}
        self.board = Board.create(str(run_dir.board("words-1")), n_slots=2, n_tasks=1)
        self.server = self._serve()
        self.supervisor: subprocess.Popen[bytes] | None = None
        self._supervisors: list[subprocess.Popen[bytes]] = []
        self._lifelines: list[int] = []

    def _serve(self) -> ControlServer:
        return ControlServer(self.run_dir.nimbus_socket, self.run_dir.key(), "nimbus")

    # ---- the supervisor ----

    def start(self, worker: str = "ready", ports: str = "6700,6701") -> None:
        """Start the supervisor and wait until it says that it is ready."""
        read_end, lifeline = os.pipe2(os.O_CLOEXEC)
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        log_path = self.run_dir.daemon_log(f"supervisor-{NODE}")
        with importable_tests(), open(log_path, "ab") as log:
            self.supervisor = subprocess.Popen(
                [
                    *(sys.executable, "-m", "squall.scheduler.supervisor.main", "--dir", str(self.run_dir.path)),
                    *("--node", NODE, "--ports", ports, "--entry", entry(worker)),
                    *("--lifeline", str(read_end), "--ready-fd", str(ready_write)),
                ],
                stdout=log,
                stderr=log,
                pass_fds=(read_end, ready_write),
                start_new_session=True,
            )
        self._supervisors.append(self.supervisor)
        self._lifelines.append(lifeline)
        os.close(read_end)
        os.close(ready_write)
        try:
            self.until("the supervisor to be ready", lambda: select.select([ready_read], [], [], 0)[0])
            assert os.read(ready_read, 10) == b"+", log_path.read_text()
        finally:
            os.close(ready_read)

    @property
    def pid(self) -> int:
        assert self.supervisor is not None
        return self.supervisor.pid

    def wait(self) -> int:
        """The supervisor's exit code."""
        process = self.supervisor
        assert process is not None
        self.until("the supervisor to end", lambda: process.poll() is not None)
        assert process.returncode is not None
        return process.returncode

    def kill_supervisor(self) -> None:
        """By SIGKILL, and wait until it is gone."""
        assert self.supervisor is not None
        self.supervisor.kill()
        self.supervisor.wait()

    def cut_lifeline(self) -> None:
        while self._lifelines:
            os.close(self._lifelines.pop())

    # ---- Nimbus ----

    def assign(self, **slots: SlotAssignment) -> None:
        """`assign(p6700=work)`: the complete desired state."""
        self.desired = {int(port[1:]): work for port, work in slots.items()}
        assert self.server.send_event(f"supervisor:{NODE}", AssignNode(self.desired))

    def make_next_board(self) -> None:
        """The board of the assignment's version 2."""
        made = Board.create(str(self.run_dir.board("words-1", 2)), n_slots=2, n_tasks=1)
        made.continue_from(self.board)
        made.close()

    def shut_down(self, grace_secs: float) -> None:
        assert self.server.send_event(f"supervisor:{NODE}", Shutdown(grace_secs))

    def restart(self) -> None:
        """Be gone, then there again, as a process that was killed would be."""
        self.server.close()
        self.server = self._serve()

    def cell(self, index: int = 0) -> SlotCell:
        return self.board.slot(index)

    def events(self, port: int = 6700) -> list[str]:
        """What was reported of a slot: "2 ready"."""
        return [f"{changed.incarnation} {changed.event}" for changed in self.reports if changed.port == port]

    def last(self, event: str, port: int = 6700) -> SlotChanged:
        return [changed for changed in self.reports if changed.event == event and changed.port == port][-1]

    def until(self, what: str, ask: Callable[[], T]) -> T:
        """The first true answer, while frames are taken in; AssertionError with the supervisor's log after a while."""
        deadline = time.monotonic() + DEADLINE_SECS
        while not (answer := ask()):
            if time.monotonic() >= deadline:
                log = self.run_dir.daemon_log(f"supervisor-{NODE}").read_text()
                raise AssertionError(f"waited {DEADLINE_SECS:g} s in vain for {what}; reports {self.reports}\n{log}")
            zmq.select([self.server.socket], [], [], 0.005)
            self.take_in()
        return answer

    def until_events(self, *wanted: str, port: int = 6700) -> None:
        self.until(f"the reports {wanted}", lambda: len(self.events(port)) >= len(wanted))
        assert self.events(port) == list(wanted), self.run_dir.daemon_log(f"supervisor-{NODE}").read_text()

    def take_in(self) -> None:
        while (incoming := self.server.recv()) is not None:
            if incoming.method == "register_supervisor":
                self.registrations.append(incoming.decode(RegisterSupervisor))
                self.server.reply(incoming, AssignNode(self.desired))
            elif incoming.method == "SlotChanged":
                self.reports.append(incoming.decode(SlotChanged))
            elif incoming.method == "SupervisorHeartbeat":
                self.heartbeats += 1

    def close(self) -> None:
        """End whatever runs."""
        self.cut_lifeline()
        for process in self._supervisors:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
        self.server.close()
        self.board.close()


@contextlib.contextmanager
def fake_nimbus() -> Iterator[FakeNimbus]:
    """With a run directory that is removed afterwards, and every worker that is left in it killed."""
    # Under the runtime directory of the test run, because its path is short enough for sockets.
    run_dir = RunDir.create(tempfile.mkdtemp(prefix="n-", dir=os.environ["XDG_RUNTIME_DIR"]))
    nimbus = FakeNimbus(run_dir)
    try:
        yield nimbus
    finally:
        nimbus.close()
        for changed in nimbus.reports:
            # Only what no supervisor has seen to end: its pid is still its own.
            if changed.event == "ready" and not _ended(nimbus, changed):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(changed.pid, signal.SIGKILL)
        run_dir.remove()


def _ended(nimbus: FakeNimbus, started: SlotChanged) -> bool:
    return any(
        changed.pid == started.pid and changed.event in ("died", "stopped", "failed") for changed in nimbus.reports
    )
