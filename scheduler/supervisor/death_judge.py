"""Judges the deaths of a topology's workers: progress, another try, no hope, or the end of a slot.

Every limit on deaths is here or in the policy that this consults; all others read the verdict: Nimbus is told of a slot
that is given up, and the status board shows which topologies are hopeless.

    =========  ==============================================  ====================================================
    verdict    when                                            what follows
    =========  ==============================================  ====================================================
    excused    the death brought a dead letter nearer, and     a restart soon; it does not count against the slot
               messages are acked now and then
    hopeless   HOPELESS_ERRORS or HOPELESS_DEATHS in a         waiting for the topology's end fails; its workers are
               row with no progress between them, and, if      started again all the same
               the last error may pass, for `PATIENCE_SECS`
    given up   more than `max_deaths` within the period        the slot is FAILED
    =========  ==============================================  ====================================================

*Progress* is a message that was acked or became a dead letter, or a death that brought one nearer. Deaths of that kind
are progress only as long as messages are acked between them: a bolt that fails on every tuple would make every message
a dead letter, one after another.

Guarantees: one verdict per death. A verdict on a topology holds for all of its slots on this node.

Relies on: its caller to read the totals of the spouts' counters off the status board. Pure. Thread: the supervisor's
loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import NamedTuple

from squall.engine.report.failure_log import cause_of_error
from squall.engine.tracking.doubt import PATIENCE_SECS, may_pass
from squall.scheduler.common.messages import SlotAssignment
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions, StartAgain

HOPELESS_ERRORS = 6
"""Deaths by an error of user code in a row without progress: such an error repeats. One more than the messages that
tell a fault of the set-up (`engine.tracking.doubt`), which names the line and the tuple."""
HOPELESS_DEATHS = 20
"""Deaths of any kind (a signal, an exit) in a row without progress: leaves room for tests that kill workers."""
CRASHES_WITHOUT_ANY_ACK = 15
"""Deaths that were charged to messages before any was acked: the first few messages of a stream may be bad, but not
all."""
CRASHES_WITHOUT_AN_ACK = 125
"""The same, once a message was acked: the end of a finite stream may be nothing but poison."""


class Totals(NamedTuple):
    """Counters of all spouts of a topology, since it was submitted."""

    acked: int = 0
    dead_letters: int = 0
    crashes: int = 0
    """Deaths that were charged to messages."""


class DeathVerdict(NamedTuple):
    """The judgement of one death."""

    then: StartAgain | GiveUp
    excused: bool
    deaths: int
    """Deaths in a row without progress, this one included."""
    hopeless: bool


class _Streak:
    """The deaths of one topology on this node."""

    def __init__(self) -> None:
        self._acked = self._crashes = 0
        """The totals when a message was acked last."""
        self._progress = 0
        self.deaths = self._errors = 0
        """Deaths in a row without progress."""

        self._since = 0.0
        self._may_pass = False
        """Whether the errors, which began then, may yet go by themselves."""

    @property
    def is_hopeless(self) -> bool:
        if self._may_pass:
            return False
        return self._errors >= HOPELESS_ERRORS or self.deaths >= HOPELESS_DEATHS

    def leads_anywhere(self, totals: Totals) -> bool:
        """Whether messages are acked between the deaths that are charged to messages."""
        if totals.acked > self._acked:
            self._acked, self._crashes = totals.acked, totals.crashes
        limit = CRASHES_WITHOUT_AN_ACK if totals.acked else CRASHES_WITHOUT_ANY_ACK
        return totals.crashes - self._crashes < limit

    def went_on(self, totals: Totals) -> bool:
        """Whether there was progress since the last look."""
        before, self._progress = self._progress, sum(totals)
        went_on = self.leads_anywhere(totals) and self._progress > before
        if went_on:
            self.deaths = self._errors = 0
        return went_on

    def died(self, totals: Totals, now: float, error: str) -> None:
        if not self.went_on(totals):
            self._since = self._since if self.deaths else now
            self._may_pass = may_pass(cause_of_error(error).kind) and now - self._since < PATIENCE_SECS
            self.deaths += 1
            self._errors += bool(error)


class DeathJudge:
    """The judge of one node."""

    def __init__(
        self, restart: RestartPolicyOptions, rng: random.Random,
        totals: Callable[[SlotAssignment], Totals] = lambda work: Totals(),
    ) -> None:
        """`restart`: for one slot, its delays, and when it is given up."""
        self._restart = restart
        self._rng = rng
        self._totals = totals
        self._policies: dict[int, RestartPolicy] = {}
        """Port -> policy of its slot."""
        self._streaks: dict[str, _Streak] = {}
        """Topology id -> its deaths."""

    def begin(self, port: int) -> None:
        """A slot has new work."""
        self._policy(port).reset()

    def reset(self, port: int, work: SlotAssignment) -> None:
        """An operator has reset the slot: forget its deaths."""
        self._policy(port).reset()
        self._streaks.pop(work.topology.id, None)

    def died(
        self, port: int, work: SlotAssignment, now: float, lived_secs: float, error: str, nearer: bool
    ) -> DeathVerdict:
        """Judge a worker's end that was not ordered. `error`: of user code; `nearer`: to a dead letter."""
        totals, streak = self._totals(work), self._streak(work)
        streak.died(totals, now, error)
        excused = nearer and streak.leads_anywhere(totals)
        then = self._policy(port).died(now, lived_secs, excused)
        return DeathVerdict(then, excused, streak.deaths, streak.is_hopeless)

    def fork_refused(self, port: int, work: SlotAssignment) -> DeathVerdict:
        """Judge a failed fork: the slot is not to blame, but the topology makes no progress."""
        streak = self._streak(work)
        streak.died(self._totals(work), 0.0, "")
        return DeathVerdict(self._policy(port).fork_refused(), False, streak.deaths, streak.is_hopeless)

    def is_hopeless(self, work: SlotAssignment) -> bool:
        """Whether the topology still makes no progress, by its present counters."""
        streak = self._streak(work)
        return streak.is_hopeless and not streak.went_on(self._totals(work))

    def keep_only(self, topologies: Collection[str]) -> None:
        """Forget other topologies."""
        self._streaks = {key: streak for key, streak in self._streaks.items() if key in topologies}

    def _policy(self, port: int) -> RestartPolicy:
        return self._policies.setdefault(port, RestartPolicy(self._restart, self._rng))

    def _streak(self, work: SlotAssignment) -> _Streak:
        return self._streaks.setdefault(work.topology.id, _Streak())
