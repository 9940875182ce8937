"""Nimbus's decisions, event by event: no process, no clock, no file."""

from __future__ import annotations

import re
from typing import Any

import pytest

from squall.engine.api.plan import ExecutorPlan
from squall.engine.errors import ClusterError, TopologyError, UsageError
from squall.scheduler.common.messages import (
    Assignment,
    ComponentSummary,
    KillTopology,
    RebalanceTopology,
    RegisterSupervisor,
    SlotChanged,
    SlotRef,
    SubmitTopology,
    SupervisorHeartbeat,
    TopologyRecord,
    TopologyState,
)
from squall.scheduler.nimbus.decisions import ORPHAN_PATIENCE_SECS, Instructions, Nimbus
from squall.scheduler.nimbus.instruction import (
    DeleteTopology,
    EndWorker,
    RemoveBoard,
    SendAssignNode,
    StoreAssignment,
    StoreRestart,
    StoreTopology,
)
from squall.scheduler.nimbus.known import NODE_TIMEOUT_SECS
from squall.scheduler.nimbus.submission import SUBMISSION_MAX_BYTES, TASKS_MAX
from squall.scheduler.nimbus.topology_life import ERROR_MAX_CHARS, RESTARTS_KEPT, TopologyLife

COMPONENTS = [
    ComponentSummary("lines", "spout", 2, 2),
    ComponentSummary("count", "bolt", 4, 2),
    ComponentSummary("__acker", "acker", 2, 2),
]


def request(name: str = "x", workers: int = 2, **changes: Any) -> SubmitTopology:
    fields = {"conf": {"workers": workers}, "components": COMPONENTS, "blob": "ab" * 32, "sys_path": ["lib"]}
    return SubmitTopology(name=name, **{**fields, **changes})


def kinds(steps: Instructions) -> list[type]:
    return [type(step) for step in steps if type(step).__name__ != "Note"]


class Cluster:
    """Nimbus with a settable time and short ways to say things to it; `workers`: of the topology x, if there is one."""

    def __init__(
        self, nodes: int = 2, ports: int = 2, topologies: tuple[TopologyLife, ...] = (), workers: int = 0
    ) -> None:
        self.now = 100.0
        self.boards: list[Assignment] = []
        self.room = True
        self.nimbus = Nimbus(self._make_board, lambda *_: None, topologies, 1, self.now)
        for number in range(1, nodes + 1):
            self.register(f"node-{number}", *range(6700, 6700 + ports))
        if workers:
            self.submit(workers=workers)

    def _make_board(self, assignment: Assignment) -> None:
        if not self.room:
            raise ClusterError("no room")
        self.boards.append(assignment)

    def register(self, node: str, *ports: int, holds: dict[int, str] | None = None) -> Instructions:
        return self.nimbus.register_supervisor(RegisterSupervisor(node, list(ports), 1, holds or {}), self.now)

    def submit(self, name: str = "x", workers: int = 2) -> tuple[TopologyRecord, Instructions]:
        return self.nimbus.submit(request(name, workers), self.now, 1.5e9, "0a0b0c0d")

    def kill(self, name: str = "x", wait_secs: float = 0.0) -> Instructions:
        return self.nimbus.kill(KillTopology(name, wait_secs), self.now)[1]

    def rebalance(
        self, workers: int | None = None, executors: dict[str, int] | None = None, wait_secs: float = 30.0
    ) -> tuple[TopologyRecord, Instructions]:
        return self.nimbus.rebalance(RebalanceTopology("x", workers, executors or {}, wait_secs), self.now)

    def slot(self, slot: SlotRef, event: str, incarnation: int = 1, error: str = "", name: str = "x") -> Instructions:
        changed = SlotChanged(
            slot.node, slot.port, self.id(name), incarnation, event, 77, self.now, "killed by SIGKILL", error
        )
        return self.nimbus.slot_changed(changed, self.now)

    @property
    def state(self) -> TopologyState:
        """Of the topology x."""
        return self.nimbus.topology("x")

    def id(self, name: str = "x") -> str:
        return self.nimbus.topology(name).topology.id

    def slots(self, name: str = "x") -> list[SlotRef]:
        assignment = self.nimbus.topology(name).assignment
        return [] if assignment is None else assignment.workers

    def executors(self) -> list[list[ExecutorPlan]]:
        """Of x, by worker."""
        assert self.state.assignment is not None
        return self.state.assignment.executors

    def heartbeat(self, *nodes: str) -> Instructions:
        return [s for node in nodes for s in self.nimbus.heartbeat(SupervisorHeartbeat(node, self.now), self.now)]

    def look(self, *living: SlotRef) -> Instructions:
        """Look for processes in slots that nobody speaks for: only these have one."""
        steps = []
        for life, slots in self.nimbus.unaccounted(self.now):
            steps += self.nimbus.looked(life.record.id, slots, living, self.now)
        return steps

    def free(self) -> list[str]:
        return [str(slot) for slot in self.nimbus.cluster().free_slots]

    def names(self) -> list[str]:
        return [record.name for record in self.nimbus.cluster().topologies]


@pytest.fixture
def cluster() -> Cluster:
    """The topology x has two workers."""
    return Cluster(workers=2)


# ---- submit and placement ----


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"name": "test/aaa"}, "'test/aaa' holds one of / . : \\, which are not allowed in it"),
        ({"name": "__x"}, "topology name '__x' begins with '__'; such names are the system's"),
        ({"name": "a" * 65}, "has 65 characters"),
        ({"conf": {}}, "workers is None; allowed: an integer from 1 to 1024"),
        ({"conf": {"workers": True}}, "workers is True"),
        ({"components": []}, f"has 0 tasks; allowed: 1 to {TASKS_MAX}"),
        ({"components": [ComponentSummary("s", "spout", TASKS_MAX + 1, 1)]}, f"allowed: 1 to {TASKS_MAX}"),
        ({"sys_path": ["x" * SUBMISSION_MAX_BYTES]}, f"bytes; allowed: at most {SUBMISSION_MAX_BYTES}"),
    ],
)
def test_nonsense_is_refused_by_name(changes: dict[str, Any], mistake: str) -> None:
    cluster = Cluster()
    with pytest.raises(TopologyError) as caught:
        cluster.nimbus.submit(request(**changes), cluster.now, 0.0, "0a0b0c0d")
    assert mistake in str(caught.value)
    assert cluster.names() == []


@pytest.mark.parametrize("node", ["", "a/b", "../x", ".hidden", "a" * 65, "a b"])
def test_node_names_that_lead_out_of_the_directory_are_refused(node: str) -> None:
    with pytest.raises(UsageError, match="is not allowed"):
        Cluster(nodes=0).register(node, 6700)


# ---- status ----


def test_unknown_names_are_refused_with_what_runs(cluster: Cluster) -> None:
    for ask in (lambda name: cluster.nimbus.set_status(name, "ACTIVE"), cluster.nimbus.topology, cluster.kill):
        with pytest.raises(UsageError, match="there is no topology named 'y'; running: 'x'"):
            ask("y")


# ---- kill ----


def test_storm_kill(cluster: Cluster) -> None:
    """Storm's testKillStorm: the assignment is kept until the wait is over, the name until the topology is gone."""
    assert cluster.kill(wait_secs=3)[0] == StoreTopology(cluster.state.topology)
    assert cluster.nimbus.next_deadline() == 103.0
    cluster.now = 102.9
    assert kinds(cluster.nimbus.tick(cluster.now)) == []
    assert cluster.nimbus.assign_node("node-1").slots[6700].topology.status == "KILLED"
    cluster.now = 103.0
    assert kinds(cluster.nimbus.tick(cluster.now)) == [SendAssignNode, SendAssignNode]
    assert cluster.nimbus.assign_node("node-1").slots == {}
    first, second = cluster.slots()
    assert kinds(cluster.slot(first, "stopped")) == []
    assert str(first) not in cluster.free()
    topology_id = cluster.id()
    assert cluster.slot(second, "stopped")[:2] == [DeleteTopology(topology_id), RemoveBoard(topology_id)]
    assert cluster.names() == []
    assert len(cluster.free()) == 4


def test_a_topology_is_not_gone_while_a_worker_of_it_lives() -> None:
    """Its supervisor is dead, it sits in a long execute: it is ended after the limit, and waited for until it has."""
    cluster = Cluster(nodes=1, ports=1, workers=1)
    [slot] = cluster.slots()
    cluster.slot(slot, "ready")
    silent_after(cluster)
    cluster.kill()
    for _ in range(3):
        assert cluster.look(slot) == []
    cluster.now += ORPHAN_PATIENCE_SECS
    first, again = cluster.look(slot), cluster.look(slot)
    assignment = cluster.state.assignment
    assert assignment is not None
    assert [first[-1], again] == [EndWorker(assignment, slot), [EndWorker(assignment, slot)]]
    cluster.register("node-1", 6700)
    assert cluster.free() == []
    with pytest.raises(UsageError, match="still being killed"):
        cluster.submit()
    assert kinds(cluster.look()) == [DeleteTopology, RemoveBoard]
    assert cluster.free() == ["node-1:6700"]


@pytest.mark.parametrize("wait_secs", [-1.0, float("nan"), float("inf")])
def test_a_wait_that_is_no_time_is_refused(cluster: Cluster, wait_secs: float) -> None:
    with pytest.raises(UsageError, match="allowed: a number of seconds from 0 up"):
        cluster.kill(wait_secs=wait_secs)


# ---- slots and deaths ----


def test_a_death_is_recorded_and_closed_by_the_replacement(cluster: Cluster) -> None:
    slot = cluster.slots()[0]
    cluster.slot(slot, "started")
    cluster.slot(slot, "ready")
    assert cluster.state.workers == {"node-1:6700": "ready", "node-2:6700": "starting"}
    cluster.now = 110.0
    steps = cluster.slot(slot, "died", error="boom")
    assert kinds(steps) == [StoreRestart]
    assert cluster.state.workers["node-1:6700"] == "died"
    cluster.now = 110.5
    cluster.slot(slot, "started", incarnation=2)
    steps = cluster.slot(slot, "ready", incarnation=2)
    state = cluster.state
    (death,) = state.restarts
    assert (death.slot, death.incarnation, death.reason, death.error) == ("node-1:6700", 1, "killed by SIGKILL", "boom")
    assert (death.at_monotonic_secs, death.ready_after_secs) == (110.0, 0.5)
    assert steps == [StoreRestart(cluster.id(), death)]
    assert state.workers["node-1:6700"] == "ready"
    assert state.restarts_total == 1


def test_deaths_and_their_texts_are_bounded_and_all_counted(cluster: Cluster) -> None:
    slot = cluster.slots()[0]
    for incarnation in range(1, RESTARTS_KEPT + 3):
        cluster.slot(slot, "died", incarnation, error="ValueError: bad\n" + "x" * ERROR_MAX_CHARS + "end")
    state = cluster.state
    kept = [death.incarnation for death in state.restarts]
    assert (state.restarts_total, kept) == (RESTARTS_KEPT + 2, [*range(3, RESTARTS_KEPT + 3)])
    error = state.restarts[0].error
    assert re.fullmatch(r"ValueError: bad\n\[\.\.\.\]\nx+end", error)
    assert len(error) <= ERROR_MAX_CHARS


# ---- drains and moves ----


def test_a_topology_moves_when_drained_and_all_its_slots_are_empty() -> None:
    cluster = Cluster(workers=2)
    first, second = cluster.slots()
    for slot in (first, second):
        cluster.slot(slot, "ready", 3)
    record, steps = cluster.rebalance(workers=3, executors={"count": 3})
    assert kinds(steps) == [StoreTopology, SendAssignNode, SendAssignNode]
    work = cluster.nimbus.assign_node("node-1").slots[6700]
    # The same work but for the status: its worker goes on until it is drained.
    assert (work.topology.status, work.topology.conf, work.assignment.version) == ("REBALANCING", {"workers": 2}, 1)
    assert kinds(cluster.nimbus.drained(record.id, cluster.now)) == [SendAssignNode, SendAssignNode]
    assert cluster.slot(first, "stopped", 3) == []
    steps = cluster.slot(second, "stopped", 3)
    assert kinds(steps)[:3] == [StoreTopology, StoreAssignment, RemoveBoard]
    assert StoreAssignment(cluster.boards[-1]) in steps
    assert (cluster.boards[-1].version, len(cluster.boards[-1].workers)) == (2, 3)
    assert RemoveBoard(record.id, 1) in steps
    state = cluster.state
    assert (state.topology.conf["workers"], state.topology.rebalance) == (3, None)
    counts = [e for worker in cluster.executors() for e in worker if e.component == "count"]
    assert sorted(e.last_task - e.first_task + 1 for e in counts) == [1, 1, 2]
    # What the former workers still say is no news of the new ones.
    cluster.slot(first, "stopped", 3)
    assert set(cluster.state.workers.values()) == {"starting"}
    cluster.slot(first, "ready", 4)
    assert cluster.state.workers[str(first)] == "ready"


def test_storm_rebalance_tasks_are_fixed(cluster: Cluster) -> None:
    for executors in ({"count": 0}, {"count": 5}, {"other": 1}):
        with pytest.raises(UsageError):
            cluster.rebalance(executors=executors)
    with pytest.raises(UsageError, match="nothing is to change"):
        cluster.rebalance()
    assert cluster.state.topology.status == "ACTIVE"


def test_without_room_for_its_board_a_move_waits_and_a_submission_is_refused() -> None:
    cluster = Cluster(nodes=1, ports=2, workers=1)
    before = cluster.state.assignment
    cluster.rebalance(workers=1, wait_secs=0)
    cluster.room = False
    with pytest.raises(ClusterError, match="no room"):
        cluster.submit("y")
    assert kinds(cluster.slot(SlotRef("node-1", 6700), "stopped")) == []
    assert cluster.nimbus.assigned() == [(cluster.state.topology, before)]
    cluster.room = True
    cluster.register("node-2", 6700)
    assert [board.version for board in cluster.boards] == [1, 2]
    assert cluster.submit("y")[0].id == "y-2-0a0b0c0d"


def test_before_the_end_all_spouts_rest_and_no_status_changes(cluster: Cluster) -> None:
    cluster.nimbus.stop_spouts()
    assert cluster.nimbus.assign_node("node-1").slots[6700].topology.status == "INACTIVE"
    assert cluster.state.topology.status == "ACTIVE"
    assert len(cluster.nimbus.draining()) == 1


# ---- slots that come and go ----


def silent_after(cluster: Cluster, *living: str) -> None:
    """Let the other nodes be gone."""
    cluster.now += NODE_TIMEOUT_SECS
    cluster.heartbeat(*living)
    cluster.nimbus.tick(cluster.now)


def test_work_of_a_lost_node_goes_to_another_slot_and_the_rest_stays(cluster: Cluster) -> None:
    first, lost = cluster.slots()
    before = cluster.executors()
    cluster.slot(first, "ready", 3)
    silent_after(cluster, "node-1")
    assert kinds(cluster.nimbus.lost(cluster.id(), cluster.now)) == [StoreTopology, SendAssignNode, SendAssignNode]
    assert cluster.nimbus.missing(cluster.now) == []
    assert cluster.look() == []
    steps = cluster.slot(first, "stopped", 3)
    assert StoreAssignment(cluster.boards[-1]) in steps
    state = cluster.state
    assert (cluster.slots(), cluster.executors()) == ([first, SlotRef("node-1", 6701)], before)
    assert (state.topology.status, state.topology.rebalance) == ("ACTIVE", None)
    assert str(lost) not in state.workers


def test_storm_squeezed_and_spread_back() -> None:
    cluster = Cluster(nodes=3, ports=1, workers=3)
    silent_after(cluster, "node-1", "node-2")
    cluster.nimbus.lost(cluster.id(), cluster.now)
    for slot in cluster.slots()[:2]:
        cluster.slot(slot, "stopped")
    cluster.look()
    assert [str(slot) for slot in cluster.slots()] == ["node-1:6700", "node-2:6700"]
    steps = cluster.heartbeat("node-3")
    assert StoreTopology in kinds(steps)
    for slot in cluster.slots():
        cluster.slot(slot, "stopped", 2)
    assert [str(slot) for slot in cluster.slots()] == ["node-1:6700", "node-2:6700", "node-3:6700"]


# ---- slots that give up ----


def test_work_of_a_slot_that_gave_up_moves_and_not_back() -> None:
    cluster = Cluster(nodes=1, ports=3, workers=2)
    first, second = cluster.slots()
    before = cluster.executors()
    cluster.slot(second, "failed", 31)
    cluster.slot(first, "stopped")
    third = SlotRef("node-1", 6702)
    assert (cluster.slots(), cluster.executors()) == ([first, third], before)
    assert cluster.state.topology.given_up == [second]
    # The slot is free, for others only.
    assert str(second) in cluster.free()
    cluster.rebalance(workers=3, wait_secs=0)
    for slot in cluster.slots():
        cluster.slot(slot, "stopped", 40)
    assert set(cluster.slots()) == {first, third}
    assert cluster.state.topology.status == "ACTIVE"


# ---- nodes that leave ----

LEAVER = "node-1"


def leave(cluster: Cluster, node: str) -> None:
    cluster.nimbus.register_supervisor(RegisterSupervisor(node, [6700, 6701], 1, {}, 30.0), cluster.now)


def test_a_node_that_leaves_hears_which_topologies_find_no_room() -> None:
    cluster = Cluster(nodes=1, ports=2)
    cluster.submit("x", workers=1)
    cluster.submit("y", workers=1)
    cluster.register("node-2", 6700)
    leave(cluster, LEAVER)
    # One of them has room, and which is up to their order.
    assert cluster.nimbus.assign_node(LEAVER).without_room == ["y"]
    assert cluster.nimbus.assign_node("node-2").without_room == []
    for name in ("x", "y"):
        slot = cluster.slots(name)[0]
        cluster.nimbus.drained(cluster.id(name), cluster.now)
        cluster.slot(slot, "stopped", 1, name=name)
    assert cluster.slots("x") == [SlotRef("node-2", 6700)]
    assert cluster.nimbus.topology("y").topology.status == "REBALANCING"
    cluster.register("node-3", 6700)
    assert cluster.slots("y") == [SlotRef("node-3", 6700)]
    # What is not there goes on.
    leave(cluster, "node-3")
    assert cluster.nimbus.topology("x").topology.status == "ACTIVE"
