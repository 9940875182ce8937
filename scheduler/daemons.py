"""Starting a cluster's daemons, each a process of its own, and finding those that run.

Guarantees
    * `start` returns when Nimbus takes requests and every supervisor has registered; otherwise it raises with the last
      words of the daemon that failed.
    * Daemons started with a lifeline stop when this process ends, however it ends; those started without one stay.

Relies on: every process of a cluster carrying the name of its run directory in its environment.

The launcher's main thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from engine.errors import ClusterError
from ipc.rundir import RunDir

FIRST_PORT = 6700
RUN_DIR_MARK = "SQUALL_RUN_DIR"
"""Environment variable that every process of a cluster carries, so that strays can be told from others'."""
_START_TIMEOUT_SECS = 20.0


def daemon_command(module: str, run_dir: RunDir, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, "--dir", str(run_dir.path), *arguments]


def daemon_environment(run_dir: RunDir) -> dict[str, str]:
    """What a daemon finds in its environment: the way to Squall's own modules, and the mark."""
    return {**python_environment(), RUN_DIR_MARK: str(run_dir.path)}


def python_environment() -> dict[str, str]:
    """Ours, with Squall's own modules on the import path."""
    root = str(Path(__file__).resolve().parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}


def ports_of(slots: int) -> str:
    """The ports of a node with so many slots, as the supervisor's command line takes them."""
    return ",".join(str(FIRST_PORT + slot) for slot in range(slots))


class Daemons:
    """The daemons that this process starts."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lifeline = -1

    def start(self, nodes: int, slots: int, *, bound: bool, remove_dir: bool = False) -> None:
        """Start Nimbus and the supervisors; `bound` to the life of this process, or to nobody's."""
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        fds = [ready_read, ready_write]
        common = ["--ready-fd", str(ready_write)]
        passed = [ready_write]
        try:
            if bound:
                read_end, self._lifeline = os.pipe2(os.O_CLOEXEC)
                fds.append(read_end)
                passed.append(read_end)
                common += ["--lifeline", str(read_end)]
            self._spawn("nimbus", "scheduler.nimbus_main", passed, *common, *(["--remove-dir"] if remove_dir else []))
            for number in range(1, nodes + 1):
                node = f"node-{number}"
                arguments = ["--node", node, "--ports", ports_of(slots)]
                self._spawn(f"supervisor-{node}", "scheduler.supervisor_main", passed, *common, *arguments)
            fds.remove(ready_write)
            os.close(ready_write)
            self._await_ready(ready_read, nodes + 1)
        finally:
            for fd in fds:
                os.close(fd)

    def check(self) -> None:
        """Raise ClusterError if Nimbus or a supervisor has died."""
        for name, process in self._processes.items():
            if (words := self._ending(name, process)) is not None:
                raise ClusterError(words)

    def ended(self) -> list[str]:
        """Forget those that have ended; how those ended that nobody told to."""
        words = []
        for name, process in list(self._processes.items()):
            ending = self._ending(name, process)
            if ending is not None:
                del self._processes[name]
                if process.returncode != 0:
                    words.append(ending)
        return words

    @property
    def count(self) -> int:
        """Those that have not been seen to end."""
        return len(self._processes)

    def disown(self) -> None:
        """They go on when this process ends."""
        for process in self._processes.values():
            # Its destructor would complain of a child that still runs.
            process.returncode = 0
        self._processes.clear()

    def terminate(self) -> None:
        """Ask all to stop."""
        for process in self._processes.values():
            process.terminate()

    def release(self) -> None:
        """Cut the lifeline: the daemons stop by themselves. May be called again."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def reap(self, deadline: float) -> None:
        """Wait until all have ended, by force after `deadline`; what a killed one left running is killed as well."""
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
        if strays:
            for stray in processes_of(self._run_dir):
                with contextlib.suppress(psutil.Error):
                    stray.kill()

    def _ending(self, name: str, process: subprocess.Popen[bytes]) -> str | None:
        code = process.poll()
        if code is None:
            return None
        words = _last_line(self._run_dir.logs / f"{name}.log")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return f"{name} {how}{': ' + words if words else ''}"

    def _spawn(self, name: str, module: str, passed: list[int], *arguments: str) -> None:
        try:
            with open(self._run_dir.logs / f"{name}.log", "ab") as log:
                self._processes[name] = subprocess.Popen(
                    daemon_command(module, self._run_dir, *arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    pass_fds=passed, start_new_session=True, env=daemon_environment(self._run_dir),
                )
        except OSError as error:
            raise ClusterError(f"cannot start {name}: {error.strerror}") from error

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


def processes_of(run_dir: RunDir) -> list[psutil.Process]:
    """Every process of a cluster that runs, but this one: daemons, forking parents, workers."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = process.environ().get(RUN_DIR_MARK) == str(run_dir.path)
            if marked and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return ""
    return lines[-1] if lines else ""
