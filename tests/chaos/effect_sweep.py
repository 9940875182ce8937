"""The sweep over effects on a real cluster: a process dies at an effect of an operation, and everything goes on.

A row names the operation, the kind of process, and the effect. Rows share a cluster, on which numbers flow all the
time. `tests/unit/nimbus_crashes.py` and `tests/unit/file_crashes.py` kill one process at all its effects.

Guarantees of `run_row`: what a client was told has happened; what it was not told can be requested again; then every
daemon is back, every slot has one worker, and nobody else lives.
Of `Sweep.finish`: the account of the numbers is exact, and nothing is left.
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

from squall.engine.api.config import Config
from squall.engine.errors import UsageError
from squall.ipc.control import NoAnswer
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.topology_code import pack, submit
from squall.scheduler.common.role import Role, RoleKind, processes_of, role_of
from tests.chaos.dying_python import dying_interpreter
from tests.chaos.scene import WORKERS, Scene
from tests.process.standing_tools import Standing
from tests.process.standing_topologies import endless
from tests.process.waiting import wait_for

NODE, SLOTS = "node-1", 6
DAEMONS = 4
"""Nimbus, supervisor, forking parent, keeper."""
ANSWER_SECS = 1.0
AWAY_SECS = 60.0
SETTLE_SECS = 1.0
"""Until a keeper that has just begun has done what it begins with: nobody waits for that."""
DIE_SECS = 5.0
"""Longest wait for a death: the effect may have been the last one of another time."""

Request = Callable[[NimbusClient], object]


class Row(NamedTuple):
    """Die at the n-th effect while the operation is done."""

    operation: str
    kind: RoleKind
    nth: int

    def __str__(self) -> str:
        return f"{self.operation}: {self.kind} at effect {self.nth}"


class Sweep(Scene):
    """A cluster whose processes can be made to die, and what is known of it."""

    def __init__(self, cluster: Standing, out: Path) -> None:
        super().__init__(cluster, out)
        self.interpreter, self.book = dying_interpreter(out)
        self.also: tuple[RoleKind, int] | None = None
        """The kind and the effect of a second death, after the next one."""
        self.when_down: dict[RoleKind, int] = {}
        """What was counted when the cluster had ended, by the operation that ends it."""
        self.deaths = 0
        self._names = 0

    def up(self) -> None:
        genuine, sys.executable = sys.executable, self.interpreter
        try:
            self.cluster.up(slots=SLOTS)
        finally:
            sys.executable = genuine

    def begin(self) -> None:
        self.up()
        self.submit_numbers("--set", "message_timeout_secs=5")
        self.await_whole()

    # ---- clients ----

    def client(self, answer_secs: float = AWAY_SECS) -> NimbusClient:
        """One that waits for a Nimbus that is away."""
        return NimbusClient(self.run_dir, answer_secs, AWAY_SECS)

    def told(self, ask: Request) -> bool:
        """Return True if a request was answered; UsageError if it was refused."""
        try:
            with self.client(ANSWER_SECS) as client:
                ask(client)
        except NoAnswer:
            return False
        return True

    def ask_until_told(self, ask: Request) -> None:
        """A refusal because it has been done is an answer."""
        try:
            wait_for("an answer", lambda: self.told(ask))
        except UsageError:
            return

    def new_name(self) -> str:
        self._names += 1
        return f"small{self._names}"

    def ids(self, name: str) -> list[str]:
        with self.client() as client:
            return [record.id for record in client.get_cluster().topologies if record.name == name]

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
        pids = self.running().values()
        below = psutil.Process(self.supervisor()).children()
        children = {child.pid for each in below for child in each.children()} & set(pids)
        if children:
            return min(children)
        old = min(pids)
        os.kill(old, signal.SIGKILL)
        wait_for("its replacement", lambda: old not in self.workers().values())
        return self.worker()

    # ---- judging ----

    def _processes(self) -> int:
        """Spares, which come later, are not counted."""
        roles = map(role_of, processes_of(self.run_dir))
        return sum(role is None or role.kind is not RoleKind.SPARE for role in roles)

    def await_whole(self) -> None:
        """Every daemon is back, one worker is in each slot of the numbers, nobody else lives, numbers flow."""
        if not any(role_of(each) == Role(RoleKind.KEEPER) for each in processes_of(self.run_dir)):
            # It was killed: nobody but the next `up` brings back what has died since. A death in it would fail it.
            if self.also is not None:
                self.book.arm(self.also[0], 0)
            self.up()
        wait_for("the node", self._registered)
        self.running()
        wait_for("as many processes as there should be", lambda: self._processes() == DAEMONS + WORKERS)
        wait_for("as many sockets", lambda: len(self.sockets()) == WORKERS)
        before = len(self.acked())
        wait_for("more acks", lambda: len(self.acked()) > before)

    def _registered(self) -> bool:
        with self.client() as client:
            state = client.get_cluster()
        return list(state.supervisors) == [NODE] and not state.gone and not state.unknown

    def sockets(self) -> list[Path]:
        return [path for port in range(6700, 6700 + SLOTS) for path in self.run_dir.worker_sockets(NODE, port)]

    def finish(self, limit: int) -> None:
        super().finish(limit)
        assert sorted(path.name for path in self.run_dir.boards.iterdir()) == []
        self.cluster.ok("down", "-w", "0")
        assert processes_of(self.run_dir) == []


# ---- operations ----


def life_of_a_small_one(sweep: Sweep, row: Row | None) -> None:
    """A small topology is submitted, moved and killed."""
    sweep.die(row, lambda: live(sweep))


def live(sweep: Sweep) -> None:
    name, config = sweep.new_name(), Config(workers=1)
    steps: tuple[tuple[Request, int], ...] = (
        (lambda client: submit(client, name, config, pack(endless(), config)), 1),
        (lambda client: client.rebalance(name, 2, {}, 0.0), 2),
        (lambda client: client.kill_topology(name), 0),
    )
    for ask, workers in steps:
        if not sweep.told(ask):
            sweep.ask_until_told(ask)
        if workers:
            assert len(sweep.ids(name)) == 1, "it was accepted, and forgotten"
            sweep.running(name, workers)
    wait_for(f"the end of {name}", lambda: not sweep.ids(name))


def kill_a(victim: Callable[[Sweep], int]) -> Callable[[Sweep, Row | None], None]:
    def operation(sweep: Sweep, row: Row | None) -> None:
        pid = victim(sweep)
        assert sweep.die(row, lambda: os.kill(pid, signal.SIGKILL)) != pid

    return operation


def kill_all_workers(sweep: Sweep, row: Row | None) -> None:
    """Their spout keeps a journal from then on."""
    pids = sweep.running().values()
    sweep.die(row, lambda: [os.kill(pid, signal.SIGKILL) for pid in pids])


def raise_an_exception(sweep: Sweep, row: Row | None) -> None:
    sweep.die(row, (sweep.out / "raise").touch)


def end_and_begin(sweep: Sweep, row: Row | None) -> None:
    """What ran goes on when the cluster is started again."""
    sweep.die(row, lambda: sweep.cluster.ok("down", "-w", "0"))
    sweep.when_down = sweep.book.counted()
    assert processes_of(sweep.run_dir) == []
    assert sweep.sockets() == []
    sweep.up()


OPERATIONS: dict[str, Callable[[Sweep, Row | None], None]] = {
    "life": life_of_a_small_one,
    "worker": kill_a(Sweep.worker),
    "workers": kill_all_workers,
    "exception": raise_an_exception,
    "supervisor": kill_a(Sweep.supervisor),
    "nimbus": kill_a(Sweep.nimbus),
    "down": end_and_begin,
}

SHOWN_BY = {
    "life": (RoleKind.NIMBUS, RoleKind.SUPERVISOR, RoleKind.FORKING_PARENT),
    "worker": (RoleKind.NIMBUS, RoleKind.SUPERVISOR, RoleKind.FORKING_PARENT, RoleKind.WORKER),
    "workers": (RoleKind.WORKER,),
    "exception": (RoleKind.WORKER, RoleKind.SUPERVISOR),
    "supervisor": (RoleKind.SUPERVISOR, RoleKind.KEEPER),
    "nimbus": (RoleKind.NIMBUS, RoleKind.KEEPER),
    "down": (RoleKind.NIMBUS, RoleKind.SUPERVISOR, RoleKind.KEEPER),
}
"""Operation -> the kinds of processes that have much to do in it."""


def effects_of(sweep: Sweep, operation: str) -> dict[RoleKind, int]:
    """Do the operation, with nobody dying of it; how many effects each kind of process had."""
    before = sweep.book.counted()
    sweep.when_down.clear()
    OPERATIONS[operation](sweep, None)
    sweep.await_whole()
    time.sleep(SETTLE_SECS)
    after = sweep.when_down or sweep.book.counted()
    return {kind: after[kind] - before[kind] for kind in SHOWN_BY[operation]}


def run_row(sweep: Sweep, row: Row, also: tuple[RoleKind, int] | None = None) -> None:
    """Do the operation, have the process die, and wait until everything is as it was. `also`: who dies after that."""
    sweep.also = also
    try:
        OPERATIONS[row.operation](sweep, row)
        sweep.await_whole()
    finally:
        if also is not None:
            sweep.deaths += sweep.book.died(also[0]) != 0
            sweep.book.arm(also[0], 0)
    sweep.await_whole()
