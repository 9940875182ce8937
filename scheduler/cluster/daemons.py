"""The daemons of one cluster, forked by its keeper.

Guarantees
    * `start` returns when Nimbus takes requests and every supervisor has registered; otherwise it raises with the last
      words of the daemon that failed.
    * Daemons with a lifeline stop when the process at its other end ends, in whatever way; those without one stay.
    * A daemon that has ended can be started again, with the arguments and the lifeline that it had.
    * Daemons of a keeper that was killed are replaced; their workers run on, and the new supervisors adopt them.

Relies on: this process having one thread and never a ZeroMQ context. Thread: main.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.why_away import room_error
from squall.scheduler.cluster.size import FIRST_PORT
from squall.scheduler.common.mark import processes_of, role_of, signal_marked
from squall.scheduler.common.process import is_stopped
from squall.scheduler.common.process_title import MODULES, Kind, Role
from squall.scheduler.forking.module import ForkedModule, fork_module

_START_TIMEOUT_SECS = 20.0
"""Longest wait for a cluster to answer: it takes a second, more only on an overloaded machine."""
_KILL_TIMEOUT_SECS = 5.0
_POLL_SECS = 0.001


def ports_of(slots: int) -> str:
    """The ports of a node with so many slots, for the supervisor's command line."""
    return ",".join(str(FIRST_PORT + slot) for slot in range(slots))


class Ended(NamedTuple):
    """A daemon that has ended."""

    name: str
    """ "nimbus", "supervisor-node-1"."""
    code: int
    """As `Popen.returncode`; 0: it was told to end."""
    words: str
    """The way it ended, and its last words."""


class Daemons:
    """Nimbus and the supervisors, as children of this process."""

    def __init__(self, run_dir: RunDir, nodes: int, slots: int, lifeline: int | None) -> None:
        """`lifeline`: descriptor to inherit."""
        self._run_dir = run_dir
        self._lifeline = lifeline
        self._processes: dict[str, ForkedModule] = {}
        self._logged: dict[str, int] = {}
        """Daemon -> size in bytes of its log when it was started: its words come after that."""
        self._roles: dict[str, tuple[Role, tuple[str, ...]]] = {"nimbus": (Role(Kind.NIMBUS), ())}
        for number in range(1, nodes + 1):
            role = Role(Kind.SUPERVISOR, f"node-{number}")
            self._roles[f"supervisor-{role.name}"] = role, ("--node", role.name, "--ports", ports_of(slots))

    def kill_earlier(self) -> None:
        """Kill the daemons of a keeper that was killed. Call it before `start`."""
        roles = {role for role, _ in self._roles.values()}
        deadline = time.monotonic() + _KILL_TIMEOUT_SECS
        while left := [process for process in processes_of(self._run_dir) if role_of(process) in roles]:
            if time.monotonic() >= deadline:
                raise ClusterError(f"earlier daemons do not end: {', '.join(str(process.pid) for process in left)}")
            for process in left:
                signal_marked(process, self._run_dir, signal.SIGKILL)
            time.sleep(_POLL_SECS)

    def start(self) -> None:
        """Start all. If that fails, end them, and raise ClusterError."""
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                for name in self._roles:
                    self.start_one(name, ready_write)
            finally:
                os.close(ready_write)
            self._await_ready(ready_read)
        except BaseException:
            self._end()
            raise
        finally:
            os.close(ready_read)

    def start_one(self, name: str, ready_fd: int | None = None) -> None:
        """Start a daemon that does not run. ClusterError if the machine refuses."""
        role, arguments = self._roles[name]
        arguments = ("--dir", str(self._run_dir.path), *arguments)
        pass_fds: tuple[int, ...] = ()
        for option, fd in (("--ready-fd", ready_fd), ("--lifeline", self._lifeline)):
            if fd is not None:
                pass_fds = (*pass_fds, fd)
                arguments = (*arguments, option, str(fd))
        log_path = self._run_dir.daemon_log(name)
        self._logged[name] = log_path.stat().st_size if log_path.exists() else 0
        try:
            self._processes[name] = fork_module(MODULES[role.kind], arguments, pass_fds, log_path)
        except (OSError, ClusterError) as error:
            raise ClusterError(f"cannot start {name}: {error}") from error

    def ended(self) -> list[Ended]:
        """Forget the daemons that have ended; returns them."""
        found = []
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                del self._processes[name]
                found.append(Ended(name, code, self._ending(name, code)))
        return found

    def is_stopped(self, name: str) -> bool:
        """Whether a daemon is stopped by a signal, such as SIGSTOP."""
        process = self._processes.get(name)
        # Only this process reaps its children, so the pid is still the daemon's.
        return process is not None and process.poll() is None and is_stopped(process.pid)

    def kill(self, name: str) -> None:
        """Kill a daemon; `ended` will report it."""
        self._processes[name].kill()

    def await_end(self, timeout_secs: float) -> bool:
        """Wait until a daemon ends, at most for `timeout_secs`; whether one has."""
        if any(process.poll() is not None for process in self._processes.values()):
            # `is_stopped` may have reaped it just now: there is no process any more to open.
            return True
        poll = select.poll()
        pidfds = [os.pidfd_open(process.pid) for process in self._processes.values()]
        for pidfd in pidfds:
            poll.register(pidfd, select.POLLIN)
        ended = poll.poll(math.ceil(timeout_secs * 1000))
        for pidfd in pidfds:
            os.close(pidfd)
        return bool(ended)

    @property
    def count(self) -> int:
        """The number of daemons that have not been seen to end."""
        return len(self._processes)

    def _await_ready(self, fd: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_SECS
        os.set_blocking(fd, False)
        came = 0
        while came < len(self._roles):
            with contextlib.suppress(BlockingIOError):
                came += len(os.read(fd, 64))
            for name, process in self._processes.items():
                if (code := process.poll()) is not None:
                    raise ClusterError(self._ending(name, code))
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster did not start within {_START_TIMEOUT_SECS:g} s; see {self._run_dir.logs}"
                )
            time.sleep(_POLL_SECS)

    def _end(self) -> None:
        """End the daemons of a start that failed."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_KILL_TIMEOUT_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _ending(self, name: str, code: int) -> str:
        # On a full disk, there are no last words.
        words = last_line(self._run_dir.daemon_log(name), self._logged.get(name, 0)) or room_error(self._run_dir)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return f"{name} {how}{': ' + words if words else ''}"


def last_line(path: Path, since_bytes: int = 0) -> str:
    """The last line of a log after its first `since_bytes`; "" if there is none."""
    try:
        data = path.read_bytes()[since_bytes:]
    except FileNotFoundError:
        return ""
    lines = data.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
