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
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType

from engine.config import Config
from engine.errors import ClusterError, SquallError, UsageError
from engine.report import RunReport
from engine.topology import Topology
from ipc.rundir import RunDir, default_parent, sweep_stale
from scheduler.client import NimbusClient
from scheduler.cluster_size import check_cluster, this_machine
from scheduler.daemons import Daemons
from scheduler.job import Job
from scheduler.kept_state import keep_dead_letters
from scheduler.log_tail import LogTail
from scheduler.topology_code import pack, submit

_STOP_GRACE_SECS = 5.0
"""How long workers may take for `close` and `cleanup` before they are killed."""


class LocalCluster:
    """Nimbus and `nodes` supervisors with `slots_per_node` worker slots each. A context manager."""

    def __init__(
        self, nodes: int = 1, slots_per_node: int = 2, run_dir: str | Path | None = None, logs: bool = True
    ) -> None:
        check_cluster(nodes, slots_per_node, this_machine())
        self._anonymous = run_dir is None
        if run_dir is None:
            sweep_stale(default_parent())
        self.run_dir = RunDir.create(run_dir)
        self._daemons = Daemons(self.run_dir)
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
        # Executed, not forked: a program may have threads, or a ZeroMQ context.
        self._daemons.bind()
        self._daemons.start(nodes, slots_per_node, remove_dir=self._anonymous)
        self._client = NimbusClient(self.run_dir)

    def check_daemons(self) -> None:
        """Raise ClusterError if Nimbus or a supervisor has died."""
        self._daemons.check()

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
        # End of file on their lifeline tells them too, where the request above did not arrive.
        self._daemons.reap(time.monotonic() + grace_secs + 3.0)
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
        code = pack(topology, config, by_value)
        record = submit(self.client, self.run_dir, name, config, code, active)
        job = Job(self.client, record, self.run_dir)
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
            view = job.view()
            if view is None:
                continue
            for index, slot in enumerate(view.assignment.workers):
                known.append(str(slot))
                if str(slot) == target:
                    return view.board.slot(index).pid
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
    slots = -(-config.workers // max(1, nodes))
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
