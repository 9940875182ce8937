"""Faults that were begun: victims, carrier and end of each; the file of those in force; the record of all; and what a
daemon does that carries them out: it stops and throttles processes, takes their disk away, refuses forks.

Guarantees
    * A fault ends by its carrier's clock; no process has to be told, and no daemon has to live. Healing sets an earlier
      end. Times are of the monotonic clock, which all processes of a machine share; a fault from before a reboot begins
      in the future, and is not in force.
    * `faults.json` of a run directory holds the faults in force. It is there whole or not at all, and only Nimbus
      writes it. A fault that has ended stays in it for KEPT_SECS, for carriers that were away meanwhile: a supervisor
      that was killed while its worker was stopped still finds that it has to continue it.
    * `faults.jsonl` is the record, append-only. A fault is on record before it is carried out, with pid and incarnation
      of the processes that it signals, so an injected death can be told from others. A `hit` is a fault that a worker
      carried out on itself, and may die of::

        {"event": "begin", "at_secs": 812.4, "id": 3, "kind": "kill", "targets": ["node-1:6700"], "ends_secs": 812.4,
         "victims": [{"name": "node-1:6700", "pid": 4711, "started_ticks": 81234, "incarnation": 2}], ...}
        {"event": "hit", "at_secs": 815.0, "id": 4, "kind": "poison", "name": "node-1:6701", "pid": 4712, ...}
        {"event": "end", "at_secs": 822.4, "id": 4, "kind": "poison", "healed": false}

    * A signal goes to the process that the fault names, by pid and start time, or to none. When its fault ends, every
      victim is continued and has its disk back, even if the carrier has died: its successor finds the fault in the
      file, and looks at the process. A file that cannot be read changes nothing: what was begun ends by the clock.

Relies on: Nimbus to say when the file has changed; `DaemonFaults.tick` being called at `next_deadline`. Process: any of
the owner's may read both files. Thread of a carrier: the daemon's loop.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import append_line, read_lines, replace_file
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import Wire
from squall.scheduler.faults.resolution import ANYBODY, LinkEnds

log = logging.getLogger(__name__)

_STOPS, _DISK_FULL, _FORK_REFUSED = ("stop", "throttle"), "disk-full", "fork-refused"
WORKERS, NIMBUS = "", "nimbus"
"""Values of `carrier`: the workers themselves, and Nimbus. Every other one names a node, whose supervisor carries."""
PERIOD_SECS = 0.05
"""Period of a throttled process, of which it runs for a share: shorter than any wait for a sign of life, longer than
ten turns of a worker."""
KEPT_SECS = 30.0
"""Longer than a keeper's pause before it restarts a daemon, and than a supervisor lets a stopped worker live."""
BEGIN, HIT, END = "begin", "hit", "end"


class Victim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that a fault hits, identified for good by pid and start time."""

    name: str
    """ "node-1:6700", "supervisor node-1", "nimbus"."""
    pid: int
    started_ticks: int
    incarnation: int = 0
    """Of a worker; 0 for a daemon."""


class FaultInForce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that was begun."""

    id: int
    """Unique in the run directory, for good."""
    kind: str
    targets: list[str]
    """As requested."""
    began_secs: float
    ends_secs: float
    """For a fault that is over at once, the time at which it began."""
    carrier: str = WORKERS
    victims: list[Victim] = []
    topology_id: str = ""
    """Of `tasks`."""
    tasks: list[int] = []
    links: list[LinkEnds] = []
    params: dict[str, Any] = {}
    probability: float | None = None
    seed: int = 0

    def breaks(self, sender: str, receiver: str) -> bool:
        """Whether the link from this worker to that one is among its links."""
        return any(_is_of(sender, link.sender) and _is_of(receiver, link.receiver) for link in self.links)

    def is_in_force(self, now: float) -> bool:
        return self.began_secs <= now < self.ends_secs

    def left_secs(self, now: float) -> float:
        return max(0.0, self.ends_secs - now)

    def holds(self, now: float) -> bool:
        """Whether its victims must be stopped, or have no disk, now."""
        return self.is_in_force(now) and (now - self.began_secs) % PERIOD_SECS >= self._runs_secs

    def changes_at(self, now: float) -> float | None:
        """When `holds` may change next; None: never again."""
        if now < self.began_secs:
            return self.began_secs
        if not self.is_in_force(now):
            return None
        if not self._runs_secs:
            return self.ends_secs
        into_secs = (now - self.began_secs) % PERIOD_SECS
        left_secs = (self._runs_secs if into_secs < self._runs_secs else PERIOD_SECS) - into_secs
        return min(self.ends_secs, now + left_secs)

    @property
    def _runs_secs(self) -> float:
        """Seconds of each period in which a process runs, if it is throttled."""
        return PERIOD_SECS * float(self.params.get("share", 0.0))


class FaultsTold(Wire, frozen=True):
    """Nimbus's reply: what was begun, or ended."""

    faults: list[FaultInForce]


def _is_of(worker: str, end: str) -> bool:
    return end in (ANYBODY, worker, worker.rpartition(":")[0])


_DECODER = msgspec.json.Decoder(list[FaultInForce])


def read_faults(run_dir: RunDir) -> list[FaultInForce]:
    """All faults in the file, also those that have ended. ClusterError if it cannot be read."""
    path = run_dir.faults_in_force
    try:
        return _DECODER.decode(path.read_bytes())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ClusterError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ClusterError(f"{path} is damaged: {error}") from None


def faults_now(run_dir: RunDir, now: float) -> list[FaultInForce]:
    """The faults in force."""
    return [fault for fault in read_faults(run_dir) if fault.is_in_force(now)]


def write_faults(run_dir: RunDir, faults: Sequence[FaultInForce]) -> None:
    """Replace the file's faults; no file for none. ClusterError, and no change, if there is no room."""
    path = run_dir.faults_in_force
    try:
        if faults:
            replace_file(path, msgspec.json.encode(faults))
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ClusterError(f"cannot write {path}: {error.strerror}") from error


def note(run_dir: RunDir, event: str, fault: FaultInForce, now: float, **more: object) -> None:
    """Add an event to the record: all of a fault that begins, and `more`. OSError if there is no room."""
    whole = msgspec.to_builtins(fault) if event == BEGIN else {}
    document = {"event": event, "at_secs": now, "id": fault.id, "kind": fault.kind, **whole, **more}
    append_line(run_dir.fault_record, json.dumps(document))


def read_record(run_dir: RunDir) -> list[dict[str, Any]]:
    """All events, oldest first, without damaged lines. OSError if the record cannot be read."""
    events = []
    for line in read_lines(run_dir.fault_record):
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and event.get("event") in (BEGIN, HIT, END) and type(event.get("id")) is int:
                events.append(event)
    return events


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
