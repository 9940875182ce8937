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
from dataclasses import dataclass, field

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.starting import ports_of
from squall.scheduler.common.daemon import note_death, raise_files_limit
from squall.scheduler.common.process import EXIT_WRONG_USE
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions
from squall.scheduler.common.role import MODULES, Role, RoleKind, kill, last_words
from squall.scheduler.forking.child import ForkedModule, fork_module

_START_TIMEOUT_SECS = 20.0
"""Longest wait for a cluster to answer: it takes a second, more only on an overloaded machine."""
_KILL_TIMEOUT_SECS = 5.0
_POLL_SECS = 0.001
OPTIONS = RestartPolicyOptions(max_delay_secs=2.0, max_deaths=60, period_secs=300.0)
"""Some two minutes of trying: time for an operator to mend a full disk or a descriptor limit. No delay is longer than
half of the time that commands wait for Nimbus (`client.AWAY_PATIENCE_SECS`), so they find it once it can run."""


@dataclass
class _Daemon:
    """One of them, through all its deaths."""

    role: Role
    arguments: tuple[str, ...] = ()
    process: ForkedModule | None = None
    """None while it does not run."""
    log_bytes: int = 0
    """Size of its log when it was started: its words come after that."""
    policy: RestartPolicy = field(default_factory=lambda: RestartPolicy(OPTIONS, random.Random()))
    started_at: float = 0.0
    due: float | None = None
    """When it is started again, in seconds of the monotonic clock."""

    @property
    def name(self) -> str:
        return "-".join(filter(None, self.role))

    @property
    def is_serving(self) -> bool:
        """Whether it runs or will, and others need it: nothing depends on the web page."""
        return self.role.kind is not RoleKind.UI and (self.process is not None or self.due is not None)


class Daemons:
    """Nimbus, the supervisors and the web page, as children of this process."""

    def __init__(
        self, run_dir: RunDir, nodes: int, slots: int, lifeline: int | None, ui: Sequence[str] | None = None
    ) -> None:
        """`lifeline`: descriptor to inherit. `ui`: the web page's options; None if there is to be none."""
        self._run_dir = run_dir
        self._lifeline, self._slots = lifeline, nodes * slots
        self._daemons = [_Daemon(Role(RoleKind.NIMBUS))]
        if run_dir.zookeeper.exists():
            self._daemons.append(_Daemon(Role(RoleKind.NIMBUS, "2")))
        for number in range(1, nodes + 1):
            node = f"node-{number}"
            arguments = ("--node", node, "--ports", ports_of(slots))
            self._daemons.append(_Daemon(Role(RoleKind.SUPERVISOR, node), arguments))
        if ui is not None:
            self._daemons.append(_Daemon(Role(RoleKind.UI), tuple(ui)))

    def kill_earlier(self) -> None:
        """Kill the daemons of a keeper that was killed. Call it before `start`."""
        supervisors = (daemon.role for daemon in self._daemons if daemon.role.kind is RoleKind.SUPERVISOR)
        kill(self._run_dir, RoleKind.UI, RoleKind.NIMBUS, *supervisors)

    def start(self) -> None:
        """Start all. If that fails, end them, and raise ClusterError; UsageError if too few files may be open."""
        raise_files_limit(self._slots)
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                for daemon in self._daemons:
                    # The web page is not waited for: it takes seconds on a busy machine.
                    self._start_one(daemon, None if daemon.role.kind is RoleKind.UI else ready_write)
            finally:
                os.close(ready_write)
            self._await_ready(ready_read)
        except BaseException:
            self._end()
            raise
        finally:
            os.close(ready_read)

    def _start_one(self, daemon: _Daemon, ready_fd: int | None = None) -> None:
        """Start a daemon that does not run. ClusterError if the machine refuses."""
        arguments = ("--dir", str(self._run_dir.path), *daemon.arguments)
        pass_fds: tuple[int, ...] = ()
        for option, fd in (("--ready-fd", ready_fd), ("--lifeline", self._lifeline)):
            if fd is not None:
                pass_fds = (*pass_fds, fd)
                arguments = (*arguments, option, str(fd))
        log_path = self._run_dir.daemon_log(daemon.name)
        daemon.log_bytes = log_path.stat().st_size if log_path.exists() else 0
        try:
            daemon.process = fork_module(MODULES[daemon.role.kind], arguments, pass_fds, log_path)
        except (OSError, ClusterError) as error:
            raise ClusterError(f"cannot start {daemon.name}: {error}") from error

    def keep(self, tell: Callable[[str], None]) -> None:
        """Start daemons again that die, until none is left and none is due, but for the web page, which then ends.
        `tell` writes a line for the operator."""
        while self._is_serving():
            now = time.monotonic()
            for daemon in self._daemons:
                if daemon.process is not None and (code := daemon.process.poll()) is not None:
                    daemon.process = None
                    self._take_end(daemon, code, now, tell)
                if daemon.due is not None and now >= daemon.due:
                    daemon.due, daemon.started_at = None, now
                    try:
                        self._start_one(daemon)
                    except ClusterError as error:
                        _died(daemon, str(error), now, tell)
            if self._is_serving():
                due = min((daemon.due for daemon in self._daemons if daemon.due is not None), default=None)
                self.await_end(None if due is None else max(0.0, due - time.monotonic()))
        self._end()

    def _is_serving(self) -> bool:
        return any(daemon.is_serving for daemon in self._daemons)

    def _take_end(self, daemon: _Daemon, code: int, now: float, tell: Callable[[str], None]) -> None:
        how, last = self._ending(daemon, code)
        words = _told(daemon, how, last)
        if code:
            # The last words of one that was killed are about something else.
            note_death(self._run_dir, " ".join(filter(None, daemon.role)), how, last if code > 0 else "")
        if code == EXIT_WRONG_USE:
            tell(f"{words}\n{daemon.name} is not started again: another process runs it, or it cannot run")
        elif code:
            _died(daemon, words, now, tell)

    def await_end(self, timeout_secs: float | None) -> bool:
        """Wait until a daemon ends, at most for `timeout_secs`. Return whether one has ended."""
        processes = self._processes()
        if any(process.poll() is not None for process in processes):
            # It was reaped just now: there is no process any more to open.
            return True
        poll = select.poll()
        pidfds = [os.pidfd_open(process.pid) for process in processes]
        for pidfd in pidfds:
            poll.register(pidfd, select.POLLIN)
        ended = poll.poll(None if timeout_secs is None else math.ceil(timeout_secs * 1000))
        for pidfd in pidfds:
            os.close(pidfd)
        return bool(ended)

    def _processes(self) -> list[ForkedModule]:
        return [daemon.process for daemon in self._daemons if daemon.process is not None]

    def _await_ready(self, fd: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_SECS
        os.set_blocking(fd, False)
        came = 0
        needed = [daemon for daemon in self._daemons if daemon.is_serving]
        while came < len(needed):
            with contextlib.suppress(BlockingIOError):
                came += len(os.read(fd, 64))
            for daemon in needed:
                if daemon.process is not None and (code := daemon.process.poll()) is not None:
                    raise ClusterError(_told(daemon, *self._ending(daemon, code)))
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster did not start within {_START_TIMEOUT_SECS:g} s; see {self._run_dir.logs}"
                )
            time.sleep(_POLL_SECS)

    def _end(self) -> None:
        """End the daemons that are left."""
        for process in self._processes():
            process.terminate()
        for process in self._processes():
            try:
                process.wait(_KILL_TIMEOUT_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _ending(self, daemon: _Daemon, code: int) -> tuple[str, str]:
        """How a daemon ended, and its last words."""
        words = last_words(self._run_dir, daemon.name, daemon.log_bytes)
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}", words


def _died(daemon: _Daemon, words: str, now: float, tell: Callable[[str], None]) -> None:
    verdict = daemon.policy.died(now, lived_secs=now - daemon.started_at)
    if isinstance(verdict, GiveUp):
        tell(
            f"{words}\n{daemon.name} is given up after {verdict}; the rest of the cluster runs on; see "
            f"`squall {daemon.role.kind}`"
        )
        return
    when = f"in {verdict.delay_secs:.1f} s" if verdict.delay_secs else "at once"
    tell(f"{words}; it is started again {when}, the rest of the cluster runs on")
    daemon.due = now + verdict.delay_secs


def _told(daemon: _Daemon, how: str, words: str) -> str:
    return f"{daemon.name} {'was ' if how.startswith('killed') else ''}{how}{words and f': {words}'}"
