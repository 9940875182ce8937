"""Starts a cluster with a keeper (`scheduler.cluster.keeper_main`), a process of its own that keeps its daemons.

Guarantees
    * Both ways of starting return when the cluster answers; otherwise they raise the keeper's error, and leave no
      process behind.
    * The cluster of a BoundKeeper stops when this process ends, in whatever way; that of `start_with_keeper` stays.

Thread: the command's main one. Other threads or a ZeroMQ context of this process do no harm: the keeper forks, not it.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import msgspec

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.private import opener
from squall.ipc.rundir import RunDir, default_parent, sweep_stale
from squall.scheduler.client.healing import heal
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.why_away import room_error
from squall.scheduler.cluster.adopted_process import AdoptedProcess
from squall.scheduler.cluster.daemon_environment import daemon_environment
from squall.scheduler.cluster.daemons import daemon_command, last_line, take_directory
from squall.scheduler.cluster.size import check_cluster, this_machine
from squall.scheduler.cluster.standing import end_lost, stop_cluster
from squall.scheduler.cluster.starting import Starting
from squall.scheduler.common.mark import processes_of
from squall.scheduler.common.orphans import FIRST_PID, reap_orphans
from squall.scheduler.common.process_record import present_record
from squall.scheduler.common.process_title import Kind
from squall.scheduler.forking.module import ChildProcess

END_PATIENCE_SECS = 10.0
"""Longest wait for a keeper to end when its cluster was told to: twice the workers' grace."""
SUCCESSOR_PATIENCE_SECS = 30.0
"""Longest wait for the next keeper's record: a busy machine may take seconds to start an interpreter."""
_END_MARGIN_SECS = 5.0
"""On top of the workers' grace, the longest wait for daemons to end: they take milliseconds on an idle machine."""
_POLL_SECS = 0.05


class Began(msgspec.Struct):
    """A keeper's report of the start: "" or an error, and whether the command was wrong."""

    error: str = ""
    wrong_use: bool = False


def start_with_keeper(path: str | Path, nodes: int, slots: int, *, faults: bool = True) -> RunDir:
    """Start a cluster that outlives this process, with a keeper, which writes to `keeper.log`."""
    run_dir = _make(path, nodes, slots)
    with open(run_dir.daemon_log("keeper"), "ab", opener=opener) as log:
        keeper = _start(run_dir, nodes, slots, log.fileno(), -1, faults)
    # Mark it as ended: Popen's destructor would warn of a child that still runs.
    keeper.returncode = 0
    return run_dir


class BoundKeeper:
    """A cluster bound to the life of this process, and its keeper, which writes to this process's stderr.

    Without a path the directory is anonymous, and the keeper writes to `keeper.log` in it; the caller removes it.
    """

    def __init__(self, path: str | Path | None, nodes: int, slots: int, *, faults: bool = True) -> None:
        self.run_dir = _make(path, nodes, slots)
        lifeline_read, self._lifeline = os.pipe2(os.O_CLOEXEC)
        try:
            self._keeper = self._started(nodes, slots, lifeline_read, faults, to_log=path is None)
        except BaseException:
            os.close(self._lifeline)
            if path is None:
                self.run_dir.remove()
            raise
        finally:
            os.close(lifeline_read)

    def _started(self, nodes: int, slots: int, lifeline: int, faults: bool, *, to_log: bool) -> ChildProcess:
        if not to_log:
            return _start(self.run_dir, nodes, slots, None, lifeline, faults)
        with open(self.run_dir.daemon_log("keeper"), "ab", opener=opener) as log:
            return _start(self.run_dir, nodes, slots, log.fileno(), lifeline, faults)

    def await_end(self, timeout_secs: float) -> int | None:
        """The exit code of the present keeper, 0 if no daemon was left; None if it still runs after `timeout_secs`."""
        if os.getpid() == FIRST_PID:
            reap_orphans(self._keeper.pid)
        try:
            return self._keeper.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            return None

    def find_successor(self) -> bool:
        """After the keeper was killed, wait for its successor while a daemon is there to start it; whether it came."""
        deadline = time.monotonic() + SUCCESSOR_PATIENCE_SECS
        while time.monotonic() < deadline:
            record = present_record(self.run_dir.keeper_record)
            if record is None:
                return False
            if record.pid != self._keeper.pid and record.lives:
                self._keeper = AdoptedProcess(record.pid, self.run_dir.keeper_record)
                return True
            if not processes_of(self.run_dir):
                return False
            time.sleep(_POLL_SECS)
        return False

    def stop(self, client: NimbusClient, grace_secs: float) -> str:
        """Stop workers, by force after `grace_secs`, and daemons, and wait for the keeper's end. Closes the client.
        Returns the reason why that took force; "" if none."""
        try:
            if full := room_error(self.run_dir):
                # Nimbus cannot store the end of its topologies: it would be waited for again and again.
                end_lost(self.run_dir)
                return full
            # Otherwise a daemon that a fault has stopped would be waited for.
            heal(client)
            client.shutdown(grace_secs)
            client.await_end(grace_secs + _END_MARGIN_SECS)
        except ClusterError as error:
            stop_cluster(self.run_dir, 0.0)
            return str(error)
        finally:
            client.close()
            self.close()
        return ""

    def close(self) -> None:
        """Stop the cluster unless it has stopped, and wait for the keeper's end."""
        os.close(self._lifeline)
        try:
            self._keeper.wait(END_PATIENCE_SECS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()


def _make(path: str | Path | None, nodes: int, slots: int) -> RunDir:
    check_cluster(nodes, slots, this_machine())
    if path is not None:
        return take_directory(path)
    sweep_stale(default_parent())
    return RunDir.create()


def _start(
    run_dir: RunDir, nodes: int, slots: int, stderr: int | None, lifeline: int, faults: bool
) -> subprocess.Popen[bytes]:
    """Start a keeper; returns when its cluster answers."""
    # Take the right before starting the keeper: two commands would take each other's keepers for an older cluster's.
    starting = Starting.take(run_dir, adopts=True)
    try:
        return _start_keeper(run_dir, nodes, slots, starting.fd, stderr, lifeline, faults)
    finally:
        starting.release()


def _start_keeper(
    run_dir: RunDir, nodes: int, slots: int, starting: int, stderr: int | None, lifeline: int, faults: bool
) -> subprocess.Popen[bytes]:
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pass_fds = [fd for fd in (write_end, starting, lifeline) if fd >= 0]
    try:
        popen = subprocess.Popen(
            _command(run_dir, nodes, slots, write_end, starting, lifeline, faults), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=stderr, pass_fds=pass_fds, start_new_session=True,
            env=daemon_environment(run_dir),
        )
        os.close(write_end)
        write_end = -1
        with open(read_end, "rb", closefd=False) as pipe:
            said = pipe.read()
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
    if said:
        began = msgspec.json.decode(said, type=Began)
        if not began.error:
            return popen
        popen.wait()
        raise UsageError(began.error) if began.wrong_use else ClusterError(began.error)
    code = popen.wait()
    words = ("" if stderr is None else last_line(run_dir.daemon_log("keeper"))) or room_error(run_dir)
    raise ClusterError(f"the cluster's keeper exited with code {code}{': ' + words if words else ''}")


def _command(
    run_dir: RunDir, nodes: int, slots: int, report_fd: int, starting_fd: int, lifeline: int, faults: bool
) -> list[str]:
    command = kept_command(run_dir, nodes, slots, faults)
    command += ["--report-fd", str(report_fd), "--starting-fd", str(starting_fd)]
    return [*command, "--lifeline", str(lifeline)] if lifeline >= 0 else command


def kept_command(run_dir: RunDir, nodes: int, slots: int, faults: bool) -> list[str]:
    """The command line of a keeper, without its descriptors; the same for a successor."""
    command = daemon_command(Kind.KEEPER, run_dir, "--nodes", str(nodes), "--slots", str(slots))
    return command if faults else [*command, "--no-faults"]
