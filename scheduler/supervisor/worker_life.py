"""A slot's facts about itself and its worker. Values only; `scheduler.supervisor.slot` decides."""

from __future__ import annotations

import enum
import os
import signal
from dataclasses import dataclass
from typing import NamedTuple

from squall.engine.errors import SquallError
from squall.ipc.board import DEAD, READY, STARTING, STOPPED
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import SlotAssignment, SlotChanged, SlotRef, WorkerBoot
from squall.scheduler.common.process import describe_status


class SlotState(enum.Enum):
    EMPTY = "empty"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    BACKOFF = "backoff"
    FAILED = "failed"


ALIVE = frozenset({SlotState.STARTING, SlotState.RUNNING, SlotState.STOPPING})
"""States in which a process may exist whose end was not seen yet."""


class IllegalTransition(SquallError):
    """An event that is impossible in the slot's state: a bug in Squall."""


FORK_TIMEOUT_SECS = 15.0
START_TIMEOUT_SECS = 30.0
STATUS_WAIT_SECS = 2.0
"""Longest wait for an exit status after the pidfd has told of the end. The forking parent tells it within a
millisecond, on a busy machine within a hundred, and forks no replacement before: only if it stands still, this is
the wait. An adopted worker is not waited for."""
STACK_WAIT_SECS = 1.0
"""Longest wait for the stacks of a worker that hangs: writing them takes milliseconds, on a busy machine more."""
LAST_WORDS_WAIT_SECS = 0.3
"""Longest wait for a WorkerFailed after an exit code other than 0: it was sent before, by another way."""


class WorkerRow(NamedTuple):
    """The status board's row of a slot's worker."""

    incarnation: int = 0
    """The latest that any supervisor has started; 0 if none."""
    state: int = STOPPED
    nearer: bool = False
    """Whether its death brings a dead letter nearer."""
    opening: str = ""
    """Component and task whose `open` or `prepare` it is in; "" if in none."""
    at_hand: str = ""
    """Component and task whose code its loop is in; "" if in none."""
    heartbeat_ns: int = 0
    """When it last published anything, in nanoseconds of the monotonic clock."""
    rss_bytes: int = 0
    """Memory that it occupied when it last looked."""
    working_secs: float = 0.0
    """When it first worked, in seconds of the monotonic clock; 0.0 if never."""

    @property
    def unended(self) -> int:
        """The incarnation if, by the board, it did not end in order; else 0."""
        return self.incarnation if self.state in (STARTING, READY, DEAD) else 0


class WorkerRemains(NamedTuple):
    """Facts about a worker that has ended."""

    stack: str = ""
    """Its Python stacks, if it crashed or hung."""
    rss_bytes: int = 0
    working_secs: float = 0.0
    """When it first worked, in seconds of the monotonic clock; 0.0 if never."""
    out_of_memory: bool = False
    """The kernel killed a process because memory ran out, about when it ended."""


NOTHING_LEFT = WorkerRemains()


_SENT_BY_OTHERS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that people and programs send to end a process."""


@dataclass
class WorkerLife:
    """One incarnation, from the fork request to the explained end."""

    incarnation: int
    status: str
    """The topology's status as the worker knows it."""
    pid: int = 0
    """0 until the forking parent has answered."""
    forked_at: float = 0.0
    ready_early: bool = False
    """WorkerReady arrived before the forking parent's answer, which travels another way."""
    stopping: bool = False
    overdue: str = ""
    """What the worker has failed to do when the present deadline passes."""
    is_stopped: bool = False
    """It did not hang, it was stopped by a signal."""
    remark: str = ""
    error: str = ""
    exit_status: int | None = None
    remains: WorkerRemains = NOTHING_LEFT
    is_adopted: bool = False
    """Forked under an earlier supervisor, so nobody will tell its exit status."""
    excused: bool = False
    """Its death brought a dead letter nearer, so it does not count against the slot."""

    def is_explained(self) -> bool:
        """Whether all is known about the end that waiting could tell."""
        if self.exit_status is None:
            return False
        no_words_expected = self.stopping or self.exit_status == 0 or os.WIFSIGNALED(self.exit_status)
        return no_words_expected or bool(self.error)

    @property
    def accused(self) -> bool:
        """True if it is known to have ended by a cause that a tuple can have: an exit, a signal of its own, a hang, too
        little memory. A signal from outside accuses no tuple, and neither does an end of unknown cause."""
        if self.exit_status is None:
            return False
        if not os.WIFSIGNALED(self.exit_status) or os.WTERMSIG(self.exit_status) not in _SENT_BY_OTHERS:
            return True
        return (bool(self.remark) and not self.is_stopped) or self.remains.out_of_memory

    def ending(self) -> str:
        text = "exit status unknown" if self.exit_status is None else describe_status(self.exit_status)
        return f"{self.remark}: {text}" if self.remark else text


@dataclass(frozen=True)
class SlotAddress:
    """The constant facts about a slot."""

    run_dir: str
    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"

    def gave_up(self, work: SlotAssignment) -> bool:
        """Whether Nimbus knows this slot as one that gave the topology up."""
        return SlotRef(self.node, self.port) in work.topology.given_up

    def boot(self, work: SlotAssignment, incarnation: int) -> WorkerBoot:
        return WorkerBoot(
            run_dir=self.run_dir,
            node=self.node,
            port=self.port,
            incarnation=incarnation,
            slot_index=work.slot_index,
            topology=work.topology,
            assignment=work.assignment,
            log_path=str(RunDir(self.run_dir).worker_log(work.topology.id, self.node, self.port)),
        )

    def changed(
        self, work: SlotAssignment, life: WorkerLife, event: str, now: float, reason: str, error: str
    ) -> SlotChanged:
        return SlotChanged(
            node=self.node,
            port=self.port,
            topology_id=work.topology.id,
            incarnation=life.incarnation,
            event=event,
            pid=life.pid,
            at_monotonic_secs=now,
            reason=reason,
            error=error,
            rss_bytes=life.remains.rss_bytes,
            working_secs=life.remains.working_secs,
            excused=life.excused and event == "died",
            slot_index=work.slot_index,
        )


def same_work(one: SlotAssignment | None, other: SlotAssignment | None) -> bool:
    """Whether a worker of `one` may go on for `other`: nothing but the topology's status differs."""
    if one is None or other is None:
        return one is other
    if one.slot_index != other.slot_index or one.assignment != other.assignment:
        return False
    return one.topology.id == other.topology.id and one.topology.conf == other.topology.conf


def work_name(work: SlotAssignment | None) -> str:
    """Name of a piece of work, for the log and the history."""
    if work is None:
        return "nothing"
    return f"{work.topology.id} slot {work.slot_index} version {work.assignment.version} {work.topology.status}"
