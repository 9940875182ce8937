"""The faults of a mix, injected into a real cluster and ended, and the deaths of its processes, with the fault that
explains each.

Guarantees: after `heal`, no injected fault is in force, and every process that one killed has ended: a Nimbus ends only
after its answer, and would take later requests with it. A fault whose target is missing at its time (dead, and not yet
replaced) is recorded as missed and skipped. While Nimbus is away, the faults that are due wait for it.

A worker's death is one that its supervisor recorded. A daemon's death is one that was seen from outside: its process
was there at one look and not at a later one. A fault explains the death of a process that it names, that of a worker
which could not be forked, that of a worker which was not forked yet when its supervisor or the forking parent was hit,
and that of a forking parent whose supervisor it hit, because the supervisor ends it.

Relies on: the record of faults, which is written before a fault is carried out; Linux's list of a process's children.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from msgspec.structs import replace

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.common import daemon
from squall.scheduler.common.process import lives, start_time_ticks
from squall.scheduler.common.role import Role, RoleKind, role_of
from squall.scheduler.faults.catalogue import CATALOGUE, ActsOn
from squall.scheduler.faults.in_force import BEGIN, HIT, NIMBUS, Victim, read_record
from squall.scheduler.faults.sentence import Fault

_HEAL_SECS = 30.0
"""Longest that the end of all faults is tried: each ends by itself after seconds, and until then Nimbus may be unable
to note it."""
_HEAL_RETRY_SECS = 0.1


@dataclass
class Injected:
    """A fault that was injected or missed."""

    fault: Fault
    began_secs: float
    """On the monotonic clock."""
    ends_secs: float
    missed: str = ""
    """Why it was missed; empty if it was not."""


class Injector:
    """The faults of one trial. Owner: the trial."""

    def __init__(self, cluster: LocalCluster, faults: Sequence[Fault], started_secs: float) -> None:
        self._cluster = cluster
        self._started_secs = started_secs
        self._to_come = sorted(faults, key=lambda fault: fault.at_secs)
        self.injected: list[Injected] = []
        self._killed: list[Victim] = []

    def turn(self) -> None:
        """Begin the faults that are due. They end by themselves."""
        while self._to_come and time.monotonic() >= self._started_secs + self._to_come[0].at_secs:
            if self._cluster.run_dir.lock_holder() is None:
                return
            self._begin(self._to_come.pop(0))

    def heal(self) -> None:
        """End the faults in force, and drop those not begun yet."""
        self._to_come.clear()
        deadline = time.monotonic() + _HEAL_SECS
        while not self._is_healed():
            if time.monotonic() >= deadline:
                raise ClusterError(f"the faults in force could not be ended within {_HEAL_SECS:g} s")
            time.sleep(_HEAL_RETRY_SECS)
        now = time.monotonic()
        for one in self.injected:
            one.ends_secs = min(one.ends_secs, now)

    def _is_healed(self) -> bool:
        if any(lives(victim.pid, victim.started_ticks) for victim in self._killed):
            return False
        try:
            self._cluster.client.heal()
        except ClusterError:
            return False
        return True

    def _begin(self, fault: Fault) -> None:
        one = Injected(fault, time.monotonic(), time.monotonic())
        self.injected.append(one)
        try:
            begun = self._cluster.client.inject(replace(fault, at_secs=0.0))
        except ClusterError as error:
            one.missed = str(error)
        else:
            one.began_secs = min(each.began_secs for each in begun)
            one.ends_secs = max(each.ends_secs for each in begun)
            if fault.kind == "kill":
                self._killed += [victim for each in begun for victim in each.victims]


_LATE_SECS = 5.0
"""Longest from the end of a fault until the report of a worker that was not forked because of it: its supervisor may
have been stopped meanwhile, or killed, and the next one is back in a tenth of a second, on a busy machine in one."""


@dataclass
class Death:
    """An unrequested end of a worker or a daemon."""

    worker: str
    """ "node-1:6700", "nimbus", "supervisor node-1"."""
    at_secs: float
    """Seconds after the start."""
    reason: str
    claimed_by: str = ""
    """The fault that explains it; empty if there is none."""
    ready_after_secs: float | None = None
    working_after_secs: float | None = None


@dataclass(frozen=True)
class DeathClaims:
    """The processes that faults have hit."""

    hit: Mapping[tuple[str, int], str]
    """(name, pid) -> kind of the last fault that hit it."""
    in_force: Sequence[tuple[float, float, str, str]]
    """Begin and end on the monotonic clock, kind, and node, of each fault that keeps workers of a node from being
    forked."""

    @classmethod
    def read(cls, run_dir: RunDir) -> DeathClaims:
        """Read the record that is written before each fault."""
        hit: dict[tuple[str, int], str] = {}
        in_force = []
        for event in read_record(run_dir):
            begins = event["event"] == BEGIN
            for victim in event.get("victims", ()) if begins else [event] if event["event"] == HIT else ():
                hit[victim["name"], victim["pid"]] = event["kind"]
                role, _, node = victim["name"].rpartition(" ")
                if role in ("supervisor", "forking parent"):
                    in_force.append((event["at_secs"], event["at_secs"], event["kind"], node))
            if begins and CATALOGUE[event["kind"]].acts_on is ActsOn.NODES:
                in_force.append((event["at_secs"], event["ends_secs"], event["kind"], event["carrier"]))
        return cls(hit, in_force)

    def of(self, name: str, pid: int, at_secs: float) -> str:
        """Return the kind of fault that explains the death of this process at this monotonic time; "" if none does."""
        kind = self.hit.get((name, pid), "")
        if kind or pid:
            return kind
        # A worker without a pid was never forked.
        mine = (fault for fault in self.in_force if fault[3] == name.rpartition(":")[0])
        return next((kind for began, ends, kind, _ in mine if began <= at_secs <= ends + _LATE_SECS), "")


@dataclass
class Daemon:
    """One process of a daemon."""

    name: str
    pid: int
    started_ticks: int
    supervisor: Daemon | None = None
    """The supervisor of a forking parent; None for other daemons."""
    at_secs: float | None = None
    """Time of its death, on the monotonic clock; None: it lives."""
    back_secs: float | None = None
    """Time when its successor was seen."""


class DaemonWatch:
    """Looks at the processes of Nimbus, supervisors and forking parents."""

    def __init__(self, run_dir: RunDir, nodes: int) -> None:
        self._nodes = [f"node-{number}" for number in range(1, nodes + 1)]
        self._records: dict[str, Path] = {
            NIMBUS: run_dir.daemon_record(NIMBUS),
            **{f"supervisor {name}": run_dir.daemon_record(f"supervisor-{name}") for name in self._nodes},
        }  # fmt: skip
        self._present: dict[str, Daemon] = {}
        """Name of a daemon -> its process, or its last one."""
        self.deaths: list[Daemon] = []

    def look(self, now: float) -> None:
        """Note deaths and returns."""
        for name, path in self._records.items():
            record = daemon.read_record(path)
            if record is not None:
                self._see(Daemon(name, record.pid, record.started_ticks), now)
        for node in self._nodes:
            if supervisor := self._present.get(f"supervisor {node}"):
                self._look_at_forking_parent(node, supervisor, now)

    def _look_at_forking_parent(self, node: str, supervisor: Daemon, now: float) -> None:
        name = f"forking parent {node}"
        known = self._present.get(name)
        if known is not None and known.supervisor is not supervisor and known.at_secs is None:
            # One whose supervisor has died ends by itself. If it was seen dead before that, the next one replaces it.
            known = None
            del self._present[name]
        found = forking_parent_of(supervisor.pid, node)
        if found is None and known is not None:
            found = known.pid, known.started_ticks
        if found is not None and lives(supervisor.pid, supervisor.started_ticks):
            self._see(Daemon(name, *found, supervisor), now)

    def away(self) -> list[str]:
        """Return the daemons that were dead at the last look."""
        return [name for name, process in self._present.items() if process.at_secs is not None]

    def _see(self, seen: Daemon, now: float) -> None:
        """Note the process that a daemon is now."""
        known = self._present.get(seen.name)
        if known is None or (known.pid, known.started_ticks) != (seen.pid, seen.started_ticks):
            if known is not None:
                self._died(known, now)
                known.back_secs = now
            known = self._present[seen.name] = seen
        if not lives(known.pid, known.started_ticks):
            self._died(known, now)

    def _died(self, process: Daemon, now: float) -> None:
        if process.at_secs is None:
            process.at_secs = now
            self.deaths.append(process)


def forking_parent_of(supervisor: int, node: str) -> tuple[int, int] | None:
    """Return pid and start of a supervisor's forking parent; None if it has none now."""
    try:
        with open(f"/proc/{supervisor}/task/{supervisor}/children", encoding="ascii") as file:
            children = map(int, file.read().split())
        for child in children:
            if role_of(psutil.Process(child)) == Role(RoleKind.FORKING_PARENT, node):
                return child, start_time_ticks(child)
    except (FileNotFoundError, ProcessLookupError, psutil.Error, ClusterError):
        return None
    return None
