"""Starts a cluster's daemons, each a process of its own, and finds running ones.

A daemon is executed, or forked from a process that may fork safely.

Guarantees
    * `start` returns when Nimbus takes requests and every supervisor has registered; otherwise it raises with the last
      words of the daemon that failed.
    * Daemons started with a lifeline stop when the process at its other end ends, in whatever way; those started
      without one stay.
    * A daemon that has died can be started again, with the arguments and the lifeline that it had.
    * The daemons of a dead process can be adopted, and are then watched and restarted like children.

Relies on: every process of a cluster carrying the name of its run directory in its environment. Thread: the launcher's
main one.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from squall.engine.errors import ClusterError, UsageError
from squall.engine.plural import plural
from squall.ipc.private import naming, opener
from squall.ipc.rundir import RunDir
from squall.scheduler.client.why_away import room_error
from squall.scheduler.cluster.adopted_process import UNSEEN, AdoptedProcess
from squall.scheduler.cluster.daemon_environment import daemon_environment
from squall.scheduler.common.mark import processes_of, role_of, signal_marked
from squall.scheduler.common.process import is_stopped
from squall.scheduler.common.process_title import MODULES, Kind, Role
from squall.scheduler.forking.interpreter import interpreter
from squall.scheduler.forking.module import ChildProcess, ForkedModule, fork_module

FIRST_PORT = 6700
_START_TIMEOUT_SECS = 20.0
"""Longest wait for a cluster to answer: it takes a second, more only on an overloaded machine."""


def daemon_command(kind: Kind, run_dir: RunDir, *arguments: str) -> list[str]:
    return [*interpreter(MODULES[kind]), "--dir", str(run_dir.path), *arguments]


def ports_of(slots: int) -> str:
    """The ports of a node with so many slots, for the supervisor's command line."""
    return ",".join(str(FIRST_PORT + slot) for slot in range(slots))


class Launch(NamedTuple):
    """A daemon to start."""

    run_dir: RunDir
    module: str
    arguments: tuple[str, ...]
    """For the module's `main`."""
    log_path: Path
    pass_fds: tuple[int, ...]
    """Descriptors that it inherits, under the same numbers."""

    @property
    def command(self) -> list[str]:
        return [*interpreter(self.module), *self.arguments]


def execute(launch: Launch) -> subprocess.Popen[bytes]:
    """Start a daemon as a new interpreter; safe even if this process has threads or a ZeroMQ context."""
    with open(launch.log_path, "ab", opener=opener) as log:
        return subprocess.Popen(
            launch.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=launch.pass_fds,
            start_new_session=True, env=daemon_environment(launch.run_dir),
        )


def fork(launch: Launch) -> ForkedModule:
    """Fork a daemon from this process, which must have one thread and never have had a ZeroMQ context."""
    return fork_module(launch.module, launch.arguments, launch.pass_fds, launch.log_path)


class Prepared(Protocol):
    """A process that has done the daemons' imports (`scheduler.cluster.starter`)."""

    lifeline: tuple[int, int]
    ready: tuple[int, int]

    def fork(self, launch: Launch) -> ChildProcess: ...

    def hand_over(self) -> None: ...


class Ended(NamedTuple):
    """A daemon that has ended."""

    name: str
    """ "nimbus", "supervisor-node-1"."""
    code: int
    """As `Popen.returncode`; 0: it was told to end."""
    words: str
    """The way it ended, and its last words."""


class Daemons:
    """The daemons that this process starts."""

    def __init__(
        self, run_dir: RunDir, start_one: Callable[[Launch], ChildProcess] = execute, prepared: Prepared | None = None
    ) -> None:
        """`prepared` forks the first daemons, if it can; all others are started by `start_one`."""
        self._run_dir = run_dir
        self._start_one = start_one
        self._prepared = prepared
        self._processes: dict[str, ChildProcess] = {}
        self._commands: dict[str, tuple[Role, tuple[str, ...]]] = {}
        """Daemon -> role and arguments, to start it again."""
        self._logged: dict[str, int] = {}
        """Daemon -> size in bytes of its log when it was started: its words come after that."""
        self._lifeline, self._lifeline_read = -1, -1

    def bind(self, lifeline: int | None = None) -> None:
        """Bind the daemons to the life of this process, or of the holder of `lifeline`'s other end. Before `start`."""
        if lifeline is not None:
            self._lifeline_read = lifeline
        elif self._prepared is not None:
            self._lifeline_read, self._lifeline = self._prepared.lifeline
        else:
            self._lifeline_read, self._lifeline = os.pipe2(os.O_CLOEXEC)

    def start(self, nodes: int, slots: int, *, remove_dir: bool = False, faults: bool = True) -> None:
        """Start Nimbus and the supervisors. `faults`: whether Nimbus lets faults be injected."""
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC) if self._prepared is None else self._prepared.ready
        fds = [ready_read, ready_write]
        try:
            self._name(nodes, slots, remove_dir, faults)
            try:
                for name in self._commands:
                    self._spawn(name, ready_write)
            finally:
                prepared, self._prepared = self._prepared, None
                if prepared is not None:
                    prepared.hand_over()
            fds.remove(ready_write)
            os.close(ready_write)
            self._await_ready(ready_read, nodes + 1)
        finally:
            for fd in fds:
                os.close(fd)

    def adopt(self, nodes: int, slots: int, *, faults: bool = True) -> None:
        """Take over the daemons of a dead keeper; `ended` reports those that have ended meanwhile."""
        self._name(nodes, slots, remove_dir=False, faults=faults)
        found = processes_of(self._run_dir)
        for name, (role, _) in self._commands.items():
            pids = [process.pid for process in found if role_of(process) == role]
            self._processes[name] = AdoptedProcess(pids[0] if pids else 0, self._run_dir.daemon_record(name))

    def _name(self, nodes: int, slots: int, remove_dir: bool, faults: bool) -> None:
        options = (("--remove-dir", remove_dir), ("--no-faults", not faults))
        self._commands["nimbus"] = Role(Kind.NIMBUS), tuple(option for option, wanted in options if wanted)
        for number in range(1, nodes + 1):
            role = Role(Kind.SUPERVISOR, f"node-{number}")
            self._commands[f"supervisor-{role.name}"] = role, ("--node", role.name, "--ports", ports_of(slots))

    def check(self) -> None:
        """Raise ClusterError if Nimbus or a supervisor has died."""
        for name, process in self._processes.items():
            if (code := process.poll()) is not None:
                raise ClusterError(self._ending(name, code))

    def ended(self) -> list[Ended]:
        """Forget the daemons that have ended; returns them."""
        found = []
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                del self._processes[name]
                found.append(Ended(name, code, self._ending(name, code)))
        return found

    def start_again(self, name: str) -> None:
        """Start a daemon that has ended. ClusterError if the machine refuses."""
        self._spawn(name)

    def is_stopped(self, name: str) -> bool:
        """Whether a daemon is stopped by a signal, such as SIGSTOP."""
        process = self._processes.get(name)
        # Only this process reaps its children, so the pid is still the daemon's. That of an adopted one very likely is.
        return process is not None and process.poll() is None and is_stopped(process.pid)

    def kill(self, name: str) -> None:
        """Kill a daemon; `ended` will report it."""
        self._processes[name].kill()

    def await_end(self, timeout_secs: float | None) -> None:
        """Return as soon as a daemon ends, at the latest after `timeout_secs`."""
        poll = select.poll()
        pidfds = []
        try:
            for process in self._processes.values():
                try:
                    pidfds.append(os.pidfd_open(process.pid))
                except ProcessLookupError:
                    # An adopted one: a child would remain until this process reaps it.
                    return
                poll.register(pidfds[-1], select.POLLIN)
            poll.poll(None if timeout_secs is None else math.ceil(timeout_secs * 1000))
        finally:
            for pidfd in pidfds:
                os.close(pidfd)

    @property
    def count(self) -> int:
        """The number of daemons that have not been seen to end."""
        return len(self._processes)

    def terminate(self) -> None:
        """Ask all to stop."""
        for process in self._processes.values():
            process.terminate()

    def release(self) -> None:
        """Cut the lifeline: the daemons stop by themselves. May be called again."""
        for fd in (self._lifeline, self._lifeline_read):
            if fd >= 0:
                os.close(fd)
        self._lifeline, self._lifeline_read = -1, -1

    def reap(self, deadline: float) -> None:
        """Wait until all have ended, and kill the others after `deadline`, with the processes that they left."""
        self.release()
        strays = False
        for process in self._processes.values():
            try:
                strays |= process.wait(max(0.0, deadline - time.monotonic())) != 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                strays = True
        self._processes.clear()
        # If a Nimbus still runs, it was started by hand at the same time, and the processes are its own.
        if strays and self._run_dir.lock_holder() is None:
            for stray in processes_of(self._run_dir):
                signal_marked(stray, self._run_dir, signal.SIGKILL)

    def _ending(self, name: str, code: int) -> str:
        # On a full disk, there are no last words.
        words = last_line(self._run_dir.daemon_log(name), self._logged.get(name, 0)) or room_error(self._run_dir)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        if code == UNSEEN:
            how = "ended without a word"
        return f"{name} {how}{': ' + words if words else ''}"

    def _spawn(self, name: str, ready_fd: int | None = None) -> None:
        role, arguments = self._commands[name]
        arguments = ("--dir", str(self._run_dir.path), *arguments)
        pass_fds: tuple[int, ...] = ()
        for option, fd in (("--ready-fd", ready_fd), ("--lifeline", self._lifeline_read)):
            if fd is not None and fd >= 0:
                pass_fds = (*pass_fds, fd)
                arguments = (*arguments, option, str(fd))
        log_path = self._run_dir.daemon_log(name)
        self._logged[name] = log_path.stat().st_size if log_path.exists() else 0
        try:
            launch = Launch(self._run_dir, MODULES[role.kind], arguments, log_path, pass_fds)
            self._processes[name] = self._started(launch)
        except OSError as error:
            raise ClusterError(f"cannot start {name}: {error.strerror}") from error
        except ClusterError as error:
            raise ClusterError(f"cannot start {name}: {error}") from error

    def _started(self, launch: Launch) -> ChildProcess:
        if self._prepared is not None:
            # If it cannot, because it has died, the daemon is started as if there had been none.
            with contextlib.suppress(ClusterError):
                return self._prepared.fork(launch)
        return self._start_one(launch)

    def _await_ready(self, fd: int, count: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_SECS
        os.set_blocking(fd, False)
        came = 0
        while came < count:
            with contextlib.suppress(BlockingIOError):
                came += len(os.read(fd, 64))
            self.check()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster did not start within {_START_TIMEOUT_SECS:g} s; see {self._run_dir.logs}"
                )
            time.sleep(0.001)


def take_directory(path: str | Path) -> RunDir:
    """Make or take a run directory for a new cluster. UsageError if a cluster runs whose directory was lost."""
    run_dir = RunDir(path)
    if not run_dir.key_file.exists():
        left = processes_of(run_dir)
        # Look again: a process is marked only once there is a key, so if these belong to another program that is
        # starting a cluster here just now, the key is there.
        if left and not run_dir.key_file.exists():
            still = plural(len(left), "process of a cluster still runs", "processes of a cluster still run")
            raise UsageError(
                f"{still} whose directory {run_dir.path} was removed, or has lost its key: `squall down --dir "
                f"{run_dir.path}` ends {'it' if len(left) == 1 else 'them'}"
            )
    with naming(run_dir.path):
        return RunDir.create(path)


def last_line(path: Path, since_bytes: int = 0) -> str:
    """The last line of a log after its first `since_bytes`; "" if there is none."""
    try:
        data = path.read_bytes()[since_bytes:]
    except FileNotFoundError:
        return ""
    lines = data.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
