"""Finds the living workers of an assignment, and ends those that no supervisor can end.

Guarantees: a worker is known by pid and start time together, so another process with its pid is neither taken for it
nor signalled. A worker that has ended and was not reaped does not live.

Relies on: supervisors noting each worker on the status board and in their ledger (`scheduler.records.worker_ledger`);
either will do. A worker whose supervisor was killed between the fork and the first note is in neither: it ends by
itself when its board is removed (`scheduler.worker.lease`).

Thread: Nimbus's loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from squall.engine.errors import ClusterError
from squall.ipc.board import Board
from squall.ipc.rundir import RunDir
from squall.scheduler.common import process
from squall.scheduler.common.messages import Assignment, SlotRef
from squall.scheduler.records.worker_ledger import WorkerLedger


class LivingWorkers:
    """The workers of one run directory."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir

    def among(self, assignment: Assignment, slots: list[int]) -> list[SlotRef]:
        """The slots among these (by index) whose worker of this assignment lives."""
        return [
            assignment.workers[index]
            for index in slots
            if any(process.lives(pid, started) for pid, started in self._known(assignment, index))
        ]

    def end(self, assignment: Assignment, slot: SlotRef) -> None:
        """Send SIGKILL to the worker of a slot and its process group. ClusterError if it cannot be signalled."""
        for pid, started in self._known(assignment, assignment.workers.index(slot)):
            with contextlib.suppress(ClusterError):  # it has ended by now
                pidfd = process.open_proven(pid, started)
                try:
                    process.send_signal_to_group(pidfd, pid, signal.SIGKILL)
                    process.send_signal(pidfd, signal.SIGKILL)
                finally:
                    os.close(pidfd)

    def _known(self, assignment: Assignment, index: int) -> Iterator[tuple[int, int]]:
        """Pid and start time of the slot's worker, from the board and from its supervisor's ledger."""
        with contextlib.suppress(ClusterError):  # without a board there is still the ledger
            board = Board.attach(str(self._run_dir.board(assignment.topology_id, assignment.version)))
            try:
                cell = board.slot(index)
            finally:
                board.close()
            if cell.pid:
                yield cell.pid, cell.started_ticks
        slot = assignment.workers[index]
        entry = WorkerLedger(self._run_dir, slot.node).entry(slot.port)
        if entry is not None and entry.boot.assignment == assignment:
            yield entry.pid, entry.start_time_ticks
