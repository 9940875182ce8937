"""Stops processes for a while, throttles them to a share of the time, and lowers their limits.

Guarantees
    * A signal goes to the process that the fault names, by pid and start time, or to none.
    * When its fault ends, every victim is continued and gets its limits back, even if the carrier has died: its
      successor finds the fault in the file, and looks at the process.

Relies on: `tick` being called at `next_deadline`. Thread: the loop of the daemon that carries the fault out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
from collections.abc import Callable, Iterable

from squall.engine.errors import ClusterError
from squall.scheduler.common import process
from squall.scheduler.faults.in_force import FaultInForce, Victim

_STOPPING = frozenset({"stop", "throttle"})
_STATM_SIZE = 0
"""Position of the size, in pages, in /proc/PID/statm."""

log = logging.getLogger(__name__)


class _Limit:
    """A limit of the system, and the way that a fault lowers it."""

    def __init__(self, number: int, parameter: str, used: Callable[[int], int], unit: int) -> None:
        self.number = number
        self.parameter = parameter
        self.used = used
        self.unit = unit

    def lowered(self, fault: FaultInForce, victim: Victim) -> int:
        """The lowered limit: somewhat more than the victim uses now."""
        more = int(fault.params[self.parameter]) if self.parameter else 0
        return self.used(victim.pid) + more * self.unit


def _address_space_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[_STATM_SIZE]) * os.sysconf("SC_PAGE_SIZE")


def _descriptors(pid: int) -> int:
    """The lowest limit under which the process keeps its open descriptors."""
    return 1 + max((int(name) for name in os.listdir(f"/proc/{pid}/fd")), default=0)


LIMITS = {
    "memory-limit": _Limit(resource.RLIMIT_AS, "megabytes", _address_space_bytes, 1 << 20),
    "descriptor-limit": _Limit(resource.RLIMIT_NOFILE, "descriptors", _descriptors, 1),
    "disk-full": _Limit(resource.RLIMIT_FSIZE, "", lambda pid: 0, 1),
}
"""Kind of fault -> limit."""


def limit_of(victim: Victim, kind: str) -> tuple[int, int]:
    """The present soft and hard limit of a process. ClusterError if it has ended."""
    pidfd = process.open_proven(victim.pid, victim.started_ticks)
    try:
        return resource.prlimit(victim.pid, LIMITS[kind].number)
    except (ProcessLookupError, PermissionError) as error:
        raise ClusterError(f"the limits of {victim.name} cannot be read: {error.strerror}") from error
    finally:
        os.close(pidfd)


class ProcessFaults:
    """The faults that one daemon carries out."""

    def __init__(self, carrier: str) -> None:
        self._carrier = carrier
        self._faults: list[FaultInForce] = []
        self._stopped: dict[Victim, bool] = {}
        """Victim -> whether it is stopped; missing if it has not been looked at yet."""
        self._lowered: dict[int, bool] = {}
        """Id of a fault -> whether its limits are in force; missing if it has not been looked at yet."""

    def take(self, faults: Iterable[FaultInForce], now: float) -> None:
        """Take over the faults that are in the file now."""
        self._faults = [
            fault for fault in faults
            if fault.carrier == self._carrier and (fault.kind in _STOPPING or fault.kind in LIMITS)
        ]
        known = {victim for fault in self._faults for victim in fault.victims}
        for victim in self._stopped.keys() - known:
            if self._stopped.pop(victim):
                self._signal(victim, signal.SIGCONT)
        self.tick(now)

    def tick(self, now: float) -> None:
        """Stop and continue victims as is due, lower and restore limits."""
        wanted: dict[Victim, bool] = {}
        for fault in self._faults:
            if fault.kind in LIMITS:
                self._limit(fault, now)
                continue
            for victim in fault.victims:
                wanted[victim] = fault.stops(now) or wanted.get(victim, False)
        for victim, stop in wanted.items():
            if victim not in self._stopped:
                self._stopped[victim] = process.is_stopped(victim.pid)
            if stop != self._stopped[victim]:
                self._signal(victim, signal.SIGSTOP if stop else signal.SIGCONT)
                self._stopped[victim] = stop

    def next_deadline(self, now: float) -> float | None:
        """When `tick` is due next."""
        changes = (
            fault.changes_at(now) if fault.kind in _STOPPING else fault.ends_secs
            for fault in self._faults
            if now < fault.ends_secs
        )
        return min((at for at in changes if at is not None), default=None)

    def end(self, now: float) -> None:
        """Continue all victims and restore their limits: the carrier is about to end."""
        for fault in self._faults:
            if self._lowered.get(fault.id):
                self._lift(fault, now)
        self.take((), now)

    def _limit(self, fault: FaultInForce, now: float) -> None:
        lowered, wanted = self._lowered.get(fault.id, True), fault.is_in_force(now)
        if fault.id not in self._lowered and wanted:
            # A successor's first look: lower it anew, by the present use.
            lowered = False
        self._lowered[fault.id] = wanted
        if wanted and not lowered:
            for victim in fault.victims:
                self._set_limit(fault, victim, lower=True)
        elif lowered and not wanted:
            self._lift(fault, now)

    def _lift(self, fault: FaultInForce, now: float) -> None:
        """Restore limits, unless another fault still lowers the same."""
        others = [other for other in self._faults if other.kind == fault.kind and other.is_in_force(now)]
        for victim in fault.victims:
            if not any(victim in other.victims for other in others if other.id != fault.id):
                self._set_limit(fault, victim, lower=False)
        self._lowered[fault.id] = False

    @staticmethod
    def _set_limit(fault: FaultInForce, victim: Victim, *, lower: bool) -> None:
        limit = LIMITS[fault.kind]
        if victim.limit_before is None:
            return
        soft, hard = victim.limit_before
        with contextlib.suppress(ClusterError, FileNotFoundError, ProcessLookupError):  # it has ended: nothing to do
            pidfd = process.open_proven(victim.pid, victim.started_ticks)
            try:
                wanted = limit.lowered(fault, victim) if lower else soft
                if hard != resource.RLIM_INFINITY:
                    wanted = min(wanted, hard)
                resource.prlimit(victim.pid, limit.number, (wanted, hard))
            finally:
                os.close(pidfd)

    @staticmethod
    def _signal(victim: Victim, signum: int) -> None:
        if not process.send_signal_proven(victim.pid, victim.started_ticks, signum):
            log.info("%s (pid %d) has ended: it gets no %s", victim.name, victim.pid, process.signal_name(signum))
