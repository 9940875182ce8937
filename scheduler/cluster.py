"""LocalCluster: a cluster of real processes for the life of one program, and `run`, which runs one topology on one.

Guarantees
    * When `close` returns, or when the program dies in any way (also by SIGKILL), every process of the cluster ends and
      its run directory is removed: the daemons hold a pipe to this process and stop at its end of file.
    * A daemon that cannot start or dies is reported with its own last words.

The program's main thread, or any one thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType

import psutil

from engine.config import Config
from engine.errors import ClusterError, SquallError, UsageError
from engine.report import RunReport
from engine.topology import Topology
from ipc.rundir import RunDir, default_parent, sweep_stale
from scheduler import blob
from scheduler.client import NimbusClient
from scheduler.code_store import CodeStore
from scheduler.job import Job
from scheduler.kept_state import keep_dead_letters
from scheduler.log_tail import LogTail
from scheduler.messages import ComponentSummary

FIRST_PORT = 6700
_RUN_DIR_MARK = "SQUALL_RUN_DIR"
"""Environment variable that every process of a cluster carries, so that strays can be told from others'."""
_START_TIMEOUT_SECS = 20.0
_STOP_GRACE_SECS = 5.0
"""How long workers may take for `close` and `cleanup` before they are killed."""


class LocalCluster:
    """Nimbus and `nodes` supervisors with `slots_per_node` worker slots each. A context manager."""

    def __init__(
        self, nodes: int = 1, slots_per_node: int = 2, run_dir: str | Path | None = None, logs: bool = True
    ) -> None:
        if nodes < 1 or slots_per_node < 1:
            raise UsageError(f"a cluster needs nodes and slots from 1 up, not {nodes} and {slots_per_node}")
        self._anonymous = run_dir is None
        if run_dir is None:
            sweep_stale(default_parent())
        self.run_dir = RunDir.create(run_dir)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._lifeline = -1
        self._client: NimbusClient | None = None
        self._jobs: list[Job] = []
        self._tail = LogTail(self.run_dir.logs) if logs else None
        try:
            self._start(nodes, slots_per_node)
        except BaseException:
            self.close(grace_secs=0.0)
            raise

    # ---- start and stop ----

    def _start(self, nodes: int, slots_per_node: int) -> None:
        holder = self.run_dir.lock_holder()
        if holder is not None:
            self._anonymous = False
            raise UsageError(f"run directory {self.run_dir.path} is in use by pid {holder}")
        read_end, self._lifeline = os.pipe2(os.O_CLOEXEC)
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        try:
            remove = ["--remove-dir"] if self._anonymous else []
            self._spawn("nimbus", "scheduler.nimbus_main", read_end, ready_write, *remove)
            for number in range(1, nodes + 1):
                node = f"node-{number}"
                ports = ",".join(str(FIRST_PORT + slot) for slot in range(slots_per_node))
                self._spawn(
                    f"supervisor-{node}", "scheduler.supervisor_main", read_end, ready_write, "--node", node,
                    "--ports", ports,
                )
            os.close(ready_write)
            ready_write = -1
            self._await_ready(ready_read, nodes + 1)
        finally:
            for fd in (read_end, ready_read, ready_write):
                if fd >= 0:
                    os.close(fd)
        self._client = NimbusClient(self.run_dir)

    def _spawn(self, name: str, module: str, lifeline: int, ready: int, *arguments: str) -> None:
        command = [
            sys.executable, "-m", module, "--dir", str(self.run_dir.path), "--lifeline", str(lifeline), "--ready-fd",
            str(ready), *arguments,
        ]
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        with open(self.run_dir.logs / f"{name}.log", "ab") as log:
            self._daemons[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lifeline, ready),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, _RUN_DIR_MARK: str(self.run_dir.path)},
            )

    def _await_ready(self, fd: int, count: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_SECS
        os.set_blocking(fd, False)
        came = 0
        while came < count:
            with contextlib.suppress(BlockingIOError):
                came += len(os.read(fd, 64))
            self.check_daemons()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster did not start within {_START_TIMEOUT_SECS:g} s; see {self.run_dir.logs}"
                )
            time.sleep(0.001)

    def check_daemons(self) -> None:
        """Raise ClusterError if Nimbus or a supervisor has died."""
        for name, process in self._daemons.items():
            code = process.poll()
            if code is not None:
                words = _last_line(self.run_dir.logs / f"{name}.log")
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
                raise ClusterError(f"{name} {how}{': ' + words if words else ''}")

    def close(self, grace_secs: float = _STOP_GRACE_SECS) -> None:
        """Stop every worker (politely, then by force after `grace_secs`), every daemon, and remove what they made."""
        for job in self._jobs:
            if self._client is not None and grace_secs > 0:
                # Apart from the shutdown, so that what tasks print when they close can be read before the logs go.
                with contextlib.suppress(ClusterError):
                    job.remove(grace_secs)
            job.close()
        self._keep_dead_letters()
        self._jobs.clear()
        echo(self.new_log_lines())
        if self._client is not None:
            with contextlib.suppress(ClusterError):
                self._client.shutdown(grace_secs)
            self._client.close()
            self._client = None
        if self._lifeline >= 0:
            # End of file tells the daemons that nobody needs them, also where the request above did not arrive.
            os.close(self._lifeline)
            self._lifeline = -1
        self._reap(time.monotonic() + grace_secs + 3.0)
        if self._anonymous:
            self.run_dir.remove()
        else:
            self.run_dir.close()

    def _keep_dead_letters(self) -> None:
        """An anonymous run directory goes with the run; what it answers for must not. Says where it is."""
        for job in self._jobs:
            try:
                kept = keep_dead_letters(self.run_dir, job.name, copy=self._anonymous)
            except (OSError, SquallError) as error:
                sys.stderr.write(f"the dead letters of {job.name} could not be kept: {error}\n")
                continue
            if kept is not None:
                path, count = kept
                sys.stderr.write(
                    f"{count} dead letters of {job.name} are kept; to list them: squall dead-letters {job.name} "
                    f"--dir {path}\n"
                )

    def _reap(self, deadline: float) -> None:
        strays = False
        for process in self._daemons.values():
            try:
                strays |= process.wait(max(0.0, deadline - time.monotonic())) != 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                strays = True
        self._daemons.clear()
        if strays:
            self._kill_strays()

    def _kill_strays(self) -> None:
        """Workers whose supervisor was killed live on; nobody needs them any more."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(_RUN_DIR_MARK) == str(self.run_dir.path) and process.pid != os.getpid():
                    process.kill()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- use ----

    @property
    def client(self) -> NimbusClient:
        """Nimbus, for what this class has no method for."""
        if self._client is None:
            raise ClusterError("this cluster is closed")
        return self._client

    def submit(
        self, name: str, topology: Topology, config: Config | None = None, by_value: ModuleType | None = None,
        active: bool = True,
    ) -> Job:
        """Start a topology; with `active=False` its spouts wait for `Job.activate`.

        `by_value` is a module that workers cannot import (see `scheduler.blob`).
        """
        if not isinstance(topology, Topology):
            raise UsageError(f"submit needs the Topology that TopologyBuilder.build() returns, not {topology!r:.80}")
        config = config or Config()
        digest = CodeStore(self.run_dir.code).put(blob.dump(topology, by_value))
        components = [ComponentSummary(*row) for row in topology.layout(config.acker_count)]
        record = self.client.submit_topology(
            name, config.to_dict(), components, digest, [entry or os.getcwd() for entry in sys.path],
            "ACTIVE" if active else "INACTIVE",
        )
        job = Job(self.client, record, str(self.run_dir.board(record.id)))
        self._jobs.append(job)
        return job

    def inject(self, fault: str, target: str) -> None:
        """Break something on purpose: `kill`, `stop` or `continue` the worker `node:port`."""
        signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}
        if fault not in signals:
            raise UsageError(f"fault {fault!r} is unknown; allowed: {', '.join(signals)}")
        os.kill(self._pid_of(target), signals[fault])

    def _pid_of(self, target: str) -> int:
        known = []
        for job in self._jobs:
            view = job._view()
            if view is None:
                continue
            board, assignment = view
            for index, slot in enumerate(assignment.workers):
                known.append(str(slot))
                if str(slot) == target:
                    return board.slot(index).pid
        raise UsageError(f"there is no worker {target!r}; workers are {', '.join(known) or 'none'}")

    def new_log_lines(self) -> list[tuple[str, str]]:
        """(worker, line) of what workers printed since the last call."""
        return [] if self._tail is None else self._tail.poll()


def run(
    topology: Topology,
    config: Config | None = None,
    name: str = "topology",
    nodes: int = 1,
    on_wait: Callable[[LocalCluster, Job], bool | None] | None = None,
    by_value: ModuleType | None = None,
) -> RunReport:
    """Run a topology on a cluster of its own until it is drained; the report.

    What its components print appears on stderr, marked with the worker. `on_wait` is called every few milliseconds;
    when it returns True the run ends early.
    """
    config = config or Config()
    slots = -(-config.workers // nodes)
    with LocalCluster(nodes, slots) as cluster:
        job = cluster.submit(name, topology, config, by_value)

        def turn() -> bool | None:
            cluster.check_daemons()
            echo(cluster.new_log_lines())
            return on_wait(cluster, job) if on_wait is not None else None

        try:
            report = job.wait_until_drained(on_wait=turn)
            job.kill(0.0)
        finally:
            echo(cluster.new_log_lines())
    return report


def echo(lines: list[tuple[str, str]]) -> None:
    """Show what workers printed."""
    for worker, line in lines:
        sys.stderr.write(f"[{worker}] {line}\n")


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return ""
    return lines[-1] if lines else ""
