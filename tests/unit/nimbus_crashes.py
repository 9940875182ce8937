"""What Nimbus does, killed at every effect of it.

A row is a base, which is a run directory as an earlier Nimbus has left it, and work that is done to it. `effects` are
all effects of the work; `check` kills at one of them and judges what the next Nimbus finds.

Guarantees of `check`: the next Nimbus starts; it knows what it would know before the work, or after it, and nothing
else; if the work was answered, what it would know after it. The same work, done again, ends where it would have ended
at once, and the same files are there.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from squall.engine.errors import UsageError
from squall.ipc.board import STARTING, Board
from squall.ipc.rundir import RunDir
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import (
    ForgetUnknown,
    GetCluster,
    HealFaults,
    InjectFault,
    KillTopology,
    NamedTopology,
    RebalanceTopology,
    RegisterSupervisor,
    SlotChanged,
    SubmitTopology,
)
from squall.scheduler.faults.in_force import faults_now
from tests.effects import copy_of, dies_at, effects_of
from tests.unit.run_dirs import COMPONENTS, NimbusHere, files_of, nimbus_in

NODE, PORTS = "node-1", [6700, 6701, 6702]
ANSWERED = "os.kill"
_ID = re.compile(r"-[0-9]+-[0-9a-f]{8}")
_VOLATILE = ("nimbus.lock", "faults.jsonl")
"""Files with pids and times, or with each attempt."""

Work = Callable[[NimbusHere], None]


class Row(NamedTuple):
    """One operation."""

    name: str
    base: tuple[Work, ...]
    """What was done before, each by a Nimbus of its own."""
    work: Work
    answered: bool = True
    """Whether it ends with the answer to a request."""


def submit(name: str, *, fresh: bool = False, instead: bool = False) -> Work:
    def work(here: NimbusHere) -> None:
        blob = CodeStore(here.run_dir.code).put(f"blob of {name}{' again' * instead}".encode())
        with contextlib.suppress(UsageError):  # it is there already
            request = SubmitTopology(
                name, {"workers": 1}, COMPONENTS, blob, [], fresh=fresh, env={"A": "b"}, replace=instead
            )
            here.call("submit_topology", request)

    return work


def ask(method: str, request: msgspec.Struct) -> Work:
    def work(here: NimbusHere) -> None:
        with contextlib.suppress(UsageError):  # it is gone already
            here.call(method, request)

    return work


def say(name: str, event: str) -> Work:
    """What the supervisor reports of the worker of a topology."""

    def work(here: NimbusHere) -> None:
        ids = [record.id for record in here.call("get_cluster", GetCluster()).topologies if record.name == name]
        for topology_id in ids:
            for board in here.run_dir.boards.glob(f"{topology_id}*"):
                mark_started(board)
            changed = SlotChanged(NODE, PORTS[0], topology_id, 1, event, 1, 1.0, reason="for the test")
            here.hear(f"supervisor:{NODE}", changed)

    return work


def mark_started(path: Path) -> None:
    board = Board.attach(path)
    board.set_slot(0, 1, STARTING, 0)
    board.close()


def leave_state(name: str) -> Work:
    """What tasks of an earlier topology of this name have kept."""

    def work(here: NimbusHere) -> None:
        for task in (0, 1):
            (here.run_dir.topology_state(name) / f"numbers-{task}").mkdir(parents=True)
            (here.run_dir.topology_state(name) / f"numbers-{task}" / "position").write_text(str(task))

    return work


def set_aside(here: NimbusHere) -> None:
    """As a Nimbus does that dies before the topology that begins anew is stored."""
    aside = here.run_dir.set_aside("two", "two-9-00000000")
    aside.mkdir()
    (here.run_dir.topology_state("two") / "numbers-0").rename(aside / "numbers-0")


def lose_board(here: NimbusHere) -> None:
    for path in here.run_dir.boards.glob("one*"):
        path.unlink()
    (here.run_dir.boards / "one-1-00000000.new").touch()


def unknown_board(here: NimbusHere) -> None:
    path = here.run_dir.boards / "other-7-0a0b0c0d"
    Board.create(path, 1, 1).close()
    mark_started(path)


def nothing(here: NimbusHere) -> None:
    """Starting is work enough."""


def inject(line: str) -> Work:
    return ask("inject", InjectFault(line))


def end_of_replaced(here: NimbusHere) -> None:
    """Its last slot is empty: its successor begins, without the state kept."""
    for record in here.call("get_cluster", GetCluster()).topologies:
        if record.successor is not None:
            here.nimbus.drained(record.id, time.monotonic())
            here.hear(f"supervisor:{NODE}", SlotChanged(NODE, PORTS[0], record.id, 1, "stopped", 1, 1.0))
    here.tick()


RUNNING = (submit("one"), say("one", "started"))
KILLED = (*RUNNING, ask("kill_topology", KillTopology("one")))
REPLACED = (*RUNNING, leave_state("one"), submit("one", fresh=True, instead=True))
MOVING = (*RUNNING, ask("rebalance", RebalanceTopology("one", workers=1)))
GIVEN_UP = (*RUNNING, say("one", "failed"))
ROWS = [
    Row("start in a new directory", (), nothing),
    Row("first submission", (), submit("one")),
    Row("submit", RUNNING, submit("two")),
    Row("submit anew", (*RUNNING, leave_state("two")), submit("two", fresh=True)),
    Row("start after half a submission", (*RUNNING, leave_state("two"), set_aside), nothing),
    Row("start without a board", (*RUNNING, lose_board), nothing),
    Row("deactivate", RUNNING, ask("deactivate", NamedTopology("one"))),
    Row("kill", RUNNING, ask("kill_topology", KillTopology("one"))),
    Row("end of the killed", KILLED, say("one", "stopped"), answered=False),
    Row("replace", RUNNING, submit("one", instead=True)),
    Row("replace again", REPLACED, submit("one", instead=True)),
    Row("kill the replaced", REPLACED, ask("kill_topology", KillTopology("one"))),
    Row("end of the replaced", REPLACED, end_of_replaced, answered=False),
    Row("rebalance", RUNNING, ask("rebalance", RebalanceTopology("one", workers=1))),
    Row("move", MOVING, say("one", "stopped"), answered=False),
    Row("death", RUNNING, say("one", "died"), answered=False),
    Row("slot given up", RUNNING, say("one", "failed"), answered=False),
    Row("reset", GIVEN_UP, ask("reset", NamedTopology("one"))),
    Row("forget unknown", (*RUNNING, unknown_board), ask("forget_unknown", ForgetUnknown())),
    Row("inject", RUNNING, inject("drop 5% of data for 600s")),
    Row("heal", (*RUNNING, inject("drop 5% of data for 600s")), ask("heal", HealFaults())),
]


def do(run_dir: RunDir, work: Work) -> None:
    """As one Nimbus does it, from its start to its end."""
    with nimbus_in(run_dir.path) as here:
        tell_node(here)
        work(here)
        # Stands for the caller, who knows the answer from here on.
        os.kill(os.getpid(), 0)


def tell_node(here: NimbusHere) -> None:
    here.call("register_supervisor", RegisterSupervisor(NODE, PORTS, os.getpid()))


def knows(run_dir: RunDir) -> list[Any]:
    """What a Nimbus that is started now tells of each topology, without what differs from one time to the other."""
    found = []
    with nimbus_in(run_dir.path) as here:
        cluster = here.call("get_cluster", GetCluster())
        for record in cluster.topologies:
            state = here.call("get_topology", NamedTopology(record.name))
            where = state.assignment and (state.assignment.version, state.assignment.workers)
            deaths = [(death.slot, death.incarnation, death.reason) for death in state.restarts]
            move = record.rebalance
            instead = record.successor and (record.successor.topology.blob, record.successor.fresh)
            rest = [move, where, deaths, record.blob, instead]
            found.append([record.name, record.status, bool(record.resets), record.given_up, *rest])
    faults = {fault.kind for fault in faults_now(run_dir, time.monotonic())}
    return [found, cluster.unknown, faults]


def files(run_dir: RunDir) -> dict[str, bytes]:
    """Names of all files, and what is in those of tasks."""
    return {
        _ID.sub("", name): data if name.startswith("state") else b""
        for name, data in files_of(run_dir.path).items()
        if name not in _VOLATILE
    }


def difference(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


class Sweep:
    """One row, in directories of its own."""

    def __init__(self, row: Row, run_dir: RunDir, scratch: Path) -> None:
        self.row = row
        self.run_dir = run_dir
        for work in row.base:
            do(run_dir, work)
        self._base = copy_of(run_dir.path, scratch / "base")
        self._before = knows(run_dir)
        self.reset()
        self.effects = effects_of(self._do)
        self._after = knows(run_dir)
        self._files_after = files(run_dir)

    def reset(self) -> None:
        """The base again."""
        copy_of(self._base, self.run_dir.path)
        os.chmod(self.run_dir.path, 0o700)

    def check(self, nth: int, again: int) -> None:
        """Kill at the n-th effect, and the next Nimbus, which repeats the work, at its effect `again`; then judge."""
        self.reset()
        assert dies_at(nth, self._do), "it had not as many effects this time"
        if again:
            dies_at(again, self._do)
        found = knows(self.run_dir)
        assert found in (self._before, self._after)
        if self.was_answered(nth):
            assert found == self._after
        self._do()
        assert knows(self.run_dir) == self._after
        assert files(self.run_dir) == self._files_after, difference(files(self.run_dir), self._files_after)

    def _do(self) -> None:
        do(self.run_dir, self.row.work)

    def was_answered(self, nth: int) -> bool:
        """Whether the row ends with an answer, which has left before this effect."""
        return self.row.answered and nth > len(self.effects) - self.effects[::-1].index(ANSWERED)
