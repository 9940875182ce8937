"""Who dies, what happens: one row of the table each, on a real cluster under load, with an exact account at the end.

Guarantees of `run_row`: the account of `Scene.finish` is exact; each fault was done while numbers were under way; the
cluster is whole again. What a row promises beyond that (same pids, what the report says) it checks itself. So a cluster
may live through any number of rows. `lose_node` is the last that it lives through.

Relies on: the keeper that `squall up --detach` leaves behind.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from squall.scheduler.client.statuses import WorkerDeath
from squall.scheduler.common.messages import SlotChanged
from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from squall.scheduler.records.worker_ledger import BEGIN, WorkerLedger, read_history
from tests.chaos.scene import TOPOLOGY, Scene
from tests.process.cli import start
from tests.process.parts import notes
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for

NODES = ("node-1", "node-2")
SLOTS = 2
SETTINGS = ("--set", "worker_timeout_secs=4", "--set", "message_timeout_secs=10", "--set", "batch_tuples=16")


def start_cluster(cluster: Standing) -> None:
    """As the rows want it."""
    cluster.up(nodes=len(NODES), slots=SLOTS)


class TwoNodes(Scene):
    """A whole cluster of two nodes, that nothing runs on; and the numbers of one row, on a worker of each node."""

    def __init__(self, cluster: Standing, out: Path, rng: random.Random) -> None:
        super().__init__(cluster, out)
        self.rng = rng
        self.topology_id = ""
        self.steps_before = 0
        """Of the history: what earlier rows left there."""

    def begin(self) -> None:
        self.steps_before = len(self.history())
        self.submit_numbers(*SETTINGS)
        self.topology_id = self.cluster.described("numbers").id
        wait_for("the first acks", lambda: len(self.acked()) > 20)

    def some_worker(self) -> int:
        """Of a worker that is ready; another fault may be under way."""
        found = wait_for("a worker", self.workers)
        return found[self.rng.choice(sorted(found))]

    def some_node(self) -> str:
        return self.rng.choice(NODES)

    def forking_parent(self) -> psutil.Process:
        """Of some node."""
        node = self.some_node()
        supervisor = wait_for("a supervisor", lambda: self.supervisor(node))
        role = Role(RoleKind.FORKING_PARENT, node)
        return wait_for("a forking parent", lambda: next(
            (child for child in supervisor.children() if role_of(child) == role), None))

    def supervisor(self, node: str) -> psutil.Process | None:
        return next(
            (each for each in processes_of(self.cluster.run_dir) if role_of(each) == Role(RoleKind.SUPERVISOR, node)),
            None,
        )

    def history(self) -> list[SlotChanged]:
        return read_history(self.cluster.run_dir.logs)

    def steps(self) -> list[SlotChanged]:
        """The history since the row began."""
        return self.history()[self.steps_before :]

    def is_whole(self) -> bool:
        """Return True if every daemon is at work again and every slot is free."""
        begun = {step.node: step.pid for step in self.history() if step.event == BEGIN}
        supervisors = [self.supervisor(node) for node in NODES]
        if [begun[node] for node in NODES] != [one.pid if one is not None else 0 for one in supervisors]:
            return False
        found = self.cluster.json("status")
        return not found["topologies"] and not found["gone"] and len(found["free_slots"]) == len(NODES) * SLOTS


def kill_hard(pid: int) -> None:
    """SIGKILL; two faults at once may have the same victim."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def in_executor(scene: TwoNodes, name: str) -> None:
    """Have an executor do what this file asks for; it removes the file then."""
    (scene.out / name).touch()
    wait_for(f"an executor to {name}", lambda: not (scene.out / name).exists())


def kill_worker(scene: TwoNodes) -> None:
    kill_hard(scene.some_worker())


def kill_forking_parent(scene: TwoNodes) -> None:
    kill_hard(scene.forking_parent().pid)


def kill_supervisor(scene: TwoNodes) -> None:
    node = scene.some_node()
    kill_hard(wait_for("the supervisor", lambda: scene.supervisor(node)).pid)


def kill_nimbus(scene: TwoNodes) -> None:
    kill_hard(scene.cluster.nimbus().pid)


def kill_node(scene: TwoNodes, node: str = "") -> None:
    """Supervisor, forking parent and worker of a node; the keeper brings the node back."""
    node = node or scene.some_node()
    supervisor = wait_for("the supervisor", lambda: scene.supervisor(node))
    below = [process for child in supervisor.children() for process in (child, *child.children(recursive=True))]
    victims = [supervisor.pid, *(process.pid for process in below)]
    victims += [pid for slot, pid in scene.workers().items() if slot.startswith(node)]
    for pid in victims:
        kill_hard(pid)


def stop_worker(scene: TwoNodes) -> None:
    try:
        os.kill(scene.some_worker(), signal.SIGSTOP)
    except ProcessLookupError:
        return


FAULTS: dict[str, Callable[[TwoNodes], None]] = {
    "executor": lambda scene: in_executor(scene, "raise"),
    "worker": kill_worker,
    "forking parent": kill_forking_parent,
    "supervisor": kill_supervisor,
    "nimbus": kill_nimbus,
    "node": kill_node,
    "stopped": stop_worker,
    "hung": lambda scene: in_executor(scene, "hang"),
}
"""What the keeper, the supervisors and Nimbus make good, whatever else happens at the same time."""
REASONS = {
    "executor": "exited with code 1", "worker": "killed by SIGKILL", "forking parent": "killed by SIGKILL",
    "stopped": "no progress for", "hung": "no progress for",
}
"""What the report says of the death in a row."""
RUN_ON = ("forking parent", "supervisor", "nimbus")
"""Rows in which no worker dies."""


def lose_node(cluster: Standing, out: Path, seed: int) -> None:
    """A node dies for good: its work goes to the other one. Nobody brings the cluster's daemons back any more."""
    scene = TwoNodes(cluster, out, random.Random(seed))
    scene.begin()
    scene.running()
    cluster.lose_keeper()
    lost = scene.some_node()
    kill_node(scene, lost)
    limit = scene.end()
    # Its supervisor would have put its workers' end on record; nobody but this test saw it.
    end_of_watch(scene.cluster, lost)
    wait_for("the move", lambda: len(found := scene.workers()) == 2 and not any(lost in slot for slot in found))
    scene.finish(limit)


def end_of_watch(cluster: Standing, node: str) -> None:
    WorkerLedger(cluster.run_dir, node).note_step(SlotChanged(node, 0, "", 0, BEGIN, 0, time.monotonic()))


def run_row(cluster: Standing, out: Path, names: list[str], seed: int) -> None:
    """Do these faults, at once, at a seeded moment of a run. The cluster is whole before and after."""
    scene = TwoNodes(cluster, out, random.Random(seed))
    scene.begin()
    before = scene.running()
    moment = scene.rng.randrange(20, 500)
    wait_for("the moment", lambda: len(scene.acked()) >= moment)
    for name in names:
        FAULTS[name](scene)
    limit = scene.end()
    if len(names) == 1:
        check_row(scene, names[0], before)
    scene.finish(limit)
    wait_for("the cluster to be whole again", scene.is_whole)


def is_adopted(scene: TwoNodes) -> bool:
    """Return True if a supervisor that has come since the row began has a worker of the row that is ready."""
    steps = scene.steps()
    for number, begin in enumerate(steps):
        if begin.event == BEGIN:
            later = [step for step in steps[number:] if step.node == begin.node and step.event == "ready"]
            return any(step.topology_id == scene.topology_id for step in later)
    return False


def check_row(scene: TwoNodes, name: str, before: dict[str, int]) -> None:
    """What a row promises beside the account."""
    topology_id = scene.topology_id
    if name == "nimbus":
        # A submission waits for the next one, and runs.
        scene.cluster.ok("submit", ENDLESS, "--name", "late")
        wait_for("it to run", lambda: scene.cluster.described("late").acked > 0)
        scene.cluster.ok("kill", "late", "-w", "0")
    if name == "supervisor":
        wait_for("the next supervisor to know its worker", lambda: is_adopted(scene))
    if name in RUN_ON:
        scene.await_drained()
        assert scene.workers() == before
        assert scene.cluster.described("numbers").restarts_total == 0
        started = {step.pid for step in scene.steps() if step.event == "started" and step.topology_id == topology_id}
        assert started == set(before.values())
    if name == "forking parent":
        # The supervisor hears why workers have died whose own parent has gone.
        for pid in before.values():
            kill_hard(pid)
    if name in REASONS:
        death = wait_for("the death", lambda: death_of(scene, REASONS[name]))
        if name == "hung":
            assert "in execute" in death.error or "hung at" in death.error


def death_of(scene: TwoNodes, reason: str) -> WorkerDeath | None:
    deaths = scene.cluster.described("numbers").deaths
    return next((death for death in deaths if death.reason.startswith(reason)), None)


def lose_launcher(out: Path, rng: random.Random) -> None:
    """The launcher of `squall run` dies: nothing is left behind, and what was acked had been seen."""
    settings = ("--workers", "2", "--interval", "0.1", "--", str(out), "0.001")
    with start("run", TOPOLOGY, *settings) as process:
        try:
            moment = rng.randrange(1, 500)
            # A whole cluster starts first.
            wait_for("the moment", lambda: len(notes(out, "acked")) >= moment)
            everyone = psutil.Process(process.pid).children(recursive=True)
            run_dir = Path(everyone[0].environ()["SQUALL_RUN_DIR"])
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        finally:
            process.kill()
    assert len(everyone) >= 5  # Nimbus, supervisor, forking parent, two workers
    wait_for("every process to end", lambda: not any(one.is_running() for one in everyone))
    wait_for("the run directory to go", lambda: not run_dir.exists())
    assert set(notes(out, "acked")) <= {n for _, n in notes(out, "seen")}
