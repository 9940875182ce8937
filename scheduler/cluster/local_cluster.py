"""LocalCluster, a cluster of real processes for the life of one program, and `run`, which runs one topology on one.

Guarantees
    * When `close` returns, or when the program dies in any way (also by SIGKILL), every process of the cluster ends and
      its run directory is removed: the daemons hold a pipe to this process and stop at its end of file. With a keeper,
      the directory of a program that was killed is removed by the next program.
    * A daemon that cannot start is reported with its own last words. So is one that dies, unless there is a keeper: it
      starts the daemon again.

Thread: any one of the program's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType

from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError, SquallError, UsageError
from squall.engine.foreign.plain_text import plain, plain_lines
from squall.engine.plural import plural
from squall.engine.report.run_report import RunReport
from squall.engine.report.strict_json import strict_json
from squall.ipc.private import naming
from squall.ipc.rundir import RunDir, default_parent, sweep_stale
from squall.scheduler.client.cluster_use import ClusterUse, configured
from squall.scheduler.client.healing import heal
from squall.scheduler.client.job import Job
from squall.scheduler.client.log_tail import LogTail, log_line
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, NimbusClient
from squall.scheduler.cluster.daemons import Daemons, take_directory
from squall.scheduler.cluster.keeper_process import BoundKeeper
from squall.scheduler.cluster.size import check_cluster, this_machine
from squall.scheduler.cluster.starter import Starter
from squall.scheduler.cluster.starting import InUse, Starting
from squall.scheduler.records.dead_letters import DeadLetters
from squall.scheduler.records.kept_state import keep_dead_letters

_STOP_GRACE_SECS = 5.0
"""Longest time for workers' `close` and `cleanup` before they are killed."""


class LocalCluster(ClusterUse):
    """Nimbus and `nodes` supervisors with `slots_per_node` worker slots each. A context manager."""

    def __init__(
        self, nodes: int = 1, slots_per_node: int = 2, run_dir: str | Path | None = None, logs: bool = True,
        keeper: bool = False, starter: Starter | None = None,
    ) -> None:
        """With a `keeper`, a process of its own, daemons that die are started again. A `starter` starts them
        sooner; its run directory is used."""
        check_cluster(nodes, slots_per_node, this_machine())
        self._maker = os.getpid()
        self._anonymous = run_dir is None
        self._keeper: BoundKeeper | None = None
        if keeper:
            self._start_kept(nodes, slots_per_node, run_dir, logs)
            return
        self.run_dir = _directory(run_dir) if starter is None else starter.run_dir
        self._daemons = Daemons(self.run_dir, prepared=starter)
        self._client = None
        self._jobs = []
        self._tail = LogTail(self.run_dir.logs) if logs else None
        # No other program starts a cluster in an anonymous directory.
        starting = None if self._anonymous else self._take_start()
        try:
            with naming(self.run_dir.path):
                self._start(nodes, slots_per_node)
        except BaseException:
            self.close(grace_secs=0.0)
            raise
        finally:
            if starting is not None:
                starting.release()

    # ---- start and stop ----

    def _start_kept(self, nodes: int, slots_per_node: int, run_dir: str | Path | None, logs: bool) -> None:
        try:
            self._keeper = keeper = BoundKeeper(run_dir, nodes, slots_per_node)
        except InUse as error:
            raise UsageError(f"run directory {run_dir} is in use by pid {error.pid}") from None
        self.run_dir = keeper.run_dir
        # The keeper starts them: here are none.
        self._daemons = Daemons(self.run_dir)
        self._jobs = []
        self._tail = LogTail(self.run_dir.logs) if logs else None
        try:
            self._client = NimbusClient(self.run_dir, patience_secs=AWAY_PATIENCE_SECS, is_own=True)
        except BaseException:
            keeper.close()
            raise

    def _take_start(self) -> Starting:
        try:
            return Starting.take(self.run_dir)
        except InUse as error:
            raise UsageError(f"run directory {self.run_dir.path} is in use by pid {error.pid}") from None

    def _start(self, nodes: int, slots_per_node: int) -> None:
        # Execute, do not fork: the program may have threads or a ZeroMQ context.
        self._daemons.bind()
        self._daemons.start(nodes, slots_per_node, remove_dir=self._anonymous)
        self._client = NimbusClient(self.run_dir, is_own=True)

    def check_daemons(self) -> None:
        """Raise ClusterError if Nimbus or a supervisor has died, or the keeper that would start it again."""
        self._daemons.check()
        keeper = self._keeper
        if keeper is not None and keeper.await_end(0.0) is not None and not keeper.find_successor():
            raise ClusterError("the cluster's keeper has ended, and no other has come")

    def close(self, grace_secs: float = _STOP_GRACE_SECS) -> None:
        """Stop every worker (by force after `grace_secs`) and every daemon, and remove their files. In a process that
        was forked meanwhile, and leaves the `with` block by `sys.exit`, nothing."""
        if os.getpid() != self._maker:
            return
        if self._client is not None and self.run_dir.faults_in_force.exists():
            # Otherwise a worker that a fault has stopped would be waited for.
            with contextlib.suppress(ClusterError):
                heal(self._client)
        for job in self._jobs:
            if self._client is not None and grace_secs > 0:
                # Before the shutdown, so that the output of closing tasks can be read before the logs go.
                with contextlib.suppress(ClusterError):
                    job.remove(grace_secs)
            job.close()
        self._keep_dead_letters()
        self._jobs.clear()
        echo(self.new_log_lines())
        if self._client is not None and self._keeper is not None:
            if why := self._keeper.stop(self._client, grace_secs):
                sys.stderr.write(f"the cluster was ended by force: {plain(why)}\n")
            self._client = self._keeper = None
        elif self._client is not None:
            with contextlib.suppress(ClusterError):
                self._client.shutdown(grace_secs)
            self._client.close()
            self._client = None
        # If the request above did not arrive, end of file on their lifeline tells them.
        self._daemons.reap(time.monotonic() + grace_secs + 3.0)
        if self._anonymous:
            self.run_dir.remove()
        else:
            self.run_dir.close()

    def _keep_dead_letters(self) -> None:
        """Copy dead letters out of an anonymous run directory, which is removed, and say where they are."""
        for job in self._jobs:
            try:
                kept = keep_dead_letters(self.run_dir, job.name, copy=self._anonymous)
            except (OSError, SquallError) as error:
                text = f"the dead letters of {job.name} could not be kept, here they are: {error}"
                sys.stderr.write(plain(text) + "\n")
                for letter in DeadLetters(self.run_dir.topology_state(job.name)).look().letters:
                    sys.stderr.write(plain_lines(strict_json(letter.public())) + "\n")
                continue
            if kept is not None:
                path, count = kept
                of = f"of {job.name}"
                letters = plural(count, f"dead letter {of} is", f"dead letters {of} are")
                text = f"{letters} kept; to list what is there: squall dead-letters {job.name} --dir {path}"
                sys.stderr.write(plain(text) + "\n")

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _directory(path: str | Path | None) -> RunDir:
    if path is not None:
        return take_directory(path)
    sweep_stale(default_parent())
    return RunDir.create()


def run(
    topology: Topology,
    config: Config | None = None,
    name: str = "topology",
    nodes: int = 1,
    on_wait: Callable[[LocalCluster, Job], bool | None] | None = None,
    by_value: ModuleType | None = None,
) -> RunReport:
    """Run a topology on a cluster of its own until it is drained; returns the report.

    The components' output appears on stderr, marked with the worker. `on_wait` is called every few milliseconds; when
    it returns True the run ends early.
    """
    config = configured(topology, config)
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
    """Show workers' output on stderr."""
    for worker, line in lines:
        sys.stderr.write(log_line(worker, line) + "\n")
