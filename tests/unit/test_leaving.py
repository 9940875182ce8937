"""A node that leaves: what Nimbus decides about its work, and how long its supervisor waits for that."""

from __future__ import annotations

from squall.scheduler.common.messages import RegisterSupervisor, SlotRef
from squall.scheduler.nimbus.decisions import Instructions
from squall.scheduler.nimbus.instruction import CreateBoard, SendAssignNode, StoreTopology
from squall.scheduler.supervisor.nimbus_link import NIMBUS_PATIENCE_SECS, Departure
from tests.unit.test_nimbus_decisions import Cluster, kinds

LEAVER = "node-1"


def leave(cluster: Cluster, within_secs: float = 30.0, node: str = LEAVER) -> Instructions:
    request = RegisterSupervisor(node, [6700, 6701], 1, {}, within_secs)
    return cluster.nimbus.register_supervisor(request, cluster.now)


def test_its_topologies_are_drained_and_go_to_other_nodes() -> None:
    cluster = Cluster(nodes=3, ports=2)
    cluster.submit(workers=2)
    there, elsewhere = cluster.slots()
    assert kinds(leave(cluster)) == [StoreTopology, SendAssignNode]
    answer = cluster.nimbus.assign_node(LEAVER)
    # Its worker goes on until it is drained.
    assert {port: work.topology.status for port, work in answer.slots.items()} == {6700: "REBALANCING"}
    assert answer.without_room == []
    cluster.nimbus.drained(cluster.id(), cluster.now)
    assert cluster.nimbus.assign_node(LEAVER).slots == {}
    cluster.slot(there, "stopped", 1)
    assert CreateBoard in kinds(cluster.slot(elsewhere, "stopped", 1))
    assert cluster.state.topology.status == "ACTIVE"
    # What stood elsewhere stays.
    assert elsewhere in cluster.slots()
    assert LEAVER not in {slot.node for slot in cluster.slots()}


def test_it_gets_no_more_work() -> None:
    cluster = Cluster(nodes=1)
    leave(cluster)
    cluster.submit()
    assert cluster.slots() == []
    assert cluster.free() == []
    assert cluster.nimbus.cluster().leaving == [LEAVER]
    assert cluster.heartbeat(LEAVER) == []
    cluster.register("node-2", 6700)
    assert {slot.node for slot in cluster.slots()} == {"node-2"}


def test_it_hears_which_topologies_find_no_room() -> None:
    cluster = Cluster(nodes=1, ports=2)
    cluster.submit("x", workers=1)
    cluster.submit("y", workers=1)
    cluster.register("node-2", 6700)
    leave(cluster)
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


# ---- the supervisor ----


def test_it_waits_until_nimbus_knows_and_the_slots_are_empty_and_not_for_ever() -> None:
    departure = Departure(100.0, 30.0)
    # Nothing to do: but Nimbus must hear of it first, or it would give the node work.
    assert not departure.is_over(100.0, idle=True)
    # Without Nimbus it does not wait for the drain.
    assert departure.next_deadline == 100.0 + NIMBUS_PATIENCE_SECS
    assert departure.is_over(departure.next_deadline, idle=False)
    departure.answered()
    assert departure.is_over(120.0, idle=True)
    # At the limit Nimbus stops the workers, which takes a moment.
    assert not departure.is_over(130.0, idle=False)
    assert departure.is_over(departure.next_deadline, idle=False)
    assert departure.next_deadline <= 130.0 + NIMBUS_PATIENCE_SECS
