"""LocalCluster, a cluster of real processes for the life of one program, and `run`, which runs one topology on one.

Guarantees
    * When `close` returns, or when the program dies in any way (also by SIGKILL), every process of the cluster ends and
      its run directory, if it is anonymous, is removed: the daemons hold a pipe to this process and stop at its end of
      file.
    * A daemon that cannot start is reported with its own last words. One that dies later is started again by the
      cluster's keeper.

Thread: any one of the program's.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError, SquallError
from squall.engine.foreign.text import plain, plain_lines, plural
from squall.engine.report.document import strict_json, to_document
from squall.engine.report.run_report import RunReport
from squall.ipc.private import naming, room_error
from squall.scheduler.client.cluster import ClusterUse, configured
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, NimbusClient
from squall.scheduler.cluster.keeper_process import KeeperProcess
from squall.scheduler.cluster.starting import check_cluster, start_cluster
from squall.scheduler.cluster.stopping import stop_cluster
from squall.scheduler.common.logs import LogTail, log_line
from squall.scheduler.common.role import STOP_GRACE_SECS, STOP_MARGIN_SECS, end_lost
from squall.scheduler.records.dead_letters import DeadLetters
from squall.scheduler.records.topology_files import keep_dead_letters


class LocalCluster(ClusterUse):
    """A cluster of real processes for the life of this program: Nimbus, and `nodes` supervisors with `slots_per_node`
    worker slots each. A context manager; at its end all processes are gone."""

    def __init__(
        self, nodes: int = 1, slots_per_node: int = 2, run_dir: str | Path | None = None, logs: bool = True,
        keeper: KeeperProcess | None = None, ui: Sequence[str] | None = None,
    ) -> None:
        """Start it. `run_dir`: a directory that is kept; by default a temporary one. With `logs=False`, workers' output
        is not shown on stderr at the end. `keeper` and `ui` are for Squall's own commands."""
        check_cluster(nodes, slots_per_node)
        self._maker = os.getpid()
        self.forced = ""
        """Why it took force to end the cluster; "" if it did not."""
        self._jobs: list[Job] = []
        self._client = None
        if run_dir is None:
            self._keeper = keeper or KeeperProcess()
        else:
            with naming(run_dir):
                self._keeper = start_cluster(run_dir, nodes, slots_per_node, ui=ui)
        self.run_dir = self._keeper.run_dir
        self._tail = LogTail(self.run_dir.logs) if logs else None
        try:
            if run_dir is None:
                with naming(self.run_dir.path):
                    self._keeper.start(nodes, slots_per_node, ui=ui)
            self._client = NimbusClient(self.run_dir, patience_secs=AWAY_PATIENCE_SECS)
        except BaseException:
            self.close(grace_secs=0.0)
            raise

    def check_daemons(self) -> None:
        """Raise ClusterError if the keeper has died, which starts daemons again."""
        if self._keeper.await_end(0.0) is not None:
            raise ClusterError("the cluster's keeper has ended")

    def _made(self, job: Job) -> None:
        self._jobs.append(job)

    def close(self, grace_secs: float = STOP_GRACE_SECS) -> None:
        """Stop every worker (by force after `grace_secs`) and every daemon, and remove their files; dead letters are
        copied to a place that stderr names. Does nothing in a process that was forked meanwhile."""
        if os.getpid() != self._maker:
            return
        if self._client is not None and self.run_dir.faults_in_force.exists():
            # Otherwise a worker that a fault has stopped would be waited for.
            with contextlib.suppress(ClusterError):
                self._client.heal()
        for job in self._jobs:
            if self._client is not None and grace_secs > 0 and not job.removed:
                # Before the shutdown, so that the output of closing tasks can be read before the logs go.
                with contextlib.suppress(ClusterError):
                    job.kill(0.0)
            job.close()
        if not self._keeper.keeps_dir:
            self._keep_dead_letters()
        self._jobs.clear()
        echo(self.new_log_lines())
        if self._client is not None:
            self._stop(self._client, grace_secs)
            self._client = None
        self._keeper.close()
        if not self._keeper.is_anonymous:
            self.run_dir.close()
        elif not self._keeper.keeps_dir:
            self.run_dir.remove()

    def _stop(self, client: NimbusClient, grace_secs: float) -> None:
        """Stop workers, by force after `grace_secs`, and daemons."""
        try:
            self.forced = room_error(self.run_dir.durable)
            if self.forced:
                # Nimbus cannot store the end of its topologies: it would be waited for again and again.
                end_lost(self.run_dir)
            else:
                client.shutdown(grace_secs)
                client.await_end(grace_secs + STOP_MARGIN_SECS)
        except ClusterError as error:
            self.forced = str(error)
            stop_cluster(self.run_dir, 0.0)
        finally:
            client.close()
            self._keeper.close()
        if self.forced:
            sys.stderr.write(f"the cluster was ended by force: {plain(self.forced)}\n")

    def _keep_dead_letters(self) -> None:
        """Copy dead letters out of an anonymous run directory, which is removed, and say where they are."""
        for job in self._jobs:
            try:
                kept = keep_dead_letters(self.run_dir, job.name, copy=self._keeper.is_anonymous)
            except (OSError, SquallError) as error:
                text = f"the dead letters of {job.name} could not be kept, here they are: {error}"
                sys.stderr.write(plain(text) + "\n")
                for letter in DeadLetters(self.run_dir.topology_state(job.name)).look().letters:
                    sys.stderr.write(plain_lines(strict_json(to_document(letter))) + "\n")
                continue
            if kept is not None:
                path, count = kept
                of = f"of {job.name}"
                letters = plural(count, f"dead letter {of} is", f"dead letters {of} are")
                text = f"{letters} kept; to list what is there: squall dead-letters {job.name} --dir {path}"
                sys.stderr.write(plain(text) + "\n")

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    topology: Topology,
    config: Config | None = None,
    name: str = "topology",
    nodes: int = 1,
    on_wait: Callable[[LocalCluster, Job], bool | None] | None = None,
    by_value: ModuleType | None = None,
) -> RunReport:
    """Run a topology on a cluster of its own until it is drained, and return the report.

    `config` wins over the topology's own settings; `nodes` is the number of supervisors. The components' output appears
    on stderr, marked with the worker. `on_wait(cluster, job)` is called every few milliseconds; when it returns True
    the run ends early. Raises ClusterError if the topology keeps dying without progress.
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
