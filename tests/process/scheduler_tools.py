"""Boots, deadlines and /proc for the tests of the scheduler's processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from squall.scheduler.common.messages import Assignment, SlotAssignment, SlotRef, TopologyRecord, WorkerBoot
from tests.process.waiting import wait_for

ROOT = Path(__file__).parent.parent.parent
DEADLINE_SECS = 100.0
T = TypeVar("T")


def entry(name: str) -> str:
    return f"tests.process.worker_entries:{name}"


def eventually(what: str, ask: Callable[[], T], deadline_secs: float = DEADLINE_SECS) -> T:
    """The first true answer; AssertionError naming what was waited for, after the deadline."""
    return wait_for(what, ask, deadline_secs)


def record(topology_id: str = "words-1", status: str = "ACTIVE") -> TopologyRecord:
    return TopologyRecord(topology_id, "words", status, {}, [], "blob", [], 0.0)


def slot_assignment(port: int, index: int = 0, version: int = 1, status: str = "ACTIVE") -> SlotAssignment:
    slots = [SlotRef("node-1", port)]
    return SlotAssignment(record(status=status), Assignment("words-1", version, slots, [[]]), index)


def boot(log: Path, port: int = 6700, incarnation: int = 1) -> WorkerBoot:
    work = slot_assignment(port)
    return WorkerBoot(str(log.parent), "node-1", port, incarnation, 0, work.topology, work.assignment, str(log))


def is_alive(pid: int) -> bool:
    """False for zombies."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children_of(pid: int) -> dict[int, str]:
    """pid -> state of the children of a process."""
    found = {}
    for entry_name in os.listdir("/proc"):
        if entry_name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                state, parent, *_ = Path(f"/proc/{entry_name}/stat").read_text().rpartition(")")[2].split()
                if int(parent) == pid:
                    found[int(entry_name)] = state
    return found


@contextlib.contextmanager
def importable_tests() -> Iterator[None]:
    """Processes that are started meanwhile can import `tests`."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
