"""Starting a cluster with a keeper (`scheduler.cluster.keeper_main`), a process of its own that keeps its daemons.

Guarantees
    * Both ways of starting return when the cluster answers; otherwise they raise what the keeper says, and nothing is
      left.
    * The cluster of a BoundKeeper stops when this process ends, however it ends; the other one stays.

The command's main thread. What else this process has, threads or a ZeroMQ context, does not matter: it is the keeper
that forks.
"""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path

import msgspec

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.private import opener
from squall.ipc.rundir import RunDir
from squall.scheduler.client.why_away import room_error
from squall.scheduler.cluster.daemons import (
    SUPERVISOR,
    daemon_command,
    daemon_environment,
    last_line,
    supervisor_arguments,
    take_directory,
)
from squall.scheduler.cluster.size import check_cluster, this_machine
from squall.scheduler.cluster.standing import KEEPER
from squall.scheduler.cluster.starting import Starting
from squall.scheduler.forking.process_title import size_bytes

END_PATIENCE_SECS = 10.0
"""What a keeper gets to end when its cluster is told to: twice the workers' grace."""
_DESCRIPTORS = ("--ready-fd", "1000000", "--lifeline", "1000000")
"""The longest that a daemon may be passed."""


class Began(msgspec.Struct):
    """What a keeper says of the start: "" or an error, and whose fault it was."""

    error: str = ""
    wrong_use: bool = False


def start_kept(path: str | Path, nodes: int, slots: int) -> RunDir:
    """Start a cluster that stays, with its keeper, which writes to `keeper.log`."""
    run_dir = _make(path, nodes, slots)
    with open(run_dir.daemon_log("keeper"), "ab", opener=opener) as log:
        keeper = _start(run_dir, nodes, slots, log.fileno(), lifeline=-1)
    # It stays: its destructor would complain of a child that still runs.
    keeper.returncode = 0
    return run_dir


class BoundKeeper:
    """A cluster that lives as long as this process, and its keeper, which writes to this process's stderr."""

    def __init__(self, path: str | Path, nodes: int, slots: int) -> None:
        self.run_dir = _make(path, nodes, slots)
        lifeline_read, self._lifeline = os.pipe2(os.O_CLOEXEC)
        try:
            self._popen = _start(self.run_dir, nodes, slots, None, lifeline_read)
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline_read)

    def await_end(self, timeout_secs: float) -> int | None:
        """Its exit code, 0 if no daemon was left; None if it still runs after `timeout_secs`."""
        if self._popen.poll() is None:
            pidfd = os.pidfd_open(self._popen.pid)
            try:
                select.select([pidfd], [], [], timeout_secs)
            finally:
                os.close(pidfd)
        return self._popen.poll()

    def close(self) -> None:
        """Have stop what has not stopped yet, and see the keeper end."""
        os.close(self._lifeline)
        try:
            self._popen.wait(END_PATIENCE_SECS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


def _make(path: str | Path, nodes: int, slots: int) -> RunDir:
    check_cluster(nodes, slots, this_machine())
    return take_directory(path)


def _start(run_dir: RunDir, nodes: int, slots: int, stderr: int | None, lifeline: int) -> subprocess.Popen[bytes]:
    """A keeper whose cluster answers."""
    # Before there is a keeper: another command would take it for a cluster's, and be taken for one by it.
    starting = Starting.take(run_dir, adopts=True)
    try:
        return _start_keeper(run_dir, nodes, slots, starting.fd, stderr, lifeline)
    finally:
        starting.release()


def _start_keeper(
    run_dir: RunDir, nodes: int, slots: int, starting: int, stderr: int | None, lifeline: int
) -> subprocess.Popen[bytes]:
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    keep = [fd for fd in (write_end, starting, lifeline) if fd >= 0]
    try:
        popen = subprocess.Popen(
            _command(run_dir, nodes, slots, write_end, starting, lifeline), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=stderr, pass_fds=keep, start_new_session=True,
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
    run_dir: RunDir, nodes: int, slots: int, report_fd: int, starting_fd: int, lifeline: int
) -> list[str]:
    arguments = ["--nodes", str(nodes), "--slots", str(slots), "--report-fd", str(report_fd)]
    arguments += ["--starting-fd", str(starting_fd)]
    if lifeline >= 0:
        arguments += ["--lifeline", str(lifeline)]
    command = daemon_command(KEEPER, run_dir, *arguments)
    daemon = daemon_command(SUPERVISOR, run_dir, *supervisor_arguments(f"node-{nodes}", slots), *_DESCRIPTORS)
    room = size_bytes(daemon) - size_bytes(command)
    return [*command, "--room", " " * max(1, room)]
