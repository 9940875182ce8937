"""A worker's side of the status board: what it publishes of itself, and what it reads of the others.

Guarantees: counters go on from where the worker's former incarnation left them. Publishing is called after every turn
that did something, so a death loses at most one turn's counts (never a tuple: those are the ackers').

The worker's loop thread.
"""

from __future__ import annotations

import time
from array import array
from operator import add

from engine.core import WorkerCore
from engine.metrics import FIRST_GAUGE, TASK_COUNTERS
from ipc.board import (
    READY,
    SLOT_ACTIVE,
    SLOT_AT_HAND,
    SLOT_BACKLOG,
    SLOT_CONGESTED,
    SLOT_EXPLAINED,
    SLOT_HEARTBEAT_NS,
    SLOT_IDENTITY,
    SLOT_LINKS,
    SLOT_PROGRESS,
    SLOT_QUIET,
    SLOT_RSS_BYTES,
    SLOT_WORKING_NS,
    STARTING,
    Board,
)
from ipc.data_plane import DataPlane

_COUNTERS = len(TASK_COUNTERS)


class WorkerBoard:
    """One worker's view of its topology's board."""

    def __init__(self, board: Board, core: WorkerCore, plane: DataPlane, me: int, incarnation: int) -> None:
        self._board = board
        self._words = board.words
        self._core = core
        self._plane = plane
        self._me = me
        self._incarnation = incarnation
        self._at = board.slot_at(me)
        self._seen = [0] * board.n_slots
        self._identities = board.column(SLOT_IDENTITY)
        self._congested = board.column(SLOT_CONGESTED)
        self._base: dict[int, list[int]] = {}
        for task, stats in core.stats.items():
            counters = board.task_counters(task)
            grown = [counters[name] for name in TASK_COUNTERS[:FIRST_GAUGE]]
            self._base[task] = grown + [0] * (_COUNTERS - FIRST_GAUGE)
            stats.histogram = board.task_histogram(task)
        self._progress = self._words[self._at + SLOT_PROGRESS]
        self._words[self._at + SLOT_WORKING_NS] = 0
        self._words[self._at + SLOT_AT_HAND] = 0
        self._is_working = False
        self._link_base = list(board.link_counts(me).values())
        self._met: set[int] = set()
        self._reconnects = 0
        self._lost_before = self._lost = 0

    def changed_peers(self) -> list[tuple[int, int, int]]:
        """(slot, incarnation, state) of every other worker that is not as it was at the last call."""
        before, self._seen = self._seen, self._identities.tolist()
        if before == self._seen:
            return []
        pairs = enumerate(zip(before, self._seen, strict=True))
        return [(slot, now >> 8, now & 0xFF) for slot, (was, now) in pairs if now != was and slot != self._me]

    @staticmethod
    def is_alive(state: int) -> bool:
        return state in (STARTING, READY)

    def publish_dead_letters(self, task: int) -> None:
        """Write the count of a spout task's dead letters at once: it must not be lost with what comes after it."""
        index = TASK_COUNTERS.index("dead_letters")
        self._words[self._board.task_at(task) + index] = self._base[task][index] + self._core.stats[task].dead_letters

    def connected(self, slot: int) -> None:
        """A link to a peer is being opened."""
        self._reconnects += slot in self._met
        self._met.add(slot)

    def explain(self, charged: bool) -> None:
        """This incarnation is about to end by an exception; `charged`: to a tuple that has a limit."""
        self._words[self._at + SLOT_EXPLAINED] = self._incarnation << 1 | charged

    def others_congested(self) -> bool:
        """Whether any other worker asks the spouts to wait."""
        congested = self._congested.tolist()
        congested[self._me] = 0
        return any(congested)

    def publish(self, worked: bool, congested: bool) -> None:
        """Write everything that may have changed."""
        words, at = self._words, self._at
        core = self._core
        quiet = not worked and core.quiet
        if worked:
            self._progress += 1
            words[at + SLOT_QUIET] = 0
            words[at + SLOT_PROGRESS] = self._progress
        words[at + SLOT_BACKLOG] = core.backlog
        words[at + SLOT_CONGESTED] = congested
        words[at + SLOT_ACTIVE] = core.active
        self._publish_tasks()
        self._publish_links()
        if not self._is_working and any(stats.emitted or stats.executed for stats in core.stats.values()):
            self._is_working = True
            words[at + SLOT_WORKING_NS] = time.monotonic_ns()
        # Last, so that who sees "quiet" sees the counters and link positions that belong to it.
        words[at + SLOT_QUIET] = quiet
        self._plane.confirm_acks()
        words[at + SLOT_HEARTBEAT_NS] = time.monotonic_ns()

    def publish_memory(self, rss_bytes: int) -> None:
        """For whoever asks, after a death, whether it was memory."""
        self._words[self._at + SLOT_RSS_BYTES] = rss_bytes

    def _publish_tasks(self) -> None:
        words, board, core = self._words, self._board, self._core
        core.refresh_gauges()
        for task, stats in core.stats.items():
            at = board.task_at(task)
            counters = stats.counters()
            base = self._base[task]
            words[at : at + _COUNTERS] = array("Q", map(add, counters, base))
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
            # A peer was replaced, and what its link had counted went with it.
            self._lost_before += self._lost - lost
        self._lost = lost
        counts = self._plane.counts
        now = (lost + self._lost_before, counts["frames repeated"], counts["frames refused"], self._reconnects)
        for index, (base, count) in enumerate(zip(self._link_base, now, strict=True)):
            words[self._at + SLOT_LINKS + index] = base + count


def link_word(sender_incarnation: int, receiver_incarnation: int, position: int) -> int:
    """A position on a link, marked with the two incarnations it is between: equal words mean nothing is under way."""
    return (sender_incarnation & 0xFFFF) << 48 | (receiver_incarnation & 0xFFFF) << 32 | position & 0xFFFF_FFFF
