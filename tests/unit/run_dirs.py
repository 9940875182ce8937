"""Run directories as clusters leave them, and a Nimbus that is started in one without a process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from squall.engine.api.plan import ExecutorPlan
from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import READY, Board
from squall.ipc.control import Incoming, NotStarted
from squall.ipc.envelope import NO_NONCE, Nonce
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.code_store import CodeStore
from squall.scheduler.common.messages import (
    Assignment,
    ComponentSummary,
    RestartRecord,
    SlotRef,
    TopologyRecord,
    WorkerBoot,
)
from squall.scheduler.nimbus.service import NimbusService
from squall.scheduler.nimbus.store import Store, open_store
from squall.scheduler.records.worker_ledger import LedgerEntry

COMPONENTS = [ComponentSummary("numbers", "spout", 1, 1)]


class LimitedStore(Store):
    """Its file can be kept from growing, as by a full disk."""

    def limit_growth(self, limited: bool) -> None:
        self._run(f"PRAGMA max_page_count = {1 if limited else 4294967294}")


class Desk:
    """In place of Nimbus's socket: one caller at a time, and what is sent is kept."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.refused = 0
        self.caller: Incoming | None = None
        self.answer: Any = None

    def recv(self) -> Incoming | None:
        caller, self.caller = self.caller, None
        return caller

    def send_event(self, peer: str, event: Any) -> bool:
        self.sent.append((peer, event))
        return True

    def reply(self, incoming: Incoming, message: msgspec.Struct) -> bool:
        self.answer = message
        return True

    def reply_error(self, incoming: Incoming, message: str, kind: str) -> bool:
        kinds = {"UsageError": UsageError, "NotStarted": NotStarted, "ClusterError": ClusterError}
        self.answer = kinds[kind](message)
        return True


class NimbusHere:
    """A Nimbus in this process, as its callers know it."""

    def __init__(self, run_dir: RunDir, store: Store) -> None:
        self.desk = Desk()
        self.run_dir, self.store = run_dir, store
        self._service = NimbusService(run_dir, store, self.desk, lambda _: None)  # type: ignore[arg-type]
        self.nimbus = self._service.nimbus
        self.faults = self._service.faults

    @property
    def sent(self) -> list[tuple[str, Any]]:
        """Events, with whom they were for."""
        return self.desk.sent

    def call(self, method: str, request: msgspec.Struct, nonce: Nonce = NO_NONCE) -> Any:
        """Its answer; an error is raised, as a client would."""
        self.desk.caller = Incoming("client:test", "request", method, 1, msgspec.msgpack.encode(request), b"", nonce)
        self._service.serve()
        if isinstance(self.desk.answer, Exception):
            raise self.desk.answer
        return self.desk.answer

    def hear(self, peer: str, event: msgspec.Struct, nonce: Nonce = NO_NONCE) -> None:
        """An event from a supervisor."""
        body = msgspec.msgpack.encode(event)
        self.desk.caller = Incoming(peer, "event", type(event).__name__, 1, body, b"", nonce)
        self._service.serve()

    def tick(self) -> None:
        self._service.tick(time.monotonic())

    def next_deadline(self) -> float | None:
        return self._service.next_deadline()


def record(run_dir: RunDir, name: str, number: int = 1) -> TopologyRecord:
    """With a blob and an archive of modules in the code store."""
    codes = CodeStore(run_dir.code)
    blob, archive = codes.put(f"blob of {name}".encode()), codes.put(f"archive of {name}".encode() * 100)
    path = [str(codes.path(archive)), "lib"]
    return TopologyRecord(f"{name}-{number}-0a0b0c0d", name, "ACTIVE", {"workers": 1}, COMPONENTS, blob, path, 1.5)


def add_topology(run_dir: RunDir, store: Store, name: str, number: int, pid: int = 0) -> TopologyRecord:
    """A topology that runs on port 6699 + `number`; `pid`: of its worker, which a supervisor has noted."""
    topology = record(run_dir, name, number)
    port = 6699 + number
    assignment = Assignment(topology.id, 1, [SlotRef("node-1", port)], [[ExecutorPlan("numbers", 1, 1)]])
    store.put_topology(topology)
    store.put_assignment(assignment)
    store.add_restart(topology.id, RestartRecord(f"node-1:{port}", 1, "killed by SIGKILL", "", 1.0, None))
    board = Board.create(run_dir.board(topology.id), 1, 1)
    board.set_slot(0, 2, READY, pid or 1)
    board.close()
    if pid:
        boot = WorkerBoot(
            run_dir=str(run_dir.path), node="node-1", port=port, incarnation=2, slot_index=0, topology=topology,
            assignment=assignment, log_path="",
        )
        entry = LedgerEntry(boot, pid, process.start_time_ticks(pid))
        (run_dir.path / "n" / f"node-1-{port}.worker").write_bytes(msgspec.msgpack.encode(entry))
    return topology


@contextmanager
def nimbus_in(path: str | os.PathLike[str]) -> Iterator[NimbusHere]:
    """As `scheduler.nimbus.main` starts one."""
    run_dir = RunDir.open(path)
    with run_dir.lock():
        run_dir.key()
        with open_store(run_dir) as store:
            yield NimbusHere(run_dir, store)


def files_of(path: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path in it."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
