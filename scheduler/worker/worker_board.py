"""A worker's side of the status board: publishes the worker's state and reads the others'.

Guarantees: counters continue from where the worker's former incarnation left them. The spouts' accounts, and the counts
of tuples outside of any tree, lie on the board itself and are exact whenever the worker dies (`engine.report.metrics`).
Other figures are published every few milliseconds: a death loses that much of them (never a tuple: ackers track those).

Thread: the worker's loop.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Set
from operator import add
from pathlib import Path

from squall.engine.api.failure import ANOTHER_TUPLE, FROM_OUTSIDE, Failure
from squall.engine.core.transport import PeerChange
from squall.engine.core.worker_core import WorkerCore
from squall.engine.report.metrics import ACCOUNT_COLUMNS, FIRST_GAUGE, TASK_COUNTERS, SpoutStats, TaskStats
from squall.engine.tracking.fate import TrialPermit
from squall.ipc.board import (
    READY,
    SLOT_ACTIVE,
    SLOT_AT_HAND,
    SLOT_BACKLOG,
    SLOT_CONGESTED,
    SLOT_EXPLAINED,
    SLOT_HEARTBEAT_NS,
    SLOT_HELD_BYTES,
    SLOT_IDENTITY,
    SLOT_LINKS,
    SLOT_PROGRESS,
    SLOT_QUIET,
    SLOT_RSS_BYTES,
    SLOT_TRIAL,
    SLOT_WORKING_NS,
    STARTING,
    Board,
)
from squall.ipc.data_plane import DataPlane
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.records.failure_file import read_last_words

_COUNTERS = len(TASK_COUNTERS)
_LIVES = (STARTING, READY)
_SILENT_NS = 10_000_000
"""Age from which the figures of a worker that has something to do are old: it publishes them every 2 ms."""

_VISIBLE_AFTER_NS = 1_000_000
"""1 ms: far longer than a word takes to become visible to other processors."""


class WorkerBoard:
    """One worker's view of its topology's board; an `engine.core.transport.PeerBoard`."""

    def __init__(
        self, board: Board, core: WorkerCore, plane: DataPlane, run_dir: RunDir, boot: WorkerBoot,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        me, incarnation = boot.slot_index, boot.incarnation
        self._board = board
        self._run_dir = run_dir
        self._boot = boot
        self._now_ns = now_ns
        self._words = board.words
        self._core = core
        self._plane = plane
        self._me = me
        self._incarnation = incarnation
        self._at = board.slot_at(me)
        self._seen = [0] * board.n_slots
        self._identities = board.column(SLOT_IDENTITY)
        self._congested = board.column(SLOT_CONGESTED)
        self._heartbeats = board.column(SLOT_HEARTBEAT_NS)
        self._waits = board.waits
        self._task_worker = core.plan.task_worker
        self._quiet = board.column(SLOT_QUIET)
        self._full = board.full
        self._mine = frozenset(core.bolt_tasks)
        self._said_full: set[int] = set()
        for task in self._mine:
            self._full[task - 1] = 0
        self._words[self._at + SLOT_CONGESTED] = 0
        self._rows: list[tuple[int, TaskStats, list[int]]] = []
        """First word of a task's row, its counters here, and what they add to: the former incarnations' sums."""
        for task, stats in core.stats.items():
            counters = board.task_counters(task)
            grown = [counters[name] for name in TASK_COUNTERS[:FIRST_GAUGE]]
            if isinstance(stats, SpoutStats):
                # Its account is on the board and is a total already.
                grown[: len(ACCOUNT_COLUMNS)] = [0] * len(ACCOUNT_COLUMNS)
            self._rows.append((board.task_at(task), stats, grown + [0] * (_COUNTERS - FIRST_GAUGE)))
            stats.histogram = board.task_histogram(task)
        self._progress = self._words[self._at + SLOT_PROGRESS]
        self._words[self._at + SLOT_WORKING_NS] = 0
        self._words[self._at + SLOT_AT_HAND] = 0
        self._is_working = False
        self.has_acted = True
        """Whether any turn since the last `publish` acted (`Turn.acted`); set by the caller."""
        self._link_base = list(board.link_counts(me).values())
        self._met: set[int] = set()
        self._reconnects = 0
        self._lost_before = self._lost = 0

    def changed_peers(self) -> list[PeerChange]:
        """Every other worker that has changed since the last call."""
        before, self._seen = self._seen, self._identities.tolist()
        if before == self._seen:
            return []
        pairs = enumerate(zip(before, self._seen, strict=True))
        return [
            (worker, now >> 8, now & 0xFF in _LIVES, now & 0xFF == READY)
            for worker, (was, now) in pairs if now != was and worker != self._me
        ]

    def connecting(self, worker: int, incarnation: int) -> Path:
        """Note that a link to a peer is being opened; returns the peer's socket."""
        self._reconnects += worker in self._met
        self._met.add(worker)
        slot = self._boot.assignment.workers[worker]
        boot = self._boot
        return self._run_dir.worker_socket(boot.topology.id, boot.assignment.version, slot.node, slot.port, incarnation)

    def end_of(self, worker: int, incarnation: int) -> tuple[str, dict[int, Failure]]:
        """What is known about the end of a dead worker, and the failures that it wrote as its last words."""
        explanation = explanation_of(self._board, worker, incarnation)
        if explanation != ANOTHER_TUPLE:
            return explanation, {}
        return explanation, read_last_words(self._run_dir, self._boot.topology.id, worker, incarnation)

    def explain(self, charged: bool) -> None:
        """Announce that this incarnation ends by an exception; `charged`: to a tuple that has a limit."""
        self._words[self._at + SLOT_EXPLAINED] = self._incarnation << 1 | charged

    def others_congested(self) -> bool:
        """Whether any other worker asks the spouts to wait."""
        congested = self._congested.tolist()
        congested[self._me] = 0
        return any(congested)

    def full_elsewhere(self) -> frozenset[int]:
        """Tasks of other workers whose queues are full, as their workers publish. Empty unless `others_congested`."""
        return frozenset(task for task, full in enumerate(self._full.tolist(), 1) if full) - self._mine

    def waits_ns(self, caught_up: Set[int], now_ns: int) -> Callable[[int], int]:
        """task of another worker -> about how long a tuple would wait for it."""
        waits, worker_of = self._waits, self._task_worker
        # One that has something to do and publishes nothing is in the midst of a long call, or stopped.
        silent_ns = [
            0 if worker in caught_up or now_ns - heartbeat_ns < _SILENT_NS else now_ns - heartbeat_ns
            for worker, heartbeat_ns in enumerate(self._heartbeats.tolist())
        ]
        return lambda task: waits[task - 1] + silent_ns[worker_of[task]]

    def at_rest(self) -> bool:
        """Whether all other workers are quiet, and all links between any two are empty."""
        quiet = self._quiet.tolist()
        quiet[self._me] = 1
        words, link_at, slots = self._words, self._board.link_at, range(self._board.n_slots)
        # Links afterwards: a worker that got a frame, and is quiet, has published that it processed the frame.
        return all(quiet) and all(words[link_at(i, j)] == words[link_at(i, j) + 1] for i in slots for j in slots)

    def publish_full(self) -> None:
        """Publish at once which queues here became full or ceased to be: others keep sending until they know."""
        full = self._core.pressure.full
        if full == self._said_full:
            return
        for task in self._said_full ^ full:
            self._full[task - 1] = task in full
        self._said_full = set(full)
        if full:
            self._words[self._at + SLOT_CONGESTED] = 1

    def publish(self, acted: bool, congested: bool) -> None:
        """Write everything that may have changed. `acted`: whether the turn that ends now did (`Turn.acted`)."""
        words, at = self._words, self._at
        core = self._core
        quiet = not acted and core.quiet
        if acted or self.has_acted:
            # Earlier turns may be unpublished: clear "quiet", so that no reader pairs an old one with new counters.
            self.has_acted = False
            self._progress += 1
            words[at + SLOT_QUIET] = 0
            words[at + SLOT_PROGRESS] = self._progress
        words[at + SLOT_BACKLOG] = core.backlog
        words[at + SLOT_CONGESTED] = congested or core.pressure.congested
        words[at + SLOT_HELD_BYTES] = core.pressure.held_bytes
        words[at + SLOT_ACTIVE] = core.active
        self._publish_tasks()
        for task, wait_ns in core.pace.waits_ns().items():
            self._waits[task - 1] = wait_ns
        self._publish_links()
        if not self._is_working and core.has_worked:
            self._is_working = True
            words[at + SLOT_WORKING_NS] = self._now_ns()
        # Last, so that a reader that sees "quiet" sees the counters and link positions that belong to it.
        words[at + SLOT_QUIET] = quiet
        self._plane.confirm()
        words[at + SLOT_HEARTBEAT_NS] = self._now_ns()

    def publish_memory(self, rss_bytes: int) -> None:
        """Publish the memory in use: after a death it tells whether memory was the reason."""
        self._words[self._at + SLOT_RSS_BYTES] = rss_bytes

    def _publish_tasks(self) -> None:
        words = self._words
        self._core.refresh_gauges()
        for at, stats, base in self._rows:
            words[at : at + _COUNTERS] = array("Q", map(add, stats.counters(), base))
            touched = stats.touched
            if touched:
                histogram, at = stats.histogram, at + _COUNTERS
                for bucket in touched:
                    words[at + bucket] = histogram[bucket]
                touched.clear()

    def _publish_links(self) -> None:
        words, board, me = self._words, self._board, self._me
        for peer, incarnation, sent, processed in self._plane.positions():
            words[board.link_at(me, peer)] = link_word(self._incarnation, incarnation, sent)
            words[board.link_at(peer, me) + 1] = link_word(incarnation, self._incarnation, processed)
        lost = self._plane.lost
        if lost < self._lost:
            # A peer was replaced, and the counts of its link are gone.
            self._lost_before += self._lost - lost
        self._lost = lost
        plane = self._plane
        now = (lost + self._lost_before, plane.counts["frames repeated"], plane.refused, self._reconnects)
        for index, (base, count) in enumerate(zip(self._link_base, now, strict=True)):
            words[self._at + SLOT_LINKS + index] = base + count


def explanation_of(board: Board, worker: int, incarnation: int) -> str:
    """What is known about the end of a dead worker, as an error text; "" if any tuple may have caused it."""
    if board.explained(worker, incarnation):
        return ANOTHER_TUPLE
    return "" if board.accused(worker, incarnation) else FROM_OUTSIDE


def link_word(sender_incarnation: int, receiver_incarnation: int, position: int) -> int:
    """A position on a link, marked with the incarnations at its ends: if both ends' words are equal, it is empty."""
    return (sender_incarnation & 0xFFFF) << 48 | (receiver_incarnation & 0xFFFF) << 32 | position & 0xFFFF_FFFF


class BoardTrialPermit(TrialPermit):
    """One worker's side of the permit to try suspects, which the workers of a topology pass on over the board.

    A worker asks by writing the time into its word. The earliest to ask has the permit once every worker is ready: a
    suspect that waits in a queue for a worker's replacement could be blamed for its death too. No other worker's
    suspects are under way then, so each death has one group of suspects. The words need no lock: a worker takes the
    permit a millisecond after it has asked, when every earlier request is visible.

    `bounded`: trials end with a dead letter, so a death on trial is progress."""

    def __init__(
        self, board: Board, me: int, bounded: bool, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        super().__init__()
        self._board = board
        self._me = me
        self._at = board.slot_at(me) + SLOT_TRIAL
        self._bounded = bounded
        self._now_ns = now_ns
        self._asking: set[int] = set()
        """The spout tasks of this worker that have the permit or ask for it."""
        board.words[self._at] = 0

    def _others(self) -> list[tuple[int, int]]:
        """(time of request, slot) of every other worker that asks."""
        asked = enumerate(self._board.column(SLOT_TRIAL))
        return [(request, slot) for slot, request in asked if request and slot != self._me]

    def begin(self, task: int) -> bool:
        self._asking.add(task)
        return (self.owner is not None or self._may_begin()) and super().begin(task)

    def _may_begin(self) -> bool:
        words, board, now = self._board.words, self._board, self._now_ns()
        asked = words[self._at]
        if not asked:
            words[self._at] = now | 1 if self._bounded else now & ~1
            return False
        if now - asked < _VISIBLE_AFTER_NS or any(request < (asked, self._me) for request in self._others()):
            return False
        return all(board.slot(slot).state == READY for slot in range(board.n_slots) if slot != self._me)

    def end(self, task: int) -> None:
        self._asking.discard(task)
        if self.owner == task or not self._asking:
            # Also while another task of this worker asks: the other workers that ask come first.
            self._board.words[self._at] = 0
        super().end(task)

    def turned_since(self, at_ns: int) -> bool:
        board = self._board
        return all(
            board.slot(slot).state == READY and board.column(SLOT_HEARTBEAT_NS)[slot] > at_ns
            for slot in range(board.n_slots)
            if slot != self._me
        )
