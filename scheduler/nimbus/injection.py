"""Begins and ends injected faults, on request and on time.

Guarantees
    * A fault is either refused whole, by one line, or on record and in the file of faults in force before it is carried
      out. It ends at a set time, which its carrier watches by itself.
    * Ids rise for the life of the run directory.
    * A worker that a fault hits is the process that the status board names for the slot, a daemon one that carries the
      mark of the run directory; each with the start time that proves it.

The carriers: Nimbus kills, and stops supervisors and forking parents; a supervisor stops its workers, and
Nimbus; workers break their own links and tasks.

Thread: Nimbus's loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import psutil
from msgspec.structs import replace

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import DEAD, HEADER_FAULTS, STOPPED, SlotCell
from squall.ipc.control import NotStarted
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import FaultsChanged
from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from squall.scheduler.faults.catalogue import ActsOn
from squall.scheduler.faults.in_force import (
    BEGIN,
    END,
    KEPT_SECS,
    NIMBUS,
    WORKERS,
    DaemonFaults,
    FaultInForce,
    Victim,
    note,
    read_faults,
    read_record,
    write_faults,
)
from squall.scheduler.faults.resolution import check, resolve, view_of
from squall.scheduler.faults.sentence import FORKING_PARENT, SUPERVISOR, WORKER, Fault, Target
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.nimbus_files import NimbusFiles

LAST_REPLY_SECS = 0.1
"""Delay before Nimbus is killed or stopped: long enough for its reply to leave."""

log = logging.getLogger(__name__)


class Injection:
    """The faults of one run directory."""

    def __init__(
        self, run_dir: RunDir, nimbus: Nimbus, files: NimbusFiles, tell: Callable[[str, msgspec.Struct], bool],
    ) -> None:
        """`tell(node, event)` sends to the node's supervisor; False if it is not connected."""
        self._run_dir = run_dir
        self._nimbus = nimbus
        self._files = files
        self._tell = tell
        self._stops = False
        self._mine = DaemonFaults(run_dir, NIMBUS)
        self._faults: list[FaultInForce] = []
        record: list[dict[str, Any]] = []
        try:
            self._faults = read_faults(run_dir)
            record = read_record(run_dir)
        except (OSError, ClusterError) as error:
            log.error("%s: faults in force go on until their time is over", error)
        self._ended = {event["id"] for event in record if event["event"] == END}
        """Ids of the faults whose end is on record."""
        self._next_id = 1 + max((event["id"] for event in record if event["event"] == BEGIN), default=0)
        self._own_end: tuple[float, int] | None = None
        """When Nimbus sends itself a signal, and which."""
        self._mine.take(self._faults, 0.0)

    # ---- requests ----

    def inject(self, fault: Fault, now: float) -> list[FaultInForce]:
        """Begin a fault; UsageError or ClusterError if it is refused."""
        if self._stops:
            raise UsageError("the cluster is about to stop: it takes no more faults")
        if (fault.at_secs, fault.after_acked, fault.every_secs, fault.times) != (0.0, 0, None, None):
            raise UsageError("inject begins a fault now and once; use a plan for `at`, `after`, `every` and `times`")
        begun = self._resolved(fault, now)
        for one in begun:
            self._begin(one, now)
        return begun

    def heal(self, targets: Iterable[str], now: float) -> list[FaultInForce]:
        """End all faults in force; with `targets`, only those begun with exactly these. Returns them."""
        wanted = list(targets)
        ended = [fault for fault in self._faults if now < fault.ends_secs and wanted in ([], fault.targets)]
        if not ended:
            return []
        self._keep([replace(fault, ends_secs=now) if fault in ended else fault for fault in self._faults], now)
        for fault in ended:
            self._note_end(fault, now, healed=True)
        return ended

    # ---- time ----

    def tick(self, now: float) -> None:
        """End faults that are over, and forget those that have been over for long."""
        if self._own_end is not None and now >= self._own_end[0]:
            signal.raise_signal(self._own_end[1])
        self._mine.tick(now)
        for fault in self._faults:
            if now >= fault.ends_secs:
                self._note_end(fault, fault.ends_secs, healed=False)
        kept = [fault for fault in self._faults if now < fault.ends_secs + KEPT_SECS]
        if len(kept) < len(self._faults):
            try:
                self._keep(kept, now)
            except ClusterError as error:
                # Harmless: the file keeps faults that have ended.
                log.warning("%s", error)
                self._faults = kept

    def next_deadline(self, now: float) -> float | None:
        deadlines = [fault.ends_secs + KEPT_SECS * (fault.id in self._ended) for fault in self._faults]
        own = [] if self._own_end is None else [self._own_end[0]]
        return min([*deadlines, *own, *filter(None, [self._mine.next_deadline(now)])], default=None)

    def end(self, now: float) -> None:
        """The cluster is about to stop: end every fault, so that it can, and begin no other."""
        self._stops = True
        try:
            self.heal((), now)
        except ClusterError as error:
            log.warning("%s", error)
        self._mine.end(now)

    # ---- parts ----

    def _resolved(self, fault: Fault, now: float) -> list[FaultInForce]:
        """The fault as it is carried out: one for each carrier or topology."""
        kind, params = check(fault)
        assigned = self._nimbus.assigned()
        # A Nimbus that was started again takes nodes from assignments: their supervisors may not have registered yet.
        view = view_of(self._nimbus.cluster().supervisors, assigned)
        seed = random.SystemRandom().getrandbits(32) if fault.seed is None else fault.seed
        hit = resolve(kind, fault.targets, view, random.Random(seed))
        begun = FaultInForce(
            self._next_id, kind.name, list(fault.targets), now, now + (fault.for_secs or kind.lasts_secs or 0.0),
            params=params, probability=fault.probability, seed=seed,
        )
        match kind.acts_on:
            case ActsOn.LINKS:
                several = [replace(begun, links=list(hit.links))]
            case ActsOn.TASKS:
                ids = {record.name: record.id for record, _ in assigned}
                tasks: dict[str, list[int]] = {}
                for place in hit.tasks:
                    tasks.setdefault(ids[place.topology], []).append(place.task)
                several = [replace(begun, topology_id=key, tasks=numbers) for key, numbers in tasks.items()]
            case ActsOn.NODES:
                several = [replace(begun, carrier=node.name) for node in hit.processes]
            case ActsOn.PROCESSES:
                several = self._on_processes(begun, hit.processes)
        return [replace(one, id=self._next_id + number) for number, one in enumerate(several)]

    def _on_processes(self, begun: FaultInForce, processes: Sequence[Target]) -> list[FaultInForce]:
        """One fault for each carrier."""
        victims = self._workers_living([each.name for each in processes if each.sort == WORKER])
        victims += [self._daemon(each) for each in processes if each.sort != WORKER]
        if any(victim.name == NIMBUS for victim in victims):
            begun = replace(
                begun, began_secs=begun.began_secs + LAST_REPLY_SECS, ends_secs=begun.ends_secs + LAST_REPLY_SECS
            )
        by_carrier: dict[str, list[Victim]] = {}
        for victim in victims:
            # Faults that are over at once are carried out by Nimbus.
            carrier = NIMBUS
            if begun.ends_secs > begun.began_secs:
                carrier = self._anybody() if victim.name == NIMBUS else victim.name.rpartition(":")[0] or NIMBUS
            by_carrier.setdefault(carrier, []).append(victim)
        return [replace(begun, carrier=carrier, victims=victims) for carrier, victims in by_carrier.items()]

    def _workers_living(self, workers: list[str]) -> list[Victim]:
        """The workers that live; ClusterError if none does, NotStarted if one is still to start."""
        victims, refusal = [], None
        for worker in workers:
            try:
                victims.append(self._worker(worker))
            except NotStarted:
                raise
            except ClusterError as error:
                refusal = error
        if refusal is not None and not victims:
            raise refusal
        return victims

    def _worker(self, name: str) -> Victim:
        """The worker that lives in a slot now. ClusterError if none does."""
        for record, assignment in self._nimbus.assigned():
            if assignment is not None and name in (names := [str(slot) for slot in assignment.workers]):
                with self._files.view(record, assignment) as view:
                    return living(name, view.board.slot(names.index(name)))
        raise _not_there(f"worker {name}")

    def _daemon(self, daemon: Target) -> Victim:
        """Nimbus, or the supervisor or forking parent of a node. ClusterError if there is none now."""
        if daemon.sort == NIMBUS:
            return Victim(NIMBUS, os.getpid(), process.start_time_ticks(os.getpid()))
        role, parent = Role(RoleKind.SUPERVISOR, daemon.name), None
        if daemon.sort == FORKING_PARENT:
            # A worker that was forked just now looks like its forking parent, and is a child of that.
            role, parent = Role(RoleKind.FORKING_PARENT, daemon.name), self._daemon(Target(SUPERVISOR, daemon.name)).pid
        name = f"{role.kind} {role.name}"
        for candidate in processes_of(self._run_dir, role.kind):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                if role_of(candidate) == role and parent in (None, candidate.ppid()):
                    return Victim(name, candidate.pid, process.start_time_ticks(candidate.pid))
        raise _not_there(f"the {name}")

    def _anybody(self) -> str:
        """A node whose supervisor can do to Nimbus what Nimbus cannot do to itself."""
        nodes = sorted(self._nimbus.cluster().supervisors)
        if not nodes:
            raise ClusterError("no supervisor is connected that could carry it out")
        return nodes[0]

    def _begin(self, fault: FaultInForce, now: float) -> None:
        self._next_id = max(self._next_id, fault.id + 1)
        try:
            note(self._run_dir, BEGIN, fault, fault.began_secs)
        except OSError as error:
            raise ClusterError(f"{fault.kind} is not begun: {self._run_dir.fault_record}: {error.strerror}") from error
        log.warning("fault %d: %s %s for %.3g s", fault.id, fault.kind, ", ".join(fault.targets), fault.left_secs(now))
        if fault.ends_secs == fault.began_secs:
            self._strike(fault)
            self._note_end(fault, now, healed=False)
            return
        try:
            if fault.carrier not in (NIMBUS, WORKERS) and not self._tell(fault.carrier, FaultsChanged()):
                raise ClusterError(f"{fault.kind} has no carrier: the supervisor of {fault.carrier} is not connected")
            self._keep([*self._faults, fault], now)
        except ClusterError:
            self._note_end(fault, now, healed=True)
            raise

    def _strike(self, fault: FaultInForce) -> None:
        """Kill the victims of a fault that is over at once."""
        signum = signal.Signals[f"SIG{fault.params['signal']}"]
        for victim in fault.victims:
            if victim.pid == os.getpid():
                self._own_end = fault.began_secs, signum
            elif not process.send_signal_proven(victim.pid, victim.started_ticks, signum):
                log.info("%s has ended by itself meanwhile", victim.name)

    def _keep(self, faults: list[FaultInForce], now: float) -> None:
        """Write these to the file, and have all carriers read it."""
        write_faults(self._run_dir, faults)
        self._faults = faults
        self._mine.take(faults, now)
        for record, assignment in self._nimbus.assigned():
            if assignment is None:
                continue
            try:
                with self._files.view(record, assignment) as view:
                    view.board.words[HEADER_FAULTS] += 1
            except ClusterError as error:
                log.warning("%s does not hear of a fault: %s", record.name, error)
        for node in self._nimbus.cluster().supervisors:
            self._tell(node, FaultsChanged())

    def _note_end(self, fault: FaultInForce, now: float, *, healed: bool) -> None:
        if fault.id in self._ended:
            return
        self._ended.add(fault.id)
        try:
            note(self._run_dir, END, fault, now, healed=healed)
        except OSError as error:
            # The fault has ended all the same.
            log.warning("the end of fault %d is not on record: %s", fault.id, error.strerror)


def living(worker: str, cell: SlotCell) -> Victim:
    """The worker of a slot, as its status board names it. ClusterError if none lives there now."""
    if not cell.pid and cell.state != DEAD:
        raise NotStarted(f"worker {worker} has not been started yet")
    if cell.state in (DEAD, STOPPED) or not cell.pid or not process.lives(cell.pid, cell.started_ticks):
        raise _not_there(f"worker {worker}")
    return Victim(worker, cell.pid, cell.started_ticks, cell.incarnation)


def _not_there(what: str) -> ClusterError:
    return ClusterError(f"{what} is not there now: dead and not replaced yet, or stopped")
