"""The sweep over effects on a real cluster: a process dies at an effect of an operation, and everything goes on.

A row names the operation, the kind of process, and the effect. Rows share a cluster, on which numbers flow all the
time. `tests/unit/nimbus_crashes.py` and `tests/unit/file_crashes.py` kill one process at all its effects.

Guarantees of `run_row`: what a client was told has happened; what it was not told can be requested again; then every
daemon is back, every slot has one worker, and nobody else lives.
Of `Scene.finish`: every number was acked and had been seen; the slots' history obeys its rules; nothing is left.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

import tests.chaos.crash_topologies as topologies
from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError, UsageError
from squall.ipc.control import NoAnswer
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.topology_code import pack, submit
from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from tests.chaos.dying_python import dying_interpreter
from tests.process.history_check import broken_rules
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

NODE, SLOTS = "node-1", 6
WORKERS = 2
"""Of the numbers."""
DAEMONS = 4
"""Nimbus, supervisor, forking parent, keeper."""
ANSWER_SECS = 1.0
AWAY_SECS = 20.0


SETTLE_SECS = 1.0
"""Until a keeper that has just begun has done what it begins with: nobody waits for that."""
DIE_SECS = 5.0
"""Longest wait for a death: the effect may have been the last one of another time."""


class Row(NamedTuple):
    """Die at the n-th effect while the operation is done."""

    operation: str
    kind: RoleKind
    nth: int

    def __str__(self) -> str:
        return f"{self.operation}: {self.kind} at effect {self.nth}"


class Scene:
    """A cluster whose processes can be made to die, and what is known of it."""

    def __init__(self, cluster: Standing, out: Path) -> None:
        self.cluster = cluster
        self.run_dir = cluster.run_dir
        self.out = out
        self.interpreter, self.book = dying_interpreter(out)
        self.also: tuple[RoleKind, int] | None = None
        """The kind and the effect of a second death, after the next one."""
        self.when_down: dict[RoleKind, int] = {}
        """What was counted when the cluster had ended, by the operation that ends it."""
        self.deaths = 0
        self._names = 0

    def up(self) -> None:
        arguments = ("--nodes", "1", "--slots", str(SLOTS), "--detach")
        genuine, sys.executable = sys.executable, self.interpreter
        try:
            self.cluster.ok("up", *arguments)
        finally:
            sys.executable = genuine

    def begin(self) -> None:
        self.up()
        with self.client() as client:
            self._submit(client, "numbers", topologies.numbers(str(self.out)), WORKERS)
        self.await_whole()

    # ---- clients ----

    def client(self, answer_secs: float = AWAY_SECS) -> NimbusClient:
        """One that waits for a Nimbus that is away."""
        return NimbusClient(self.run_dir, answer_secs, AWAY_SECS)

    def told(self, ask: Callable[[NimbusClient], object]) -> bool:
        """Whether a request was answered; UsageError if it was refused."""
        try:
            with self.client(ANSWER_SECS) as client:
                ask(client)
        except NoAnswer:
            return False
        return True

    def _submit(self, client: NimbusClient, name: str, topology: Topology, workers: int) -> None:
        config = Config(workers=workers, message_timeout_secs=5.0)
        submit(client, self.run_dir, name, config, pack(topology, config, topologies))

    def submit_small(self, name: str) -> Callable[[NimbusClient], object]:
        return lambda client: self._submit(client, name, topologies.small(), 1)

    def new_name(self) -> str:
        self._names += 1
        return f"small{self._names}"

    def ids(self, name: str) -> list[str]:
        with self.client() as client:
            return [record.id for record in client.get_cluster().topologies if record.name == name]

    def ready(self, name: str) -> dict[str, int]:
        """Slots and pids of its workers that are ready."""
        try:
            rows = self.cluster.described(name)["workers"]
        except ClusterError:
            return {}
        return {row["worker"]: row["pid"] for row in rows if row["state"] == "ready"}

    def running(self, name: str, workers: int) -> dict[str, int]:
        """Wait for them."""
        return wait_for(f"{workers} workers of {name}", lambda: len(found := self.ready(name)) == workers and found)

    def await_gone(self, name: str) -> None:
        wait_for(f"the end of {name}", lambda: not self.ids(name))

    # ---- dying ----

    def die(self, row: Row | None, trigger: Callable[[], object]) -> int:
        """Begin the operation, and wait until a process has died of the row's effect; its pid, 0 if none came so
        far."""
        if row is None:
            trigger()
            return 0
        self.book.arm(row.kind, row.nth)
        try:
            trigger()
            deadline = time.monotonic() + DIE_SECS
            while not self.book.died(row.kind) and time.monotonic() < deadline:
                time.sleep(0.01)
            self.deaths += self.book.died(row.kind) != 0
            return self.book.died(row.kind)
        finally:
            self.book.arm(row.kind, 0)
            if self.also is not None:
                self.book.arm(*self.also)

    def nimbus(self) -> int:
        return self.cluster.nimbus().pid

    def supervisor(self) -> int:
        return self.cluster.supervisor(NODE).pid

    def worker(self) -> int:
        """Of the numbers, and forked by the present forking parent: that of an adopted one has died."""
        pids = self.running("numbers", WORKERS).values()
        below = psutil.Process(self.supervisor()).children()
        children = {child.pid for each in below for child in each.children()} & set(pids)
        if children:
            return min(children)
        old = min(pids)
        os.kill(old, signal.SIGKILL)
        wait_for("its replacement", lambda: old not in self.ready("numbers").values())
        return self.worker()

    # ---- judging ----

    def acked_bytes(self) -> int:
        path = self.out / "acked"
        return path.stat().st_size if path.exists() else 0

    def await_whole(self) -> None:
        """Every daemon is back, one worker is in each slot of the numbers, nobody else lives, numbers flow."""
        if not any(role_of(each) == Role(RoleKind.KEEPER) for each in processes_of(self.run_dir)):
            # It was killed: nobody but the next `up` brings back what has died since.
            self.up()
        wait_for("the node", self._registered)
        self.running("numbers", WORKERS)
        wait_for("as many processes as there should be", lambda: len(processes_of(self.run_dir)) == DAEMONS + WORKERS)
        wait_for("as many sockets", lambda: len(self.sockets()) == WORKERS)
        before = self.acked_bytes()
        wait_for("more acks", lambda: self.acked_bytes() > before)

    def _registered(self) -> bool:
        with self.client() as client:
            state = client.get_cluster()
        return list(state.supervisors) == [NODE] and not state.gone and not state.unknown

    def sockets(self) -> list[Path]:
        return [path for port in range(6700, 6700 + SLOTS) for path in self.run_dir.worker_sockets(NODE, port)]

    def finish(self) -> None:
        """The exact account, and an orderly end."""
        limit = len(set((self.out / "acked").read_text().split())) + 50
        temporary = self.out / "limit.new"
        temporary.write_text(str(limit))
        temporary.rename(self.out / topologies.LIMIT)
        wait_for("the last number", lambda: self.cluster.described("numbers")["drained"])
        assert self.cluster.described("numbers")["pending"] == 0
        acked, seen = ({*map(int, (self.out / name).read_text().split())} for name in ("acked", "seen"))
        assert acked >= set(range(limit)), f"not acked: {sorted(set(range(limit)) - acked)[:10]}"
        assert acked <= seen, f"acked, but not seen: {sorted(acked - seen)[:10]}"
        assert broken_rules(self.run_dir) == []
        with self.client() as client:
            client.kill_topology("numbers")
        self.await_gone("numbers")
        assert sorted(path.name for path in self.run_dir.boards.iterdir()) == []
        self.cluster.ok("down", "-w", "0")
        assert processes_of(self.run_dir) == []


# ---- operations ----


def submit_it(scene: Scene, row: Row | None) -> None:
    name, answers = scene.new_name(), [False]
    scene.die(row, lambda: answers.append(scene.told(scene.submit_small(name))))
    if answers[-1]:
        assert scene.ids(name), "it was accepted, and forgotten"
    else:
        ask_again(scene, scene.submit_small(name))
    assert len(scene.ids(name)) == 1
    scene.running(name, 1)
    ask_again(scene, lambda client: client.kill_topology(name))
    scene.await_gone(name)


def ask_again(scene: Scene, ask: Callable[[NimbusClient], object]) -> None:
    """Until it is answered; a refusal because it has been done is an answer."""
    try:
        wait_for("an answer", lambda: scene.told(ask))
    except UsageError:
        return


def kill_it(scene: Scene, row: Row | None) -> None:
    name, answers = scene.new_name(), [False]
    ask_again(scene, scene.submit_small(name))
    scene.running(name, 1)
    scene.die(row, lambda: answers.append(scene.told(lambda client: client.kill_topology(name))))
    if not answers[-1]:
        ask_again(scene, lambda client: client.kill_topology(name))
    scene.await_gone(name)


def rebalance_it(scene: Scene, row: Row | None) -> None:
    name, answers = scene.new_name(), [False]

    def move(client: NimbusClient) -> object:
        return client.rebalance(name, 2, {}, 0.0)

    ask_again(scene, scene.submit_small(name))
    scene.running(name, 1)
    scene.die(row, lambda: answers.append(scene.told(move)))
    if not answers[-1]:
        ask_again(scene, move)
    scene.running(name, 2)
    ask_again(scene, lambda client: client.kill_topology(name))
    scene.await_gone(name)


def kill_a(victim: Callable[[Scene], int]) -> Callable[[Scene, Row | None], None]:
    def operation(scene: Scene, row: Row | None) -> None:
        pid = victim(scene)
        assert scene.die(row, lambda: os.kill(pid, signal.SIGKILL)) != pid

    return operation


def kill_all_workers(scene: Scene, row: Row | None) -> None:
    """Their spout keeps a journal from then on."""
    pids = scene.running("numbers", WORKERS).values()
    scene.die(row, lambda: [os.kill(pid, signal.SIGKILL) for pid in pids])


def raise_an_exception(scene: Scene, row: Row | None) -> None:
    scene.die(row, (scene.out / topologies.RAISE).touch)


def end_and_begin(scene: Scene, row: Row | None) -> None:
    """What ran goes on when the cluster is started again."""
    scene.die(row, lambda: scene.cluster.ok("down", "-w", "0"))
    scene.when_down = scene.book.counted()
    assert processes_of(scene.run_dir) == []
    assert scene.sockets() == []
    scene.up()


OPERATIONS: dict[str, Callable[[Scene, Row | None], None]] = {
    "submit": submit_it,
    "kill": kill_it,
    "rebalance": rebalance_it,
    "worker": kill_a(Scene.worker),
    "workers": kill_all_workers,
    "exception": raise_an_exception,
    "supervisor": kill_a(Scene.supervisor),
    "nimbus": kill_a(Scene.nimbus),
    "down": end_and_begin,
}

SHOWN_BY = {
    "submit": (RoleKind.NIMBUS, RoleKind.SUPERVISOR, RoleKind.FORKING_PARENT),
    "kill": (RoleKind.NIMBUS, RoleKind.SUPERVISOR),
    "rebalance": (RoleKind.NIMBUS, RoleKind.SUPERVISOR, RoleKind.FORKING_PARENT),
    "worker": (RoleKind.NIMBUS, RoleKind.SUPERVISOR, RoleKind.FORKING_PARENT, RoleKind.WORKER),
    "workers": (RoleKind.WORKER,),
    "exception": (RoleKind.WORKER, RoleKind.SUPERVISOR),
    "supervisor": (RoleKind.SUPERVISOR, RoleKind.KEEPER),
    "nimbus": (RoleKind.NIMBUS, RoleKind.KEEPER),
    "down": (RoleKind.NIMBUS, RoleKind.SUPERVISOR, RoleKind.KEEPER),
}
"""Operation -> the kinds of processes that have much to do in it."""


def effects_of(scene: Scene, operation: str) -> dict[RoleKind, int]:
    """Do the operation, with nobody dying of it; how many effects each kind of process had."""
    before = scene.book.counted()
    scene.when_down.clear()
    OPERATIONS[operation](scene, None)
    scene.await_whole()
    time.sleep(SETTLE_SECS)
    after = scene.when_down or scene.book.counted()
    return {kind: after[kind] - before[kind] for kind in SHOWN_BY[operation]}


def run_row(scene: Scene, row: Row, also: tuple[RoleKind, int] | None = None) -> None:
    """Do the operation, have the process die, and wait until everything is as it was. `also`: who dies after that."""
    scene.also = also
    try:
        OPERATIONS[row.operation](scene, row)
        scene.await_whole()
    finally:
        if also is not None:
            scene.deaths += scene.book.died(also[0]) != 0
            scene.book.arm(also[0], 0)
    scene.await_whole()
