"""A simulated supervisor that looks for workers whose loop stands still, as `SupervisorLoop` does: by the heartbeats on
their real boards."""

from __future__ import annotations

from squall.ipc.board import SLOT_HEARTBEAT_NS
from squall.scheduler.common.messages import SlotAssignment
from squall.scheduler.common.standstill import ProgressWatch
from squall.scheduler.supervisor.worker_life import SlotState
from tests.sim.supervisor_daemon import SupervisorDaemon

_SWEEP_SECS = 1.0


class WatchfulSupervisor(SupervisorDaemon):
    """It replaces them."""

    def start(self) -> None:
        super().start()
        self._progress = ProgressWatch(2 * _SWEEP_SECS)
        self._sweep(self.epoch)

    def _sweep(self, epoch: int) -> None:
        if not self.up or self.epoch != epoch:
            return
        if self.stopped_until <= self.machine.now:
            self._look_for_stuck(self.machine.now)
        self.machine.after(_SWEEP_SECS, lambda: self._sweep(epoch))

    def _look_for_stuck(self, now: float) -> None:
        for port, slot in self.decisions.slots.items():
            if slot.state is not SlotState.RUNNING or slot.work is None:
                self._progress.forget(port)
                continue
            still_secs = self._progress.still_secs(port, self._heartbeat_ns(slot.work), now)
            if still_secs > slot.work.topology.conf["worker_timeout_secs"]:
                self.carry_out(self.decisions.stuck(port, still_secs, now))

    def _heartbeat_ns(self, work: SlotAssignment) -> int:
        board = self._boards[work.topology.id, work.assignment.version]
        return board.column(SLOT_HEARTBEAT_NS)[work.slot_index]
