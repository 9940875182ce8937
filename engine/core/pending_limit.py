"""Decides how many messages a spout task may have open, where no number was set: enough for full speed, and no more.

Too few, and workers wait for messages; too many, and messages wait in queues. By Little's law, n open messages of which
r are acked per second take n / r seconds each. So up to some number, the knee, more open messages are acked faster, and
above it they only take longer. Where the knee lies follows from the bolts: microseconds or minutes a tuple, one task or
hundreds, acked at once, on a tick or by the thousand. All that is known is how many bolt tasks have threads, which wait
at once: fewer messages than two for each, one at hand and the next, leave some idle. The limit is changed and the rate
measured:

* Under the goal (`GOAL_NS`) a message, it is raised: that costs nobody anything.
* Else it is raised on trial, and stays so if the rate rises by half as much; if that fails it is lowered on trial, and
  stays so if the rate is as before. If neither helps, the limit rests, ever longer.
* Where half of the open messages or more are acked at once (a lump), bolts take them in one call, and a bulk insert
  takes as long with more. Then each call is a measurement, and the limit is raised faster.
* When nothing moves in the whole topology and the spout waits at its limit (`starved`), bolts hold all it may emit, and
  wait for more or for the time. Then the limit is doubled at once: so a bolt that acks nothing before it has n tuples
  gets its n.

Measurements begin and end with acks, so bolts that ack in series do not blur them. They only count while the spout
waits at its limit; one whose source is slower keeps it.

Guarantees: the limit is from `LEAST`, or what threads need, to `MOST`; above `PLAIN` only as far as `MOST_BYTES` of
values may be open, and above `FIRST`, or what threads need, only as far as `MOST_LONG_BYTES`.
Decides only: the caller reads clock and counters. Thread: the worker's loop.
"""

from __future__ import annotations

import math

from squall.engine.core.pace import NEVER_NS

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
EASY_WORKERS = 2
"""Workers for each processor up to which `GOAL_NS` is the goal; of more, it grows with them. They wait for their turns,
so a message takes long however few are open, and few messages fill no frames: 16 workers on 2 processors spend half as
much on a line of word count at four times the goal, and its lines take no longer."""

_LOOK_NS = 1_000_000
"""Time between two looks."""
_LOOKS = 32
"""Looks that found acks, after which any number of acks is a measurement. So is twice the limit, and a lump of it."""
_LIMITED = 0.05
"""Share of its time that a spout waits at its limit, from which the limit counts as the cause of its rate."""
_FREE, _FREE_LEAST = 2, 1.1
"""Growth under the goal, at most and at least."""
_HIGHER, _HIGHER_LUMP, _GAIN = 1.5, 4, 1.25
"""Growth on trial (after a lump: 8,192 messages within ten calls), and the growth of the rate that is worth it."""
_LOWER, _KEPT = 0.7, 0.95
"""A lower limit on trial, and the rate at which it costs nothing."""
_FAR = 2
"""Times of the goal from which a lower limit is worth a trial."""
_REST_NS, _MOST_REST_NS = 250_000_000, 10_000_000_000


class PendingLimit:
    """The limit of one spout task."""

    __slots__ = (
        "_acked", "_before", "_best", "_bulk", "_from", "_goal_ns", "_least", "_looks", "_rest_ns", "_rests_until_ns",
        "_settled_at", "_upward", "due_ns", "limit",
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
        self.due_ns = 0 if timed else NEVER_NS
        """When to `look` next."""
        self._bulk = bulk
        self._acked = self._settled_at = 0
        """Acks so far, and those after which the last change of the limit shows in the rate."""
        self._from: tuple[int, int, int] | None = None
        """(time, acks, time waited at the limit) at which the measurement began."""
        self._looks = 0
        self._before = 0
        """The limit before the trial; 0: there is no trial."""
        self._best = 0.0
        """The rate that a trial is compared with: the best in this direction."""
        self._upward = True
        """The direction of the next trial."""
        self._rest_ns = _REST_NS
        self._rests_until_ns = 0

    def look(self, now_ns: int, acked: int, waited_ns: int, emit_bytes: int) -> None:
        """Look at the totals of acks and of time waited at the limit, and perhaps change the limit. `emit_bytes`:
        size of one message's values."""
        self.due_ns = now_ns + _LOOK_NS
        newly, self._acked = acked - self._acked, acked
        if not newly or acked < self._settled_at:
            return
        if self._from is not None:
            self._looks += 1
            began_ns, acked_before, waited_before_ns = self._from
            limit, acks, took_ns = self.limit, acked - acked_before, now_ns - began_ns
            lump = 2 * newly >= limit
            if acks < (limit if lump else 2 * limit) and self._looks < _LOOKS:
                return
            rate = acks / took_ns
            lump = lump and (self._bulk or limit / rate <= self._goal_ns)
            self._judge(now_ns, rate, (waited_ns - waited_before_ns) / took_ns >= _LIMITED, lump, self._cap(emit_bytes))
            # After a lump, little is open that was emitted under the lower limit.
            if self.limit < limit or (self.limit > limit and not lump):
                self._settled_at, self._from = acked + min(self.limit, limit), None
                return
        self._from, self._looks = (now_ns, acked, waited_ns), 0

    def starved(self, emit_bytes: int) -> None:
        """Nothing moves, and the spout waits at its limit: raise it."""
        self.limit = max(self.limit, min(2 * self.limit, self._cap(emit_bytes)))
        self._before, self._best, self._upward = 0, 0.0, True
        self._from, self._settled_at = None, 0

    def may_rise(self, emit_bytes: int) -> bool:
        """Whether `starved` would raise it."""
        return self.limit < self._cap(emit_bytes)

    @staticmethod
    def _cap(emit_bytes: int) -> int:
        size = max(1, emit_bytes)
        return max(FIRST, min(PLAIN, MOST_LONG_BYTES // size), min(MOST, MOST_BYTES // size))

    def _judge(self, now_ns: int, rate: float, limited: bool, lump: bool, cap: int) -> None:
        """Draw the conclusion of one measurement. `rate`: acks per ns; `cap`: the most that memory allows."""
        limit, takes_ns = self.limit, self.limit / rate
        if self._before:
            before, self._before = self._before, 0
            if rate < (_GAIN if limit > before else _KEPT) * self._best and takes_ns > self._goal_ns:
                self.limit = before
                self._turn(now_ns)
                return
            self._rest_ns = _REST_NS
        if not limited:
            return
        free = min(math.ceil(self._goal_ns * rate), _FREE * limit, cap)
        rests = now_ns < self._rests_until_ns
        if free > _FREE_LEAST * limit and (rests or not lump):
            self.limit = free
        elif not rests:
            if self._upward:
                trial = min(math.ceil((_HIGHER_LUMP if lump else _HIGHER) * limit), cap)
            else:
                trial = max(self._least, int(_LOWER * limit)) if takes_ns > _FAR * self._goal_ns else limit
            if trial == limit:
                self._turn(now_ns)
            else:
                self.limit, self._before, self._best = trial, limit, max(self._best, rate)

    def _turn(self, now_ns: int) -> None:
        """Try the other direction next; after both, rest."""
        self._upward, self._best = not self._upward, 0.0
        if self._upward:
            self._rests_until_ns = now_ns + self._rest_ns
            self._rest_ns = min(2 * self._rest_ns, _MOST_REST_NS)
