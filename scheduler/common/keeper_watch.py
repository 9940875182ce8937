"""Watches, in a daemon, the keeper that started it: when the keeper dies, one of the daemons starts the next.

Guarantees
    * A keeper that was killed has a successor as soon as an interpreter has started, as long as one daemon lives. It
      adopts the daemons.
    * There are never two: the daemon that starts a keeper holds the keeper's lock, and hands it on to it.
    * A keeper that was told to end has no successor, nor has one that had died before this daemon began.

Relies on: the keeper's record, which has its command line; flock, which ends with the last process that holds the
descriptor. Thread: the daemon's loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import subprocess

import zmq

from squall.engine.errors import ClusterError
from squall.ipc.private import opener
from squall.ipc.run_parent import try_flock
from squall.ipc.rundir import RunDir
from squall.scheduler.common.process import open_pidfd, open_proven
from squall.scheduler.common.process_record import ProcessRecord, present_record
from squall.scheduler.common.restart_policy import GiveUp, Restart, RestartPolicy, RestartPolicyOptions

LOOK_SECS = 0.2
"""Time between two looks for the next keeper's record, by daemons that do not start it: a keeper needs as long."""

log = logging.getLogger(__name__)


class KeeperWatch:
    """Watches the keeper through a pidfd in the daemon's poller."""

    def __init__(self, run_dir: RunDir, poller: zmq.Poller, lifeline: int | None, rng: random.Random) -> None:
        """`lifeline`: the descriptor that the next keeper gets, for the daemons that it starts."""
        self._run_dir = run_dir
        self._poller = poller
        self._lifeline = lifeline
        self._policy = RestartPolicy(RestartPolicyOptions(), rng)
        self._pidfd = -1
        self._child: subprocess.Popen[bytes] | None = None
        """The keeper that this daemon started last, and must reap."""
        self._watched_since = 0.0
        self.look_at: float | None = None
        """When to call `look` at the latest; None: when the poller wakes."""
        record = present_record(run_dir.keeper_record)
        if record is not None:
            self._watch(record, 0.0)

    def look(self, now: float) -> None:
        """Notice the keeper's end, and ensure that there is another one. Called in each pass of the loop; cheap."""
        if self._pidfd >= 0:
            if not select.select([self._pidfd], [], [], 0)[0]:
                return
            self._let_go()
            if present_record(self._run_dir.keeper_record) is None:
                return  # it was told to end
            log.warning("the keeper of the daemons has died: another one is started")
            self._died(now)
        elif self.look_at is not None and now >= self.look_at:
            self._find_or_start(now)

    def close(self) -> None:
        """Stop watching: this daemon leaves."""
        self._let_go()
        self.look_at = None

    # ---- inside ----

    def _watch(self, record: ProcessRecord, now: float) -> bool:
        """Watch the keeper of this record; whether it lives."""
        try:
            self._take(open_proven(record.pid, record.started_ticks), now)
        except ClusterError:
            return False
        return True

    def _take(self, pidfd: int, now: float) -> None:
        self._pidfd = pidfd
        self._poller.register(pidfd, zmq.POLLIN)
        self._watched_since = now
        self.look_at = None

    def _let_go(self) -> None:
        if self._pidfd >= 0:
            self._poller.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._child is not None and self._child.poll() is not None:
            self._child = None

    def _died(self, now: float) -> None:
        verdict = self._policy.died(now, lived_secs=now - self._watched_since)
        if isinstance(verdict, GiveUp):
            log.error("there is no keeper any more after %s: daemons that die stay dead", verdict)
            self.look_at = None
            return
        assert isinstance(verdict, Restart)
        self.look_at = now + verdict.delay_secs
        self.look(now)

    def _find_or_start(self, now: float) -> None:
        """Watch the keeper that another daemon has started, or start it."""
        record = present_record(self._run_dir.keeper_record)
        if record is None:
            self.look_at = None
            return
        if self._watch(record, now):
            return
        self.look_at = now + LOOK_SECS
        # Its holder starts a keeper, or is one that has not written its record yet.
        lock = try_flock(self._run_dir.keeper_lock)
        if lock is None:
            return
        try:
            self._start(record, lock, now)
        except OSError as error:
            log.warning("cannot start a keeper: %s", error)
            self._died(now)
        finally:
            os.close(lock)

    def _start(self, record: ProcessRecord, lock: int, now: float) -> None:
        command = [*record.command, "--lock-fd", str(lock)]
        keep = [lock]
        if self._lifeline is not None:
            command += ["--lifeline", str(self._lifeline)]
            keep.append(self._lifeline)
        with contextlib.ExitStack() as opened:
            try:
                output = opened.enter_context(open(self._run_dir.daemon_log("keeper"), "ab", opener=opener)).fileno()
            except OSError:
                # On a full disk it writes no log, as the one before.
                output = subprocess.DEVNULL
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, pass_fds=keep,
                start_new_session=True,
            )
        self._take(open_pidfd(self._child.pid), now)
