"""The pidfds of a node's workers.

Guarantees: a worker's end is seen at once, by whichever process it was forked, and a signal goes to the worker or to
nobody: its start time is compared after the pidfd was opened.

Relies on: the caller to `forget` each worker whose end it has seen. Thread: the supervisor's loop.
"""

from __future__ import annotations

import os
import signal

import zmq

from squall.scheduler.common import process


class WorkerWatch:
    """The pidfd of every worker whose end was not seen yet."""

    def __init__(self, poller: zmq.Poller) -> None:
        self._poller = poller
        self._pidfds: dict[int, int] = {}
        self._started_ticks: dict[int, int] = {}

    def add(self, pid: int, started_ticks: int) -> None:
        """Watch the worker of this pid and start time. ClusterError if it has ended, or cannot be watched."""
        pidfd = process.open_proven(pid, started_ticks)
        self._started_ticks[pid] = started_ticks
        self._pidfds[pid] = pidfd
        self._poller.register(pidfd, zmq.POLLIN)

    def pid_of(self, fd: object) -> int | None:
        """The worker that a polled descriptor stands for."""
        return next((pid for pid, pidfd in self._pidfds.items() if pidfd == fd), None)

    def holds(self, pid: int) -> bool:
        return pid in self._pidfds

    def started_ticks(self, pid: int) -> int:
        """Start time of a worker, as from `process.start_time_ticks`; 0 if unknown."""
        return self._started_ticks.get(pid, 0)

    def reap(self, pid: int) -> int | None:
        """The exit status, if the worker is a dead child of this process, or its forking parent has not reaped it yet;
        else None: its forking parent will tell."""
        pidfd = self._pidfds.get(pid)
        if pidfd is None:
            return None
        try:
            return process.reap(pidfd)
        except ChildProcessError:
            return process.status_of_zombie(pid)

    def send_signal(self, pid: int, signum: int) -> None:
        """Signal a worker; SIGKILL goes to its whole process group."""
        pidfd = self._pidfds.get(pid)
        if pidfd is None:
            return
        if signum == signal.SIGKILL:
            process.send_signal_to_group(pid, signum)
            # A child that was just forked leads no group yet.
        process.send_signal(pidfd, signum)

    def forget(self, pid: int) -> None:
        """Forget a worker that has ended."""
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is not None:
            del self._started_ticks[pid]
            self._poller.unregister(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        for pid in list(self._pidfds):
            self.forget(pid)
