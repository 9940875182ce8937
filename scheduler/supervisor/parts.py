"""The parts of one supervisor: `main` makes them, loop and dispatcher use them."""

from __future__ import annotations

from dataclasses import dataclass

from squall.ipc.control import ControlServer
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.daemon_faults import DaemonFaults
from squall.scheduler.records.worker_ledger import WorkerLedger
from squall.scheduler.supervisor.decisions import Supervisor
from squall.scheduler.supervisor.forking_parent import ForkingParent
from squall.scheduler.supervisor.history import History
from squall.scheduler.supervisor.nimbus_link import NimbusLink
from squall.scheduler.supervisor.node_boards import NodeBoards
from squall.scheduler.supervisor.prospects import Prospects
from squall.scheduler.supervisor.worker_watch import WorkerWatch


@dataclass(frozen=True)
class Parts:
    """`main` owns and closes them. Thread: the supervisor's loop."""

    node: str
    supervisor: Supervisor
    boards: NodeBoards
    prospects: Prospects
    server: ControlServer
    nimbus: NimbusLink
    forking_parent: ForkingParent
    watch: WorkerWatch
    ledger: WorkerLedger
    history: History
    faults: DaemonFaults
    run_dir: RunDir
