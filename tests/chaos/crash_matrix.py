"""What user code can do to its worker, wherever it is called, and what becomes of it: a table, and what runs a cell.

A cell is one topology of 40 messages, of which one component misbehaves once: in one of its methods, in one way. All
messages are acked in the end, whatever it is; the table says how many workers die of it, what the report says of the
death, and what the spout is told of the message.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    LocalCluster,
    RunReport,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.scheduler.client.job import Job
from squall.scheduler.common import process
from tests.process import parts
from tests.process.parts import note, notes
from tests.process.waiting import wait_for

COUNT, VICTIM = 40, 17
EXIT_CODE = 7
HANG_SECS = 5.0
"""A worker that makes no progress for so long is replaced; no other stands still for so long, on any machine."""
SPOUT_PLACES = ("open", "next_tuple", "ack", "close")
BOLT_PLACES = ("prepare", "execute", "cleanup")
POLICIES = ("crash", "fail")


def _raise() -> None:
    raise ValueError("of the matrix")


def _raise_memory_error() -> None:
    raise MemoryError("of the matrix")


def _hang() -> None:
    time.sleep(3600)


def _sys_exit() -> None:
    raise SystemExit(EXIT_CODE)


def _os_exit() -> None:
    os._exit(EXIT_CODE)


def _segfault() -> None:
    ctypes.string_at(0)


WAYS: dict[str, Callable[[], None]] = {
    "raise": _raise, "MemoryError": _raise_memory_error, "sys.exit": _sys_exit, "hang": _hang, "os._exit": _os_exit,
    "segfault": _segfault,
}
"""In every place. `FORKS`, `UNPICKLABLE` and `DECODE` have rows of their own."""
FORKS, UNPICKLABLE, DECODE = "forks", "unpicklable", "dies when decoded"
_RAISED = {
    "raise": "ValueError: of the matrix", "MemoryError": "MemoryError: of the matrix", "sys.exit": "SystemExit: 7",
}
_DEATHS = {"hang": "no progress for", "os._exit": f"exited with code {EXIT_CODE}", "segfault": "killed by SIGSEGV"}


@dataclass(frozen=True)
class Cell:
    """One misdeed, and what is expected of it."""

    component: str
    """ "spout" or "bolt"."""
    place: str
    way: str
    policy: str

    def __str__(self) -> str:
        return f"{self.component}.{self.place} {self.way} on_error={self.policy}"

    @property
    def ends_the_run(self) -> bool:
        """It happens when everything is done."""
        return self.place in ("close", "cleanup")

    @property
    def waits_to_be_ready(self) -> bool:
        """It is found out by a limit of half a minute."""
        return self.way == "hang" and self.place in ("open", "prepare")

    @property
    def kills(self) -> bool:
        """Whether a worker dies of it."""
        if self.way == FORKS or self.ends_the_run:
            return False
        raises = self.way in _RAISED or self.way == UNPICKLABLE
        # A policy is for messages: what `execute` raises can be the failure of one.
        return not raises or self.policy == "crash" or self.place != "execute"

    @property
    def death(self) -> str:
        """What the report says of the death."""
        if self.way == DECODE:
            return f"exited with code {EXIT_CODE}"
        if self.waits_to_be_ready:
            return "not ready within 30 s"
        return _DEATHS.get(self.way, "exited with code 1")

    @property
    def error(self) -> str:
        """What the worker said before it died, in part."""
        return _RAISED.get(self.way, "crash_matrix.py" if self.way == "segfault" else "")


class Misdeed:
    """Done once in the life of a topology, in one place."""

    def __init__(self, directory: str, cell: Cell, component: str) -> None:
        self._directory = directory
        self._cell = cell if cell.component == component else None
        """The cell, in the component that misbehaves."""

    def at(self, place: str, value: Any = None) -> Any:
        """`value`, or what is emitted in its place; or whatever happens there."""
        cell = self._cell
        if cell is None or cell.place != place or not self._is_first():
            return value
        note(self._directory, "struck", os.getpid())
        if cell.way == UNPICKLABLE:
            return lambda: value
        if cell.way == DECODE:
            return DiesOnce(self._directory, value)
        if cell.way == FORKS:
            self._fork()
            return value
        WAYS[cell.way]()
        raise AssertionError(f"{cell} was survived")

    def _is_first(self) -> bool:
        try:
            os.close(os.open(Path(self._directory) / "first", os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def _fork(self) -> None:
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                time.sleep(3600)
                os._exit(0)
            note(self._directory, "forked", pid)


class DiesOnce:
    """A value that ends the first process that decodes it."""

    def __init__(self, directory: str, value: Any) -> None:
        self.directory = directory
        self.value = value

    def __reduce__(self) -> Any:
        return _decode, (self.directory, self.value)


def _decode(directory: str, value: Any) -> Any:
    try:
        os.close(os.open(Path(directory) / "decoded", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return value
    os._exit(EXIT_CODE)


class Source(parts.Numbers):
    """0 .. COUNT-1."""

    def __init__(self, directory: str, misdeed: Misdeed) -> None:
        super().__init__(directory, COUNT)
        self.misdeed = misdeed

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().start(conf, context)
        self.misdeed.at("open")

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n, (value,) in super().read():
            yield n, (self.misdeed.at("next_tuple", value) if n == VICTIM else value,)

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        if message_id == VICTIM:
            self.misdeed.at("ack")

    def close(self) -> None:
        self.misdeed.at("close")


class Middle(BasicBolt):
    """Emits what it gets."""

    outputs = ("n",)

    def __init__(self, misdeed: Misdeed) -> None:
        self.misdeed = misdeed

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.misdeed.at("prepare")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        n = tup["n"]
        collector.emit((self.misdeed.at("execute", n) if n == VICTIM else n,))

    def cleanup(self) -> None:
        self.misdeed.at("cleanup")


class End(parts.Seen):
    """Notes what arrives. A value that did not leave its worker was not decoded."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        n = tup["n"]
        note(self.directory, "seen", [self.index, n.value if isinstance(n, DiesOnce) else n])


def topology_of(cell: Cell, directory: str) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("spout", Source(directory, Misdeed(directory, cell, "spout")))
    # To a task in each worker: values are pickled between workers only.
    builder.set_bolt("bolt", Middle(Misdeed(directory, cell, "bolt"))).shuffle_grouping("spout")
    builder.set_bolt("end", End(directory), parallelism=2 * _workers(cell)).all_grouping("bolt")
    return builder.build()


def cells() -> list[Cell]:
    """The whole table."""
    places = [("spout", place) for place in SPOUT_PLACES] + [("bolt", place) for place in BOLT_PLACES]
    emits = [("spout", "next_tuple"), ("bolt", "execute")]
    table = [Cell(*where, way, policy) for where, way, policy in product(places, (*WAYS, FORKS), POLICIES)]
    return table + [Cell(*where, way, policy) for where, way, policy in product(emits, (UNPICKLABLE, DECODE), POLICIES)]


def _workers(cell: Cell) -> int:
    return 2 if cell.way == DECODE else 1


def submit(cluster: LocalCluster, name: str, cell: Cell, directory: Path) -> Job:
    config = Config(
        workers=_workers(cell), on_error=cell.policy, debug=cell.way == UNPICKLABLE, message_timeout_secs=3600,
        max_spout_pending=5, worker_timeout_secs=HANG_SECS if cell.way == "hang" else 30.0,
    )
    return cluster.submit(name, topology_of(cell, str(directory)), config, fresh=True)


def run_cells(cluster: LocalCluster, cells: Sequence[Cell], directory: Path) -> None:
    """Run these cells side by side, and see each of them end as the table says."""
    jobs = []
    for number, cell in enumerate(cells):
        place = directory / str(number)
        place.mkdir()
        jobs.append((cell, place, submit(cluster, f"cell-{number}", cell, place)))
    for cell, place, job in jobs:
        check(cell, place, job.wait_until_drained(timeout=120))
        job.kill(wait_secs=1)
        assert len(notes(place, "struck")) == 1, f"{cell} did not happen"
        wait_for(f"what {cell} forked to end", lambda place=place: not any(map(process.exists, notes(place, "forked"))))


def check(cell: Cell, directory: Path, report: RunReport) -> None:
    """AssertionError where the cell did not end as the table says."""
    assert set(notes(directory, "acked")) == set(range(COUNT)), cell
    assert {n for _, n in notes(directory, "seen")} >= set(range(COUNT)), cell
    assert report.drained, cell
    assert not report.dead_letters, cell
    deaths = [(restart.reason, restart.error) for restart in report.restarts]
    assert len(deaths) == cell.kills, (str(cell), deaths)
    if deaths:
        ((reason, error),) = deaths
        assert cell.death in reason, (str(cell), reason)
        assert cell.error in error, (str(cell), error)
