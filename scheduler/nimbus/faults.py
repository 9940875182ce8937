"""Begins and ends injected faults, on request and on time.

Guarantees
    * A fault is either refused whole, by one line, or on record and in the file of faults in force before it is carried
      out. It ends at a set time, which its carrier watches by itself.
    * Ids rise for the life of the run directory.

The carriers: Nimbus kills, and stops supervisors and forking parents; a supervisor stops its workers, and
Nimbus; workers break their own links and tasks.

Thread: Nimbus's loop.
"""

from __future__ import annotations

import logging
import os
import random
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import HEADER_FAULTS
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.fault_record import BEGIN, END, note_begin, note_end, read_record
from squall.scheduler.breaking.faults_file import KEPT_SECS, read_faults, write_faults
from squall.scheduler.breaking.process_faults import LIMITS, ProcessFaults, limit_of
from squall.scheduler.common import process
from squall.scheduler.common.messages import FaultsChanged
from squall.scheduler.faults.check import field_mistakes, kind_of, mistakes_of
from squall.scheduler.faults.fault import AT_ONCE, Fault
from squall.scheduler.faults.in_force import NIMBUS, WORKERS, FaultInForce, Victim
from squall.scheduler.faults.kind import ActsOn, Carrier, Kind
from squall.scheduler.faults.resolution import Process, resolve
from squall.scheduler.faults.target import Sort, parse_target
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.fault_view import view_of
from squall.scheduler.nimbus.files import NimbusFiles
from squall.scheduler.nimbus.store import Store
from squall.scheduler.nimbus.victims import Victims

STORE_FULL, TORN_WRITE = "store-full", "torn-write"
ON_ITSELF_SECS = 2.0
"""Time for a worker to find a fault that it carries out on itself: longer than any turn of its loop should take."""
LAST_REPLY_SECS = 0.1
"""Delay before Nimbus is killed or stopped: long enough for its reply to leave."""

log = logging.getLogger(__name__)


class NimbusFaults:
    """The faults of one run directory."""

    def __init__(
        self, run_dir: RunDir, nimbus: Nimbus, files: NimbusFiles, store: Store,
        tell: Callable[[str, msgspec.Struct], bool],
    ) -> None:
        """`tell(node, event)` sends to the node's supervisor; False if it is not connected."""
        self._run_dir = run_dir
        self._nimbus = nimbus
        self._files = files
        self._store = store
        self._store_is_full = False
        self._tell = tell
        self._stops = False
        self._victims = Victims(run_dir, files, nimbus.assigned)
        self._mine = ProcessFaults(NIMBUS)
        self._faults = self._found()
        record = self._recorded()
        self._ended = {event["id"] for event in record if event["event"] == END}
        """Ids of the faults whose end is on record."""
        self._next_id = 1 + max((event["id"] for event in record if event["event"] == BEGIN), default=0)
        self._own_end_at: float | None = None
        self._mine.take(self._faults, 0.0)

    def _found(self) -> list[FaultInForce]:
        """The faults that an earlier Nimbus has begun."""
        try:
            return read_faults(self._run_dir)
        except ClusterError as error:
            log.error("%s: faults in force go on until their time is over", error)
            return []

    def _recorded(self) -> list[dict[str, Any]]:
        try:
            return read_record(self._run_dir)
        except OSError as error:
            # No fault will begin either: none can be put on record.
            log.error("%s cannot be read: %s", self._run_dir.fault_record, error.strerror)
            return []

    # ---- requests ----

    def inject(self, fault: Fault, now: float) -> list[FaultInForce]:
        """Begin a fault; UsageError or ClusterError if it is refused."""
        if self._stops:
            raise UsageError("the cluster is about to stop: it takes no more faults")
        kind = _checked(fault)
        seed = random.SystemRandom().getrandbits(32) if fault.seed is None else fault.seed
        begun = self._resolved(fault, kind, seed, now)
        for one in begun:
            self._begin(one, now)
        return begun

    def heal(self, targets: Iterable[str], now: float) -> list[FaultInForce]:
        """End all faults in force; with `targets`, only those begun with exactly these. Returns them."""
        wanted = list(targets)
        ended = [fault for fault in self._faults if now < fault.ends_secs and wanted in ([], fault.targets)]
        if not ended:
            return []
        over = {fault.id for fault in ended}
        self._keep(
            [
                replace(fault, ends_secs=now) if fault.id in over else fault
                for fault in self._faults
            ],
            now,
        )
        for fault in ended:
            self._note_end(fault, now, healed=True)
        return ended

    # ---- time ----

    def tick(self, now: float) -> None:
        """End faults that are over, and forget those that have been over for long."""
        if self._own_end_at is not None and now >= self._own_end_at:
            process.kill_myself()
        self._mine.tick(now)
        self.break_store(now)
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

    def break_store(self, now: float) -> None:
        """Break the store, or mend it, as is due by now. Also called before each write: this process may have been
        stopped while a fault ended."""
        in_force = [fault for fault in self._faults if fault.is_in_force(now)]
        is_full = any(fault.kind == STORE_FULL for fault in in_force)
        if is_full != self._store_is_full:
            self._store_is_full = is_full
            self._store.limit_growth(is_full)
        # Not the next Nimbus, which finds the fault still in force: one write is torn.
        mine = (fault for fault in in_force if os.getpid() in [victim.pid for victim in fault.victims])
        self._store.tear(any(fault.kind == TORN_WRITE for fault in mine))

    def next_deadline(self, now: float) -> float | None:
        ends = [fault.ends_secs for fault in self._faults if fault.id not in self._ended]
        forgets = [fault.ends_secs + KEPT_SECS for fault in self._faults]
        others = (self._own_end_at, self._mine.next_deadline(now))
        return min([*ends, *forgets, *(at for at in others if at is not None)], default=None)

    def end(self, now: float) -> None:
        """The cluster is about to stop: end every fault, so that it can, and begin no other."""
        self._stops = True
        try:
            self.heal((), now)
        except ClusterError as error:
            log.warning("%s", error)
        self._mine.end(now)

    # ---- parts ----

    def _resolved(self, fault: Fault, kind: Kind, seed: int, now: float) -> list[FaultInForce]:
        """The fault as it is carried out: one for each carrier or topology."""
        assigned = self._nimbus.assigned()
        targets = [parse_target(text) for text in fault.targets]
        # Also nodes whose supervisors have not registered yet with a Nimbus that was started again.
        nodes = {slot.node for _, assignment in assigned if assignment is not None for slot in assignment.workers}
        nodes.update(self._nimbus.cluster().supervisors)
        view = view_of(sorted(nodes), assigned, has_keeper=self._victims.has_keeper())
        found = resolve(kind, targets, view, random.Random(seed))
        if mistakes := list(field_mistakes(kind, fault, found.tasks, view)):
            raise UsageError("; ".join(mistakes))
        begun = FaultInForce(
            self._next_id, kind.name, list(fault.targets), now, now + (kind.ends_after_secs(fault) or 0.0),
            params=kind.params_of(fault), probability=fault.probability, seed=seed,
        )
        match kind.acts_on:
            case ActsOn.LINKS:
                several = [replace(begun, links=list(found.links))]
            case ActsOn.TASKS:
                ids = {record.name: record.id for record, _ in assigned}
                tasks: dict[str, list[int]] = {}
                for place in found.tasks:
                    tasks.setdefault(ids[place.topology], []).append(place.task)
                several = [replace(begun, topology_id=key, tasks=numbers) for key, numbers in tasks.items()]
            case ActsOn.CLUSTER:
                carrier = self._anybody() if kind.carrier is Carrier.SUPERVISOR else NIMBUS
                several = [replace(begun, carrier=carrier, victims=[self._victims.nimbus()])]
            case ActsOn.FORKING_PARENTS:
                several = [replace(begun, carrier=each.name) for each in found.processes]
            case _:
                several = self._on_processes(begun, kind, found.processes)
        return [replace(one, id=self._next_id + number) for number, one in enumerate(several)]

    def _on_processes(self, begun: FaultInForce, kind: Kind, processes: Sequence[Process]) -> list[FaultInForce]:
        """One fault for each carrier."""
        workers = self._workers_living([each.name for each in processes if each.sort is Sort.WORKER])
        if kind.carrier is Carrier.WORKER:
            # A worker that carries a fault out on itself must have the time to find it in the file.
            ends_secs = begun.began_secs + ON_ITSELF_SECS if kind.lasts_secs is None else begun.ends_secs
            return [replace(begun, victims=workers, ends_secs=ends_secs)]
        by_carrier: dict[str, list[Victim]] = {}
        for victim in workers:
            by_carrier.setdefault(victim.name.rpartition(":")[0], []).append(victim)
        for daemon in processes:
            if daemon.sort is not Sort.WORKER:
                carrier = self._anybody() if daemon.sort is Sort.NIMBUS else NIMBUS
                by_carrier.setdefault(carrier, []).append(self._daemon(daemon))
        if begun.ends_secs == begun.began_secs:
            # Faults that are over at once are carried out by Nimbus.
            by_carrier = {NIMBUS: [victim for several in by_carrier.values() for victim in several]}
        if kind.name in LIMITS:
            by_carrier = {
                carrier: [self._with_limit(victim, kind.name) for victim in several]
                for carrier, several in by_carrier.items()
            }
        found = [replace(begun, carrier=carrier, victims=several) for carrier, several in by_carrier.items()]
        return [_after_the_reply(fault) if fault.began_secs < fault.ends_secs else fault for fault in found]

    def _workers_living(self, workers: list[str]) -> list[Victim]:
        """The workers that live; ClusterError if none does."""
        found, refusals = [], []
        for worker in workers:
            try:
                found.append(self._victims.worker(worker))
            except ClusterError as error:
                refusals.append(error)
        if refusals and not found:
            raise refusals[0]
        return found

    def _anybody(self) -> str:
        """A node whose supervisor can do to Nimbus what Nimbus cannot do to itself."""
        nodes = sorted(self._nimbus.cluster().supervisors)
        if not nodes:
            raise ClusterError("no supervisor is connected that could carry it out")
        return nodes[0]

    def _daemon(self, daemon: Process) -> Victim:
        match daemon.sort:
            case Sort.NIMBUS:
                return self._victims.nimbus()
            case Sort.SUPERVISOR:
                return self._victims.supervisor(daemon.name)
            case _:
                return self._victims.forking_parent(daemon.name)

    def _with_limit(self, victim: Victim, kind: str) -> Victim:
        """The victim with the limit that it had before any fault lowered it."""
        for fault in self._faults:
            for former in fault.victims:
                same = (former.pid, former.started_ticks) == (victim.pid, victim.started_ticks)
                if fault.kind == kind and same and former.limit_before is not None:
                    return former
        return replace(victim, limit_before=limit_of(victim, kind))

    def _begin(self, fault: FaultInForce, now: float) -> None:
        self._next_id = max(self._next_id, fault.id + 1)
        try:
            note_begin(self._run_dir, fault)
        except OSError as error:
            raise ClusterError(f"{fault.kind} is not begun: {self._run_dir.fault_record}: {error.strerror}") from error
        log.warning("fault %d: %s %s for %.3g s", fault.id, fault.kind, ", ".join(fault.targets), fault.left_secs(now))
        if fault.ends_secs == fault.began_secs:
            self._strike(fault, now)
            self._note_end(fault, now, healed=False)
            return
        if fault.carrier not in (NIMBUS, WORKERS) and not self._tell(fault.carrier, FaultsChanged()):
            self._note_end(fault, now, healed=True)
            raise ClusterError(f"the supervisor of {fault.carrier} is not connected: nobody can carry out {fault.kind}")
        try:
            self._keep([*self._faults, fault], now)
        except ClusterError:
            self._note_end(fault, now, healed=True)
            raise

    def _strike(self, fault: FaultInForce, now: float) -> None:
        """Kill the victims of a fault that is over at once."""
        for victim in fault.victims:
            if victim.pid == os.getpid():
                self._own_end_at = now + LAST_REPLY_SECS
            elif not process.send_signal_proven(victim.pid, victim.started_ticks, signal.SIGKILL):
                log.info("%s has ended by itself meanwhile", victim.name)

    def _keep(self, faults: list[FaultInForce], now: float) -> None:
        """Write these to the file, and have all carriers read it."""
        write_faults(self._run_dir, faults)
        self._faults = faults
        self._mine.take(faults, now)
        self.break_store(now)
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
            note_end(self._run_dir, fault, now, healed=healed)
        except OSError as error:
            # The fault has ended all the same.
            log.warning("the end of fault %d is not on record: %s", fault.id, error.strerror)


def _after_the_reply(fault: FaultInForce) -> FaultInForce:
    """Delay a fault that stops Nimbus until its reply has left."""
    if all(victim.pid != os.getpid() for victim in fault.victims):
        return fault
    began_secs, ends_secs = (at + LAST_REPLY_SECS for at in (fault.began_secs, fault.ends_secs))
    return replace(fault, began_secs=began_secs, ends_secs=ends_secs)


def _checked(fault: Fault) -> Kind:
    """The kind of a fault; UsageError unless the fault can be injected as it is."""
    mistakes = mistakes_of(fault)
    if fault.when != AT_ONCE or fault.every_secs is not None or fault.times is not None:
        mistakes.append("inject begins a fault now and once; use a fault plan for `at`, `after`, `every` and `times`")
    if mistakes:
        raise UsageError("; ".join(mistakes))
    return kind_of(fault)
