"""Decides how many messages a spout task may have open, where no number was set: enough for full speed, and no more.

Too few, and workers wait for messages; too many, and messages wait in queues. By Little's law, n open messages of which
r are acked per second take n / r seconds each. So up to some number, the knee, more open messages are acked faster, and
above it they only take longer. Where the knee lies follows from the bolts: microseconds or minutes a tuple, one task or
hundreds, acked at once, on a tick or by the thousand. All that is known is how many bolt tasks have threads, which wait
at once: fewer messages than two for each, one at hand and the next, leave some idle. The limit is changed and the rate
measured:

* Under the goal (`GOAL_NS`) a message, it is raised: that costs nobody anything.
* Else it is raised on trial, and stays so if the rate rises by much of that; and lowered on trial, and stays so if the
  rate is as before. If neither helps, the limit rests, ever longer.
* Where half of the open messages or more are acked at once (a lump), bolts take them in one call, and a bulk insert
  takes as long with more. Then each call is a measurement, and the limit is raised faster, and before it is lowered.
* When nothing moves in the whole topology and the spout waits at its limit (`starved`), bolts hold all it may emit, and
  wait for more or for the time. Then the limit is doubled at once, and is not lowered that far again for a while: so a
  bolt that acks nothing before it has n tuples gets its n.

Measurements begin and end with acks, so bolts that ack in series do not blur them. They only count while the spout
waits at its limit; one whose source is slower keeps it.

Guarantees: the limit is from `LEAST`, or what threads need, to `MOST`; above `PLAIN` only as far as `MOST_BYTES` of
values may be open, and above `FIRST`, or what threads need, only as far as `MOST_LONG_BYTES`.
Decides only: the caller reads clock and counters. Thread: the worker's loop.
"""

from __future__ import annotations

import math

FIRST = 16
"""The limit at first: quick bolts raise it to thousands within milliseconds, and one task that takes a second for each
executes so many before they time out. Of 64, half would, and so on for ever: no acks, no other limit."""
LEAST, MOST = 4, 65_536
PLAIN = 2048
"""The limit where order must not depend on time; any spout may have so many messages open, if they are not long."""
MOST_BYTES = 64 << 20
MOST_LONG_BYTES = 1 << 30
"""A bolt that keeps long values until a tick takes as many as it gets, and has them in memory as the spout has."""
GOAL_NS = 100_000_000
"""Time from emit to ack that is short enough at full speed. A message takes several turns of 4 ms, and where other
programs keep a worker from its processor, the others go on with what is open: with 20 ms, word count lost a fifth of
its throughput on a machine that was busy with other things."""
_FAR = 4
"""Times of the goal from which the limit is rather too high than too low."""
EASY_WORKERS = 2
"""Workers for each processor up to which `GOAL_NS` is the goal; of more, it grows with them. They wait for their turns,
so a message takes long however few are open, and few messages fill no frames: 16 workers on 2 processors spend half as
much on a line of word count at four times the goal, and its lines take no longer."""

_LOOK_NS = 1_000_000
_LEAST_NS = 2_000_000
"""Between two looks, and length of the shortest measurement."""
_LOOKS, _MANY_LOOKS = 16, 64
"""Looks that found acks, after which half a limit of acks is a measurement, or any number. So is twice the limit."""
_LIMITED = 0.05
"""Share of its time that a spout waits at its limit, from which the limit counts as the cause of its rate."""
_STEPS = ((2.0, 1.4), (1.25, 1.1))
"""(growth, least growth of the rate for it): the first until that fails, then the second until that succeeds."""
_LUMP_GROWTH = 4
"""Growth in place of the first after a lump: 8,192 messages within ten calls, the first of which are for few rows."""
_WORTH = 1.1
"""Least growth under the goal."""
_KEPT = 0.95
"""Rate, in rates before, from which a lower limit costs nothing."""
_OTHER = 0.8
"""Rate, in the rate that follows from a lower limit, below which the bolts themselves have become slower."""
_REST_NS, _MOST_REST_NS = 250_000_000, 10_000_000_000
_UNSAFE_NS = 60_000_000_000
"""Time for which a limit at which the spout starved is not come back to."""
_NEVER = 1 << 63

UP, DOWN = 1, -1


class PendingLimit:
    """The limit of one spout task."""

    __slots__ = (
        "_acked", "_anchor", "_before", "_bulk", "_failed", "_from", "_goal_ns", "_least", "_looks", "_lump",
        "_rest_ns", "_rests_until_ns", "_settled_at", "_step", "_trial", "_unsafe", "_unsafe_until_ns", "due_ns",
        "limit",
    )

    def __init__(
        self, timed: bool = True, workers_per_processor: float = 1, bulk: bool = True, least: int = LEAST
    ) -> None:
        """`timed`: whether the limit may depend on measured time. If not, it only rises, when the spout starves.
        `bulk`: whether a bolt may take several messages in one call. If not, a slow lump is of tasks in step. `least`:
        messages that threads need."""
        self._goal_ns = round(GOAL_NS * max(1.0, workers_per_processor / EASY_WORKERS))
        self._least = min(max(LEAST, least), PLAIN)
        self.limit = max(FIRST, self._least) if timed else PLAIN
        self.due_ns = 0 if timed else _NEVER
        """When to `look` next."""
        self._bulk = bulk
        self._acked = 0
        self._settled_at = 0
        """Acks after which the last change of the limit shows in the rate."""
        self._from: tuple[int, int, int] | None = None
        """(time, acks, time waited at the limit) at which the measurement began."""
        self._looks = 0
        self._lump = False
        """True if the last look found as many acks as half of the limit."""
        self._trial = 0
        self._step = 0
        """Index in _STEPS of the next raise on trial."""
        self._before = 0
        """The limit before the trial."""
        self._anchor = 0.0
        """The rate that a lower limit is compared with: the best since it is being lowered."""
        self._failed: set[int] = set()
        """Directions that were tried in vain since the last rest."""
        self._rest_ns = _REST_NS
        self._rests_until_ns = 0
        self._unsafe = 0
        self._unsafe_until_ns = 0

    def look(self, now_ns: int, acked: int, waited_ns: int, emit_bytes: int) -> None:
        """Look at the totals of acks and of time waited at the limit, and perhaps change the limit. `emit_bytes`:
        size of one message's values."""
        self.due_ns = now_ns + _LOOK_NS
        if acked == self._acked:
            return
        self._lump, self._acked = 2 * (acked - self._acked) >= self.limit, acked
        if acked < self._settled_at:
            return
        here = now_ns, acked, waited_ns
        if self._from is None:
            self._from, self._looks = here, 0
            return
        self._looks += 1
        began_ns, acked_before, waited_before_ns = self._from
        acks, took_ns = acked - acked_before, now_ns - began_ns
        looks = self._looks
        limits = acks / self.limit
        enough = limits >= (1 if self._lump else 2) or looks >= _MANY_LOOKS or (looks >= _LOOKS and limits >= 0.5)
        if not enough or took_ns < _LEAST_NS:
            return
        self._from, self._looks = here, 0
        limit = self.limit
        self._judge(now_ns, acks / took_ns, (waited_ns - waited_before_ns) / took_ns >= _LIMITED, emit_bytes)
        if self._lump and self.limit > limit:
            # Little is open that was emitted under the lower one.
            self._settled_at, self._from = 0, here

    def starved(self, now_ns: int, emit_bytes: int) -> None:
        """Nothing moves, and the spout waits at its limit: raise it."""
        lowered = self._trial == DOWN
        wanted = self._before if lowered else min(2 * self.limit, self._cap(emit_bytes))
        self._unsafe, self._unsafe_until_ns = wanted - 1 if lowered else self.limit, now_ns + _UNSAFE_NS
        self.limit = max(self.limit, wanted)
        self._trial, self._anchor, self._step = 0, 0.0, 0
        self._from, self._settled_at = None, 0

    def may_rise(self, emit_bytes: int) -> bool:
        """Whether `starved` would raise it."""
        return self.limit < self._cap(emit_bytes)

    @staticmethod
    def _cap(emit_bytes: int) -> int:
        size = max(1, emit_bytes)
        return max(FIRST, min(PLAIN, MOST_LONG_BYTES // size), min(MOST, MOST_BYTES // size))

    def _judge(self, now_ns: int, rate: float, limited: bool, emit_bytes: int) -> None:
        """Draw the conclusion of one measurement. `rate`: acks per ns."""
        takes_ns = self.limit / rate
        self._lump = self._lump and (self._bulk or takes_ns <= self._goal_ns)
        if self._trial:
            trial, self._trial = self._trial, 0
            if trial == UP:
                good = rate >= _STEPS[self._step][1] * self._anchor or takes_ns <= self._goal_ns
                self._step = 0 if good else 1
            elif rate < _OTHER * self._anchor * self.limit / self._before:
                # It fell by more than the limit did: for another reason. What it would have been is not known.
                self._anchor = 0.0
                return
            else:
                good = rate >= _KEPT * self._anchor or not limited
            if not good:
                self._failed.add(trial)
                self._anchor = 0.0
                self._change(self._before)
                return
            self._rest_ns = _REST_NS
            if trial == UP:
                # The rate has just risen with the limit: a lower one is not worth a trial.
                self._failed.add(DOWN)
            self._anchor = max(self._anchor, rate) if trial == DOWN else 0.0
        if not limited:
            return
        cap = self._cap(emit_bytes)
        growth = _LUMP_GROWTH if self._lump else 2
        free = min(growth * self.limit, math.ceil(self._goal_ns * rate), cap)
        on_trial = min(math.ceil((_STEPS[self._step][0] if self._step else growth) * self.limit), cap)
        rests = now_ns < self._rests_until_ns
        if free > self.limit * _WORTH and (rests or free >= on_trial or not self._lump):
            self._step = 0
            self._change(free)
        elif not rests:
            self._try(now_ns, rate, takes_ns, on_trial)

    def _try(self, now_ns: int, rate: float, takes_ns: float, higher: int) -> None:
        """Begin a trial, or a rest if there is nothing left to try. `higher`: the limit to raise it to."""
        floor = self._least if now_ns >= self._unsafe_until_ns else max(self._least, self._unsafe + 1)
        lower = max(floor, self.limit // 2 if takes_ns > _FAR * self._goal_ns else self.limit * 7 // 10)
        to_try = {}
        if higher > self.limit:
            to_try[UP] = higher
        if lower < self.limit and takes_ns > 2 * self._goal_ns:
            to_try[DOWN] = lower
        for direction in (DOWN, UP) if takes_ns > _FAR * self._goal_ns and not self._lump else (UP, DOWN):
            if direction in to_try and direction not in self._failed:
                self._trial, self._before = direction, self.limit
                self._anchor = max(self._anchor, rate) if direction == DOWN else rate
                self._change(to_try[direction])
                return
        self._failed.clear()
        self._anchor = 0.0
        self._rests_until_ns = now_ns + self._rest_ns
        self._rest_ns = min(2 * self._rest_ns, _MOST_REST_NS)

    def _change(self, limit: int) -> None:
        """Set the limit; what was emitted under the former one is not measured."""
        self._settled_at = self._acked + min(self.limit, limit)
        self._from = None
        self.limit = limit
