"""Carries out a fault plan while a topology runs.

Guarantees: faults begin as the plan says, by the same request as `squall inject`; time counts from the moment when
every worker was ready for the first time. A topology that was submitted inactive is activated then, after the faults
that begin at once. If a fault's target is away (dead and not replaced yet), the fault is tried again until it is there.
`end` leaves nothing broken.

Relies on: `turn` being called every few milliseconds; a keeper, which starts daemons again that the plan has killed.
Thread: the job's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError, UsageError
from squall.ipc.control import NoAnswer
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import NimbusClient, nimbus_is_stopped
from squall.scheduler.cluster.size import FIRST_PORT
from squall.scheduler.faults.fault import AT_ONCE, Fault
from squall.scheduler.faults.plan import Plan
from squall.scheduler.faults.schedule import Begin, Schedule
from squall.scheduler.faults.sentence import text_of
from squall.scheduler.faults.view import Place, View
from squall.scheduler.nimbus.fault_view import view_of
from squall.scheduler.records.topology_view import TopologyView

_LOOK_SECS = 0.005
"""Between two counts of acks: a fault `after 1000 acked` begins at most that late."""


def view_before(name: str, topology: Topology, nodes: Sequence[str], slots_per_node: int) -> View:
    """The view of a cluster of its own, with a keeper, on which a topology will run; nothing has been placed."""
    components = {
        id_: tuple(Place(name, id_, -index) for index in range(spec.tasks)) for id_, spec in topology.components.items()
    }
    workers = tuple(f"{node}:{FIRST_PORT + slot}" for node in nodes for slot in range(slots_per_node))
    received = {(name, id_): topology.fields_received(id_) for id_ in topology.components}
    return View(tuple(nodes), workers, {name: components}, has_keeper=True, received=received)


class FaultDriver:
    """Carries out the plan of one run."""

    def __init__(
        self, plan: Plan, client: NimbusClient, job: Job, nodes: Sequence[str], tell: Callable[[str], None]
    ) -> None:
        """`tell` gets a line whenever a fault begins."""
        self._schedule = Schedule(plan.faults, plan.seed)
        self._ends_secs = plan.for_secs
        self._client = client
        self._job = job
        self._nodes = tuple(nodes)
        self._tell = tell
        self._began_at: float | None = None
        self._active = job.record.status != "INACTIVE"
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
        self._began_at = self._began_at or now
        secs = now - self._began_at
        if self._ends_secs is not None and secs >= self._ends_secs:
            self.end()
            return
        if nimbus_is_stopped(self._client.run_dir):
            return
        for instruction in self._schedule.turn(secs, view.spout_total("acked"), self._view(view)):
            # A lasting fault ends by itself, by its carrier's clock.
            if isinstance(instruction, Begin):
                self._begin(instruction)
        if not self._active:
            self._activate()

    def _activate(self) -> None:
        # If a fault has killed Nimbus meanwhile, ask the next one.
        with contextlib.suppress(NoAnswer):
            self._job.activate()
            self._active = True

    def end(self) -> None:
        """Heal the faults in force, and report those that did not begin as often as the plan says. May be called
        again."""
        if self._ended:
            return
        self._ended = True
        secs = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        if self._schedule.heal(secs):
            self._client.heal()
        for number, fault, begun in self._schedule.not_begun():
            why = self._away.get(number, "the run was over before")
            short = f"began {begun} of {fault.times} times" if begun else "did not begin"
            self._tell(f"{short}: {text_of(fault)}: {why}")

    def _view(self, view: TopologyView) -> View:
        return view_of(self._nodes, [(self._job.record, view.assignment)], has_keeper=True)

    def _begin(self, begin: Begin) -> None:
        if nimbus_is_stopped(self._client.run_dir):
            # By a fault of the same turn. It would carry out later what it is asked for now, and be asked again.
            self._schedule.postpone(begin)
            return
        asked = _once(begin)
        try:
            self._client.inject(asked)
        except UsageError as error:
            self._tell(f"refused: {text_of(replace(asked, seed=None))}: {error}")
        except ClusterError as error:
            self._away[begin.number] = str(error)
            self._schedule.postpone(begin)
        else:
            self._away.pop(begin.number, None)
            self._tell(f"{begin.at_secs:.3f} s: {text_of(replace(asked, seed=None))}")


def _once(begin: Begin) -> Fault:
    """The fault of this occurrence alone, to be injected now."""
    return replace(begin.fault, targets=begin.targets, when=AT_ONCE, every_secs=None, times=None, seed=begin.seed)
