"""One slot of a node: the state machine that keeps the right worker in it.

Guarantees
    * At most one worker of a slot is alive at a time: a slot forks only after the end of its worker before is known.
    * Incarnations rise strictly over the life of (topology, slot index), also across restarts of the supervisor.
    * A death is written to the status board first, with its cause, and reported to Nimbus second; only then is a
      replacement forked.
    * A transition that makes no sense raises, with the slot's history.

Relies on: its caller to carry out the returned instructions in order, and to bring the answers back as events;
`scheduler.supervisor.death_judge` to judge each death.

Pure: no I/O, no clock; `look` reads the status board. Thread: the supervisor's loop.

States::

    EMPTY ──assign──► STARTING ──ready──► RUNNING
      ▲                │  │ ▲                │
      │           stop │  │ └─fork─┐         │ lost (its pidfd spoke)
      │                ▼  ▼        │         ▼
      ├──stopped── STOPPING ──► EXITED ──► died: at once STARTING, later BACKOFF, or given up: FAILED

EXITED lasts milliseconds, until it is known how and why the process ended.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable

from squall.ipc.board import DEAD, READY, STARTING, STOPPED
from squall.scheduler.common.messages import SlotAssignment, WorkerBoot
from squall.scheduler.common.process import describe_status
from squall.scheduler.common.restart_policy import GiveUp
from squall.scheduler.common.role import STOP_GRACE_SECS
from squall.scheduler.supervisor import instruction as do
from squall.scheduler.supervisor.death_judge import DeathJudge, DeathVerdict
from squall.scheduler.supervisor.instruction import Instruction
from squall.scheduler.supervisor.worker_life import (
    ALIVE,
    FORK_TIMEOUT_SECS,
    LAST_WORDS_WAIT_SECS,
    NOTHING_LEFT,
    STACK_WAIT_SECS,
    START_TIMEOUT_SECS,
    STATUS_WAIT_SECS,
    IllegalTransition,
    SlotAddress,
    SlotState,
    WorkerLife,
    WorkerRemains,
    WorkerRow,
    same_work,
    work_name,
)

HISTORY_LIMIT = 64


class Slot:
    """One slot. Each method is an event at time `now` and returns instructions."""

    def __init__(
        self,
        address: SlotAddress,
        judge: DeathJudge,
        look: Callable[[SlotAssignment], WorkerRow],
    ) -> None:
        """`look` reads the board's row of the slot's worker."""
        self.address = address
        self.state = SlotState.EMPTY
        self.work: SlotAssignment | None = None
        """The work of the slot's process, or of the replacement that it waits for."""
        self.target: SlotAssignment | None = None
        """The work that Nimbus wants here."""
        self.life = WorkerLife(incarnation=0, status="")
        self.history: deque[str] = deque(maxlen=HISTORY_LIMIT)
        self._judge = judge
        self._look = look
        self._own: tuple[str, int, int] | None = None
        """Topology, slot index and incarnation of the last worker that this supervisor forked or adopted."""
        self._deadline: float | None = None
        self._said_hopeless = True
        """Whether the board may say that the topology is hopeless: an earlier supervisor may have written that."""

    @property
    def has_process(self) -> bool:
        """Whether `life.pid` is a process that lives, or whose end is not explained yet."""
        return self.life.pid != 0 and (self.state in ALIVE or self.state is SlotState.EXITED)

    # ---- Nimbus ----

    def assign(self, work: SlotAssignment | None, now: float) -> list[Instruction]:
        """Take the desired work of this slot; None empties it. Idempotent."""
        self._note(now, f"assign {work_name(work)}")
        self.target = work
        if self.state is SlotState.EMPTY:
            return self._begin(now)
        if same_work(self.work, work):
            return self._follow_record(now)
        return self._leave(STOP_GRACE_SECS, now)

    def stop(self, grace_secs: float, now: float) -> list[Instruction]:
        """Empty the slot; its worker has `grace_secs`, even if it was being stopped already."""
        self._note(now, f"stop within {grace_secs:g} s")
        self.target = None
        return self._leave(grace_secs, now)

    def adopt(self, boot: WorkerBoot, pid: int, is_ready: bool, now: float) -> list[Instruction]:
        """Take over the living worker of an earlier supervisor, in an empty slot."""
        self._expect(self.state is SlotState.EMPTY, f"adopt {pid} incarnation {boot.incarnation}", now)
        self.work = self.target = SlotAssignment(boot.topology, boot.assignment, boot.slot_index)
        self.life = WorkerLife(boot.incarnation, boot.topology.status, is_adopted=True)
        self._own = boot.topology.id, boot.slot_index, boot.incarnation
        self.state = SlotState.STARTING
        self.life.ready_early = is_ready
        return self.forked(pid, now)

    # ---- the forking parent ----

    def forked(self, pid: int, now: float) -> list[Instruction]:
        """The worker of the present incarnation exists."""
        self._expect(self.state is SlotState.STARTING and self.life.pid == 0, f"forked {pid}", now)
        self.life.pid = pid
        self.life.forked_at = now
        self.life.overdue = f"not ready within {START_TIMEOUT_SECS:g} s"
        started = self._report("started", now)
        out: list[Instruction] = [self._board(STARTING), started, self._arm(now + START_TIMEOUT_SECS)]
        if not same_work(self.work, self.target):
            return out + self._leave(STOP_GRACE_SECS, now)
        return out + self.ready(now) if self.life.ready_early else out

    def fork_failed(self, reason: str, now: float) -> list[Instruction]:
        """There will be no worker of the present incarnation; try again later."""
        self._expect(self.state is SlotState.STARTING and self.life.pid == 0, f"fork failed: {reason}", now)
        work = self._present_work()
        out: list[Instruction] = [self._board(DEAD)]
        if not same_work(work, self.target):
            return [*out, self._report("died", now, reason=reason), *self._vacate(now)]
        verdict = self._judge.fork_refused(self.address.port, work)
        out += [self._say(verdict.deaths, verdict.hopeless), self._report("died", now, reason=reason)]
        return out + self._follow(verdict, now, reason)

    # ---- the worker of the present incarnation ----

    def ready(self, now: float) -> list[Instruction]:
        """The worker can take tuples. It may say so twice, and may have died since."""
        self._note(now, "ready")
        if self.state is SlotState.STOPPING:
            # The first signal to stop may have arrived before the worker had its own handlers.
            return [do.SendStop(self.life.incarnation)]
        if self.state is SlotState.RUNNING:
            # It has come back to this supervisor: what the one before told it last may have died with that one.
            return [do.SendStatus(self.life.incarnation, self.life.status)]
        if self.state is not SlotState.STARTING:
            return []
        if self.life.pid == 0:
            self.life.ready_early = True
            return []
        self.state = SlotState.RUNNING
        self._deadline = None
        return [self._board(READY), self._report("ready", now), *self._follow_status()]

    def worker_failed(self, error: str, now: float) -> list[Instruction]:
        """The worker's last words: it is about to exit."""
        self._note(now, f"worker failed: {error.partition(chr(10))[0]}")
        self.life.error = error
        if self.state is SlotState.EXITED:
            return self._conclude(now) if self.life.is_explained() else []
        if self.state is SlotState.RUNNING or (self.state is SlotState.STARTING and self.life.pid):
            self.life.overdue = f"still there {STOP_GRACE_SECS:g} s after it failed"
            return [self._arm(now + STOP_GRACE_SECS)]
        return []

    def stuck(self, secs: float, now: float, code: str = "", is_stopped: bool = False) -> list[Instruction]:
        """The worker's loop has not turned for so long, in `code`: have it dump its stacks, then kill it. `is_stopped`:
        a signal has stopped the process."""
        if self.state is not SlotState.RUNNING or self._deadline is not None or self.life.remark:
            return []
        self._note(now, f"stuck for {secs:g} s")
        self.life.is_stopped = is_stopped
        where = ", stopped by a signal" if is_stopped else f" in {code}" if code else ""
        self.life.overdue = f"no progress for {secs:g} s{where}"
        return [do.DumpStacks(self.life.pid), self._arm(now + STACK_WAIT_SECS)]

    def lost(self, now: float) -> list[Instruction]:
        """The worker's process has ended; its status is not known yet."""
        self._expect(self.life.pid != 0 and self.state in ALIVE, "lost", now)
        self.life.stopping = self.state is SlotState.STOPPING
        # Ask before writing the death to the board: the suspect's own worker then removes the mark of the trial.
        self.life.excused = self._look(self._present_work()).nearer
        self.state = SlotState.EXITED
        # Kill the worker's process group, so that no child of it meets the replacement.
        sweep = do.Signal(self.life.pid, signal.SIGKILL)
        wait_secs = 0.0 if self.life.is_adopted else STATUS_WAIT_SECS
        return [*([self._board(STOPPED)] if self.life.stopping else []), sweep, self._arm(now + wait_secs)]

    def exited(self, status: int, now: float, remains: WorkerRemains = NOTHING_LEFT) -> list[Instruction]:
        """The exit status of the worker, and its remains."""
        is_news = self.state is SlotState.EXITED and self.life.exit_status is None
        self._expect(is_news, describe_status(status), now)
        self.life.exit_status = status
        self.life.error = self.life.error or remains.stack
        self.life.remains = remains
        if self.life.is_explained():
            return self._write_death() + self._conclude(now)
        return [*self._write_death(), self._arm(now + LAST_WORDS_WAIT_SECS)]

    # ---- time ----

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed; does nothing before the deadline."""
        if self._deadline is None or now < self._deadline:
            return []
        self._note(now, "deadline")
        self._deadline = None
        if self.state is SlotState.BACKOFF:
            return self._fork(now)
        if self.state is SlotState.EXITED:
            unseen = self.life.exit_status is None
            return (self._write_death() if unseen else []) + self._conclude(now)
        if self.life.pid == 0:
            reason = f"no answer to a fork request within {FORK_TIMEOUT_SECS:g} s"
            return [do.ReplaceForkingParent(reason), self._arm(now + FORK_TIMEOUT_SECS)]
        opening = self._look(self._present_work()).opening if self.state is SlotState.STARTING else ""
        self.life.remark = self.life.overdue + (f", {opening} was being opened" if opening else "")
        return [do.Signal(self.life.pid, signal.SIGKILL)]

    def review(self) -> list[Instruction]:
        """Take back that the topology is hopeless if it has made progress. Called once per sweep."""
        if self.work is None or not self._said_hopeless or self._judge.is_hopeless(self.work):
            return []
        return [self._say(0, hopeless=False)]

    # ---- transitions ----

    def _begin(self, now: float) -> list[Instruction]:
        """An empty slot takes up its target."""
        if self.target is None:
            return []
        self._judge.begin(self.address.port)
        self.life = WorkerLife(incarnation=0, status="")
        out = self._report_unended(self.target, now)
        return out + (self._stay_failed(now) if self.address.gave_up(self.target) else self._fork(now))

    def _report_unended(self, work: SlotAssignment, now: float) -> list[Instruction]:
        """Report a death under an earlier supervisor, which may have died with the worker. A receiver that knows of it
        already does not count it again."""
        incarnation = self._look(work).unended
        if not incarnation or self._own == (work.topology.id, work.slot_index, incarnation):
            return []
        life = WorkerLife(incarnation, "")
        return [do.Report(self.address.changed(work, life, "died", now, "died; its supervisor was gone", ""))]

    def _stay_failed(self, now: float) -> list[Instruction]:
        """Stay FAILED: this slot gave the work up under an earlier supervisor or assignment, as Nimbus remembers."""
        self.work = self.target
        self.life.incarnation = self._look(self._present_work()).incarnation + 1
        self.state = SlotState.FAILED
        return [self._report("failed", now, "it was given up before")]

    def _fork(self, now: float) -> list[Instruction]:
        self.work = self.target
        work = self._present_work()
        incarnation = max(self.life.incarnation, self._look(work).incarnation) + 1
        self.life = WorkerLife(incarnation, work.topology.status)
        self._own = work.topology.id, work.slot_index, incarnation
        self.state = SlotState.STARTING
        boot = self.address.boot(work, incarnation)
        return [self._board(STARTING), do.Fork(boot), self._arm(now + FORK_TIMEOUT_SECS)]

    def _follow_record(self, now: float) -> list[Instruction]:
        """Follow changes of the topology's record that keep the work: an operator's reset, the status."""
        if self.work is None or self.target is None or self.work.topology.resets == self.target.topology.resets:
            return self._follow_status()
        self._judge.reset(self.address.port, self.target)
        follow = self._follow_status()
        return self._vacate(now) if self.state in (SlotState.BACKOFF, SlotState.FAILED) else follow

    def _follow_status(self) -> list[Instruction]:
        """Pass on the topology's status if the worker does not know it yet."""
        self.work = self.target
        status = self.work.topology.status if self.work is not None else ""
        if self.state is not SlotState.RUNNING or status == self.life.status:
            return []
        self.life.status = status
        return [do.SendStatus(self.life.incarnation, status)]

    def _leave(self, grace_secs: float, now: float) -> list[Instruction]:
        """End the present work."""
        if self.state in (SlotState.BACKOFF, SlotState.FAILED):
            return self._vacate(now)
        if self.state is SlotState.STOPPING and self._deadline is not None:
            return [self._arm(min(self._deadline, now + grace_secs))]
        if self.state not in (SlotState.STARTING, SlotState.RUNNING) or self.life.pid == 0:
            # Nothing to do, or `exited` or `forked` will find that the target has changed.
            return []
        # A starting worker may not take messages yet: the signal ends it, unless it has its own handlers by now.
        starting = self.state is SlotState.STARTING
        ask = do.Signal(self.life.pid, signal.SIGTERM) if starting else do.SendStop(self.life.incarnation)
        self.state = SlotState.STOPPING
        self.life.overdue = f"not stopped within {grace_secs:g} s"
        return [ask, self._arm(now + grace_secs)]

    def _vacate(self, now: float) -> list[Instruction]:
        """Drop the work and take up the target: no process is left."""
        reason = self.life.ending() if self.life.stopping else ""
        out: list[Instruction] = [self._report("stopped", now, reason=reason)]
        self.state = SlotState.EMPTY
        self.work = None
        self._deadline = None
        return out + self._begin(now)

    def _write_death(self) -> list[Instruction]:
        """Write the death to the board. The other workers then fail the trees that the worker held a part of, and blame
        their messages or not: so it waits for the exit status, a millisecond or so."""
        return [] if self.life.stopping else [self._board(DEAD)]

    def _conclude(self, now: float) -> list[Instruction]:
        """Report the end, about which all is known by now, and decide what follows."""
        if self.life.stopping:
            return self._vacate(now)
        reason, error = self.life.ending(), self.life.error
        work = self._present_work()
        if not same_work(work, self.target):
            return [self._report("died", now, reason, error), *self._vacate(now)]
        lived_secs = now - self.life.forked_at
        verdict = self._judge.died(self.address.port, work, now, lived_secs, error, self.life.excused)
        self.life.excused = verdict.excused
        said = self._say(verdict.deaths, verdict.hopeless)
        return [said, self._report("died", now, reason, error), *self._follow(verdict, now, reason)]

    def _follow(self, verdict: DeathVerdict, now: float, reason: str) -> list[Instruction]:
        """Follow the verdict on a death or a failed fork: start another worker, at once or later, or give up."""
        then = verdict.then
        if isinstance(then, GiveUp):
            self.state = SlotState.FAILED
            self._deadline = None
            return [self._report("failed", now, f"{then}, last: {reason}", self.life.error)]
        if then.delay_secs == 0:
            return self._fork(now)
        self.state = SlotState.BACKOFF
        return [self._arm(now + then.delay_secs)]

    # ---- parts ----

    def _arm(self, at_secs: float) -> do.ArmTimer:
        self._deadline = at_secs
        return do.ArmTimer(at_secs)

    def _board(self, state: int) -> do.SetBoard:
        work = self._present_work()
        life, version = self.life, work.assignment.version
        accused = state == DEAD and life.accused
        return do.SetBoard(work.topology.id, work.slot_index, life.incarnation, state, life.pid, version, accused)

    def _say(self, deaths: int, hopeless: bool) -> do.SetVerdict:
        work = self._present_work()
        self._said_hopeless = hopeless
        return do.SetVerdict(work.topology.id, work.slot_index, deaths, hopeless, work.assignment.version)

    def _report(self, event: str, now: float, reason: str = "", error: str = "") -> do.Report:
        return do.Report(self.address.changed(self._present_work(), self.life, event, now, reason, error))

    def _present_work(self) -> SlotAssignment:
        if self.work is None:
            raise self._illegal("no work", self._deadline or 0.0)
        return self.work

    def _expect(self, legal: bool, event: str, now: float) -> None:
        if not legal:
            raise self._illegal(event, now)
        self._note(now, event)

    def _note(self, now: float, event: str) -> None:
        life = self.life
        self.history.append(f"{now:.6f} {self.state.value} incarnation {life.incarnation} pid {life.pid}: {event}")

    def _illegal(self, event: str, now: float) -> IllegalTransition:
        self._note(now, f"{event} (illegal)")
        past = "\n  ".join(self.history)
        return IllegalTransition(f"slot {self.address} cannot take this step; its history:\n  {past}")
