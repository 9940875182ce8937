"""The daemons of one cluster, forked by its keeper: Nimbus, supervisors and, if wanted, the web page.

Guarantees
    * `start` returns when Nimbus takes requests and every supervisor has registered; otherwise it raises with the last
      words of the daemon that failed.
    * Daemons with a lifeline stop when the process at its other end ends, in whatever way; those without one stay.
    * A daemon that was killed or failed is started again, with the arguments and the lifeline that it had: at once the
      first times, then after a growing delay, and no more if it keeps dying. One that ended with code 0 was told to,
      and is not. Workers are left alone: a new supervisor adopts them.
    * If the store is in ZooKeeper, there are two Nimbuses; which of them stands by is theirs to find out.
    * The web page ends when no other daemon is left.
    * Daemons of a keeper that was killed are replaced; their workers run on, and the new supervisors adopt them.

Relies on: this process having one thread and never a ZeroMQ context. Thread: main.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from squall.engine.errors import ClusterError
from squall.ipc.private import room_error
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.starting import FIRST_PORT
from squall.scheduler.common.daemon import raise_files_limit
from squall.scheduler.common.process import EXIT_WRONG_USE
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions
from squall.scheduler.common.role import MODULES, STANDBY, Role, RoleKind, processes_of, role_of, signal_marked
from squall.scheduler.forking.child import ForkedModule, fork_module
from squall.scheduler.records.daemon_deaths import note_death

_START_TIMEOUT_SECS = 20.0
"""Longest wait for a cluster to answer: it takes a second, more only on an overloaded machine."""
_KILL_TIMEOUT_SECS = 5.0
_POLL_SECS = 0.001
_UI = "ui"
OPTIONS = RestartPolicyOptions(max_delay_secs=2.0, max_deaths=60, period_secs=300.0)
"""Some two minutes of trying: time for an operator to mend a full disk or a descriptor limit. No delay is longer than
half of the time that commands wait for Nimbus (`client.AWAY_PATIENCE_SECS`), so they find it once it can run."""


def ports_of(slots: int) -> str:
    """The ports of a node with so many slots, for the supervisor's command line."""
    return ",".join(str(FIRST_PORT + slot) for slot in range(slots))


class Daemons:
    """Nimbus, the supervisors and the web page, as children of this process."""

    def __init__(
        self, run_dir: RunDir, nodes: int, slots: int, lifeline: int | None, ui: Sequence[str] | None = None
    ) -> None:
        """`lifeline`: descriptor to inherit. `ui`: the web page's options; None if there is to be none."""
        self._run_dir = run_dir
        self._lifeline, self._slots = lifeline, nodes * slots
        self._processes: dict[str, ForkedModule] = {}
        self._logged: dict[str, int] = {}
        """Daemon -> size in bytes of its log when it was started: its words come after that."""
        self._policies: dict[str, RestartPolicy] = {}
        self._started_at: dict[str, float] = {}
        self._due: dict[str, float] = {}
        """Daemon -> when it is started again, in seconds of the monotonic clock."""
        self._roles: dict[str, tuple[Role, tuple[str, ...]]] = {"nimbus": (Role(RoleKind.NIMBUS), ())}
        if run_dir.zookeeper.exists():
            self._roles["nimbus-2"] = Role(RoleKind.NIMBUS, "2"), ()
        for number in range(1, nodes + 1):
            role = Role(RoleKind.SUPERVISOR, f"node-{number}")
            self._roles[f"supervisor-{role.name}"] = role, ("--node", role.name, "--ports", ports_of(slots))
        if ui is not None:
            self._roles[_UI] = Role(RoleKind.UI), tuple(ui)

    def kill_earlier(self) -> None:
        """Kill the daemons of a keeper that was killed. Call it before `start`."""
        roles = {Role(RoleKind.UI), STANDBY, *(role for role, _ in self._roles.values())}
        deadline = time.monotonic() + _KILL_TIMEOUT_SECS
        while left := [process for process in processes_of(self._run_dir) if role_of(process) in roles]:
            if time.monotonic() >= deadline:
                raise ClusterError(f"earlier daemons do not end: {', '.join(str(process.pid) for process in left)}")
            for process in left:
                signal_marked(process, self._run_dir, signal.SIGKILL)
            time.sleep(_POLL_SECS)

    def start(self) -> None:
        """Start all. If that fails, end them, and raise ClusterError; UsageError if too few files may be open."""
        raise_files_limit(self._slots)
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                for name in self._roles:
                    # The web page is not waited for: nothing depends on it, and it takes seconds on a busy machine.
                    self._start_one(name, None if name == _UI else ready_write)
            finally:
                os.close(ready_write)
            self._await_ready(ready_read)
        except BaseException:
            self._end()
            raise
        finally:
            os.close(ready_read)

    def _start_one(self, name: str, ready_fd: int | None = None) -> None:
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

    def keep(self, tell: Callable[[str], None]) -> None:
        """Start daemons again that die, until none is left and none is due, but for the web page, which then ends.
        `tell` writes a line for the operator."""
        while self._is_serving():
            now = time.monotonic()
            for name, process in list(self._processes.items()):
                code = process.poll()
                if code is not None:
                    del self._processes[name]
                    self._take_end(name, code, now, tell)
            for name in [name for name, at_secs in self._due.items() if now >= at_secs]:
                del self._due[name]
                self._started_at[name] = now
                try:
                    self._start_one(name)
                except ClusterError as error:
                    self._died(name, str(error), now, tell)
            if self._is_serving():
                self.await_end(max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None)
        self._end()

    def _is_serving(self) -> bool:
        return bool({*self._processes, *self._due} - {_UI})

    def _take_end(self, name: str, code: int, now: float, tell: Callable[[str], None]) -> None:
        how, last = self._ending(name, code)
        words = _told(name, how, last)
        if code:
            role, _ = self._roles[name]
            # The last words of one that was killed are about something else.
            note_death(self._run_dir, f"{role.kind} {role.name}".strip(), how, last if code > 0 else "")
        if code == EXIT_WRONG_USE:
            tell(f"{words}\n{name} is not started again: another process runs it, or it cannot run")
        elif code:
            self._died(name, words, now, tell)

    def _died(self, name: str, words: str, now: float, tell: Callable[[str], None]) -> None:
        policy = self._policies.setdefault(name, RestartPolicy(OPTIONS, random.Random()))
        verdict = policy.died(now, lived_secs=now - self._started_at.get(name, 0.0))
        if isinstance(verdict, GiveUp):
            command = f"squall {name.partition('-')[0]}"
            tell(f"{words}\n{name} is given up after {verdict}; the rest of the cluster runs on; see `{command}`")
            return
        when = f"in {verdict.delay_secs:.1f} s" if verdict.delay_secs else "at once"
        tell(f"{words}; it is started again {when}, the rest of the cluster runs on")
        self._due[name] = now + verdict.delay_secs

    def await_end(self, timeout_secs: float | None) -> bool:
        """Wait until a daemon ends, at most for `timeout_secs`. Return whether one has ended."""
        if any(process.poll() is not None for process in self._processes.values()):
            # It was reaped just now: there is no process any more to open.
            return True
        poll = select.poll()
        pidfds = [os.pidfd_open(process.pid) for process in self._processes.values()]
        for pidfd in pidfds:
            poll.register(pidfd, select.POLLIN)
        ended = poll.poll(None if timeout_secs is None else math.ceil(timeout_secs * 1000))
        for pidfd in pidfds:
            os.close(pidfd)
        return bool(ended)

    def _await_ready(self, fd: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_SECS
        os.set_blocking(fd, False)
        came = 0
        needed = self._roles.keys() - {_UI}
        while came < len(needed):
            with contextlib.suppress(BlockingIOError):
                came += len(os.read(fd, 64))
            for name in needed:
                if (code := self._processes[name].poll()) is not None:
                    raise ClusterError(_told(name, *self._ending(name, code)))
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster did not start within {_START_TIMEOUT_SECS:g} s; see {self._run_dir.logs}"
                )
            time.sleep(_POLL_SECS)

    def _end(self) -> None:
        """End the daemons that are left."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_KILL_TIMEOUT_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _ending(self, name: str, code: int) -> tuple[str, str]:
        """How a daemon ended, and its last words."""
        # On a full disk, there are no last words.
        run_dir = self._run_dir
        words = last_line(run_dir.daemon_log(name), self._logged.get(name, 0)) or room_error(run_dir.durable)
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}", words


def _told(name: str, how: str, words: str) -> str:
    return f"{name} {'was ' if how.startswith('killed') else ''}{how}{': ' + words if words else ''}"


def last_line(path: Path, since_bytes: int = 0) -> str:
    """The last line of a log after its first `since_bytes`; "" if there is none."""
    try:
        data = path.read_bytes()[since_bytes:]
    except FileNotFoundError:
        return ""
    lines = data.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
