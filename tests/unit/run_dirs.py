"""Run directories as clusters leave them, and a Nimbus that is started in one without a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from squall.ipc.board import READY, Board
from squall.ipc.rundir import RunDir
from squall.scheduler import process
from squall.scheduler.code_store import CodeStore
from squall.scheduler.messages import (
    Assignment,
    ComponentSummary,
    ExecutorRef,
    RestartRecord,
    SlotRef,
    TopologyRecord,
    WorkerBoot,
)
from squall.scheduler.nimbus_leftovers import check_store_is_there
from squall.scheduler.nimbus_service import NimbusService
from squall.scheduler.store import Store
from squall.scheduler.worker_ledger import LedgerEntry, encode_entry

COMPONENTS = [ComponentSummary("numbers", "spout", 1, 1)]


class SilentServer:
    """In place of Nimbus's socket: nobody calls, and what is sent is kept."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.refused = 0

    def recv(self) -> None:
        return None

    def send_event(self, peer: str, event: Any) -> bool:
        self.sent.append((peer, event))
        return True


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
    assignment = Assignment(topology.id, 1, [SlotRef("node-1", port)], [[ExecutorRef("numbers", 1, 1)]])
    store.put_topology(topology)
    store.put_assignment(assignment)
    store.add_restart(topology.id, RestartRecord(f"node-1:{port}", 1, "killed by SIGKILL", "", 1.0, None))
    board = Board.create(str(run_dir.board(topology.id)), 1, 1)
    board.set_slot(0, 2, READY, pid or 1)
    board.close()
    if pid:
        boot = WorkerBoot(
            run_dir=str(run_dir.path), node="node-1", port=port, incarnation=2, slot_index=0, topology=topology,
            assignment=assignment, log_path="",
        )
        entry = LedgerEntry(boot, pid, process.start_time_ticks(pid))
        (run_dir.path / "n" / f"node-1-{port}.worker").write_bytes(encode_entry(entry))
    return topology


@contextmanager
def nimbus_in(path: str | os.PathLike[str]) -> Iterator[NimbusService]:
    """As `scheduler.nimbus_main` starts one."""
    run_dir = RunDir.open(path)
    lock = run_dir.lock()
    try:
        run_dir.key()
        check_store_is_there(run_dir)
        with Store(run_dir.nimbus_db) as store:
            yield NimbusService(run_dir, store, SilentServer(), lambda _: None)  # type: ignore[arg-type]
    finally:
        lock.release()


def files_of(path: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path in it."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
