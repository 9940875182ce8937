"""Carries out a fault plan while a topology runs.

Guarantees: faults begin as the plan says, by the same request as `squall inject`; time counts from the moment when
every worker was ready for the first time. A topology that was submitted inactive is activated then, after the faults
that begin at once. If a fault's target is away (dead and not replaced yet), the fault is tried again until it is there.
`end` leaves nothing broken.

Relies on: `turn` being called every few milliseconds. Thread: the job's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.client.healing import heal
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.cluster.daemons import FIRST_PORT
from squall.scheduler.common.fault_points import entry_of
from squall.scheduler.faults.fault import AT_ONCE, AtPoint, Fault
from squall.scheduler.faults.plan import Plan
from squall.scheduler.faults.schedule import Begin, Schedule
from squall.scheduler.faults.sentence import text_of
from squall.scheduler.faults.target import Target, parse_target
from squall.scheduler.faults.view import Place, View
from squall.scheduler.nimbus.fault_view import view_of
from squall.scheduler.records.topology_view import TopologyView

_LOOK_SECS = 0.005
"""Between two counts of acks: a fault `after 1000 acked` begins at most that late."""


def view_before(name: str, topology: Topology, nodes: Sequence[str], slots_per_node: int) -> View:
    """The view of a cluster of its own on which a topology will run; nothing has been placed."""
    components = {
        id_: tuple(Place(name, id_, -index) for index in range(spec.tasks)) for id_, spec in topology.components.items()
    }
    workers = tuple(f"{node}:{FIRST_PORT + slot}" for node in nodes for slot in range(slots_per_node))
    return View(tuple(nodes), workers, {name: components})


def points_text(plan: Plan) -> str:
    """The faults that begin at a point, as text for the environment of the cluster's processes (see `fault_points`)."""
    entries = []
    for fault in plan.faults:
        if isinstance(fault.when, AtPoint):
            for target in map(parse_target, fault.targets):
                if isinstance(target, Target):
                    place = "" if target.index is None else f"[{target.index}]"
                    name = target.name.rpartition("/")[2] + place
                    entries.append(entry_of(fault.when.name, fault.when.nth_pass, name))
    return ",".join(entries)


class FaultDriver:
    """Carries out the plan of one run."""

    def __init__(
        self, plan: Plan, client: NimbusClient, job: Job, nodes: Sequence[str], tell: Callable[[str], None]
    ) -> None:
        """`tell` gets a line whenever a fault begins."""
        # Workers themselves carry out faults that begin at a point: see `points_text`.
        faults = [fault for fault in plan.faults if not isinstance(fault.when, AtPoint)]
        self._schedule = Schedule(faults, plan.seed)
        self._ends_secs = plan.for_secs
        self._client = client
        self._job = job
        self._nodes = tuple(nodes)
        self._tell = tell
        self._began_at: float | None = None
        self._looked_at = 0.0
        self._away: dict[int, str] = {}
        """Number in the plan -> reason why the fault has not begun yet."""
        self._ended = False

    def turn(self) -> None:
        """Begin the faults that are due."""
        now = time.monotonic()
        if self._ended or now < self._looked_at + _LOOK_SECS:
            return
        self._looked_at = now
        view = self._job.view()
        if view is None or (self._began_at is None and not view.all_ready()):
            return
        is_first, self._began_at = self._began_at is None, self._began_at or now
        secs = now - self._began_at
        if self._ends_secs is not None and secs >= self._ends_secs:
            self.end()
            return
        for instruction in self._schedule.turn(secs, view.spout_total("acked"), self._view(view)):
            # A lasting fault ends by itself, by its carrier's clock.
            if isinstance(instruction, Begin):
                self._begin(instruction)
        if is_first and self._job.record.status == "INACTIVE":
            self._job.activate()

    def end(self) -> None:
        """Heal the faults in force, and report those that never began. May be called again."""
        if self._ended:
            return
        self._ended = True
        secs = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        if self._schedule.heal(secs):
            heal(self._client)
        for number, fault in self._schedule.not_begun():
            why = self._away.get(number, "the run was over before")
            self._tell(f"did not begin: {text_of(fault)}: {why}")

    def _view(self, view: TopologyView) -> View:
        return view_of(self._nodes, [(self._job.record, view.assignment)], has_keeper=False)

    def _begin(self, begin: Begin) -> None:
        asked = _once(begin)
        try:
            self._client.inject(asked)
        except UsageError as error:
            self._tell(f"refused: {text_of(replace(asked, seed=None))}: {error}")
        except ClusterError as error:
            self._away[begin.number] = str(error)
            self._schedule.postpone(begin)
        else:
            self._tell(f"{begin.at_secs:.3f} s: {text_of(replace(asked, seed=None))}")


def _once(begin: Begin) -> Fault:
    """The fault of this occurrence alone, to be injected now."""
    return replace(begin.fault, targets=begin.targets, when=AT_ONCE, every_secs=None, times=None, seed=begin.seed)
