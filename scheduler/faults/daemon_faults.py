"""Carries out the faults of one daemon: stops and throttles processes, takes their disk away, refuses forks.

Guarantees
    * A signal goes to the process that the fault names, by pid and start time, or to none.
    * When its fault ends, every victim is continued and has its disk back, even if the carrier has died: its successor
      finds the fault in the file, and looks at the process.
    * A file of the faults in force that cannot be read changes nothing: what was begun ends by the clock.

Relies on: Nimbus to say when the file has changed; `tick` being called at `next_deadline`. Thread: the daemon's loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
from collections.abc import Iterable

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.faults.in_force import FaultInForce, Victim, read_faults

_STOPS, _DISK_FULL, _FORK_REFUSED = ("stop", "throttle"), "disk-full", "fork-refused"

log = logging.getLogger(__name__)


class DaemonFaults:
    """The faults that one daemon carries out."""

    def __init__(self, run_dir: RunDir, carrier: str) -> None:
        self._run_dir = run_dir
        self._carrier = carrier
        self._mine: list[FaultInForce] = []
        self._held: dict[tuple[Victim, bool], bool] = {}
        """(victim, whether it is about its disk) -> whether it is held; missing if that is not known."""

    def look(self, now: float) -> None:
        """The file was written, or nobody has looked at it yet."""
        try:
            self.take(read_faults(self._run_dir), now)
        except ClusterError as error:
            log.error("%s", error)

    def take(self, faults: Iterable[FaultInForce], now: float) -> None:
        """Take over the faults that are in the file now."""
        self._mine = [fault for fault in faults if fault.carrier == self._carrier]
        self.tick(now)

    def tick(self, now: float) -> None:
        """Hold and let go the victims, as is due."""
        wanted = dict.fromkeys((key for key, held in self._held.items() if held), False)
        for fault in self._mine:
            if fault.kind in _STOPS or fault.kind == _DISK_FULL:
                for victim in fault.victims:
                    key = victim, fault.kind == _DISK_FULL
                    wanted[key] = fault.holds(now) or wanted.get(key, False)
        for (victim, disk), hold in wanted.items():
            # A carrier that is new here does not know what the one before has done, so it does all of it again.
            if hold != self._held.get((victim, disk)):
                self._held[victim, disk] = hold
                _hold(victim, disk, hold)

    def next_deadline(self, now: float) -> float | None:
        """When `tick` is due next."""
        changes = (fault.changes_at(now) for fault in self._mine)
        return min((at for at in changes if at is not None), default=None)

    def fork_refusal(self, now: float) -> str:
        """Why no worker may be forked now; "" if one may."""
        # A death may be seen before the notice of a fault that began before it: then the worker would come back.
        self.look(now)
        refusing = (fault for fault in self._mine if fault.kind == _FORK_REFUSED and fault.is_in_force(now))
        return next((f"fault {fault.id} refuses forks" for fault in refusing), "")

    def end(self, now: float) -> None:
        """Let all victims go: the daemon is about to end."""
        self.take((), now)


def _hold(victim: Victim, disk: bool, hold: bool) -> None:
    if disk:
        with contextlib.suppress(ClusterError, ProcessLookupError, PermissionError):  # it has ended: nothing to do
            _limit_files(victim, hold)
        return
    signum = signal.SIGSTOP if hold else signal.SIGCONT
    if not process.send_signal_proven(victim.pid, victim.started_ticks, signum):
        log.info("%s (pid %d) has ended: it gets no %s", victim.name, victim.pid, process.signal_name(signum))


def _limit_files(victim: Victim, hold: bool) -> None:
    pidfd = process.open_proven(victim.pid, victim.started_ticks)
    try:
        _, hard = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (0 if hold else hard, hard))
    finally:
        os.close(pidfd)
