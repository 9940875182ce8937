"""The pace of one worker: how much is done at a time. Every knob, and the experiment behind it, is in docs/pace.md.

* *Slice by time* (`Pace.emits`, and `slice_ns` of bolts): so much as takes a few milliseconds, so that answers, frames
  and commands are not kept waiting.
* *Rows a call* (`CallCost`): so many as make the fixed time of a bulk call small.
* *Open messages* (`engine.core.pending_limit`): so many as full speed needs.

Shuffles follow the same measures: tuples go where they would not wait (`waits_ns`, `balance`). The wait for a bolt
task of the loop is the time that the loop's queues take, and a turn as it was of late: a worker in which anything else
takes long, such as the bolt of a frequent key, is chosen seldom as well. Its own queue counts twice: of two tasks of
one loop, the one with the shorter queue adds less. A task with a thread of its own has only its queue.

Guarantees: tasks with even waits get even shares, and no task is left out for good: one that nothing is sent to has no
queue soon, and gets its turns again. Where order must not depend on time (`timed` is False), all is as on a machine
that takes no time: numbers of rows and bytes alone end a slice.

Decides only: is told times, and reads no clock. Thread: the worker's loop; that of the task for `CallCost`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from squall.engine.api.plan import Plan
from squall.engine.api.topology import LOCAL_OR_SHUFFLE, SHUFFLE, Topology
from squall.engine.flow.emitter import Emitter
from squall.engine.flow.shuffle_rounds import Shares, shares_of

SLICE_NS = 5_000_000
"""Time that a bolt's task executes before its acks and emits leave, and others get their turn. Batches of quick bolts
never take so long; a slow bolt does not keep its worker, or its own acks, waiting. The number of tuples follows from
the time of the last ones: a limit on their number as well (512) cost a tenth of word count's throughput."""
TURN_NS = 2 * SLICE_NS
"""Time that a turn should take. Of one that is longer, bolts end their rounds, and spouts emit less in the next. Word
count's turns take 4 ms. One slow bolt takes a slice of each turn, so with less, spouts beside it would stand still."""
NEVER_NS = 1 << 63
"""Later than any clock."""
EMIT_NS = 2_000_000
"""Time that a spout's task may emit in one turn: one that reads slowly, or sleeps between tuples as Storm's spouts do,
does not keep bolts, answers and its worker's heartbeat waiting. Word count's 256 lines take 0.8 ms."""
FIRST_EMITS, MOST_EMITS, MOST_BATCH_EMITS = 16, 256, 8192
"""Emits per spout task and turn: large enough that a turn's overhead (some 50 us with its frames) is small against it,
small enough that bolts and answers do not wait long. More gained nothing in `make bench`, 128 cost 10 %. A worker
begins with fewer, because the speed of its bolts is unknown at first. A row of a batch costs a quarter of another emit
at most, and a thirtieth as a column of Arrow."""

_GROWTH = 4
"""A turn has at most so many times the emits of the one before, and a call so many times the rows of the longest
before: 65,536 after eight."""
_KEPT = 0.8
"""Weight of a call in that of the next one."""
_ROWS_PER_FIXED = 4
_LAST = 32
"""Calls of which the shortest bounds the fixed time."""
_LEAST_FIXED_NS = 1_000_000
"""Fixed time for which batches are joined: for less, copying their rows (some 100 ns each) costs as much."""
_MOST_ROWS_NS = 2_000_000_000
"""Time of the rows in a call whose fixed time is longer than half a second: a loop may be silent for so long."""
_LEAST_SPREAD = 0.01
"""Square of the share by which lengths must differ to tell fixed time from time for rows."""


class TaskQueue(Protocol):
    """The queue of a bolt task, as a `BoltTask` has it."""

    at_once: int
    row_ns: int

    @property
    def in_queue(self) -> int:
        """Tuples that wait to be executed."""


class Pace:
    """The measures of one worker, and what follows from them."""

    def __init__(
        self, topology: Topology, plan: Plan, me: int, queues: Mapping[int, TaskQueue], emitters: Mapping[int, Emitter],
        timed: bool,
    ) -> None:
        """`queues`: of the bolt tasks here."""
        self.timed = timed
        self.emits = FIRST_EMITS if timed else MOST_BATCH_EMITS
        """Emits that a spout task may make in the next turn."""
        self._queues = queues
        self._emitters = emitters
        self._turn_ns = 0
        self._chosen = [
            task for spec in topology.components.values() if spec.tasks > 1
            if any(subscription.grouping in (SHUFFLE, LOCAL_OR_SHUFFLE) for subscription in spec.subscriptions)
            for task in plan.tasks_of(spec.id, me)
        ]

    def turn_took(self, took_ns: int, fixed_ns: int, most_emits: int) -> None:
        """Note the length of a turn, of which calls took `fixed_ns` whatever they were given. The next has as many
        emits as fit its time, and at most `most_emits`."""
        if self.timed:
            self._turn_ns = (self._turn_ns + took_ns) // 2
            # Fewer emits shorten no calls (some came before the turn was timed), and all else may take as long.
            fit = self.emits * TURN_NS // max(1, took_ns - 2 * fixed_ns)
            self.emits = max(1, min(fit, _GROWTH * self.emits, most_emits))

    def waits_ns(self) -> dict[int, int]:
        """About how long a tuple would wait for each bolt task here that a shuffle chooses among others."""
        if not self._chosen:
            return {}
        loop_ns, own_ns = self._turn_ns, {}
        for task, queue in self._queues.items():
            waiting = queue.in_queue
            if waiting > 0:
                own_ns[task] = max(0, waiting - queue.at_once) * queue.row_ns // max(1, queue.at_once)
                if not queue.at_once:
                    loop_ns += own_ns[task]
        return {task: own_ns.get(task, 0) + (0 if self._queues[task].at_once else loop_ns) for task in self._chosen}

    @property
    def shuffles(self) -> bool:
        """True if a task here chooses among several by a shuffle."""
        return any(emitter.rounds for emitter in self._emitters.values())

    def balance(self, waits_ns: Callable[[int], int]) -> None:
        """Have the shuffles here prefer tasks that would not keep a tuple waiting. `waits_ns(task)`: of any task."""
        # By identity: all senders to a component share the sequence of its tasks.
        shares: dict[int, Shares | None] = {}
        for emitter in self._emitters.values():
            for rounds in emitter.rounds:
                targets = rounds.targets
                if id(targets) not in shares:
                    shares[id(targets)] = shares_of([waits_ns(target) for target in targets])
                rounds.balance(shares[id(targets)])


class CallCost:
    """What the calls of one task of a batch bolt cost, and how many rows the next one may have.

    A call takes a fixed time and a time for each row: a bulk insert takes 50 ms, and 2 us a row. Given what fits 5 ms,
    it would get one row a call, for ever. So the rows of a call may take as long as rows of other bolts may
    (`slice_ns`), or four times the fixed time, so that this is a fifth of the whole at most.

    Both times are those of the line through the last calls (least squares; a call counts four fifths of the next one).
    A line takes calls of different lengths: while all have the same, each doubles what the next one may have. No call
    takes less than the fixed time, so the shortest of the last ones bounds it: a processor that others take for a while
    makes calls longer, and would pass for a fixed time.
    """

    __slots__ = (
        "_last_ns", "_ns", "_rows", "_rows_ns", "_slice_ns", "_squares", "_weight", "fixed_ns", "row_ns", "set_rows",
    )

    def __init__(self, slice_ns: int, set_rows: int = 0) -> None:
        """`set_rows`: the rows of every call, if the user has set them."""
        self._slice_ns = slice_ns
        self.set_rows = set_rows
        self._weight = self._rows = self._ns = self._squares = self._rows_ns = 0.0
        """Weighted sums: of ones, rows, times, rows * rows, rows * times."""
        self._last_ns = deque[int](maxlen=_LAST)
        self.fixed_ns = 0.0
        self.row_ns = 0.0

    @property
    def worth_rows(self) -> float:
        """Rows of a call above which more of them make a row little cheaper."""
        if self.set_rows:
            return self.set_rows
        if self.fixed_ns < _LEAST_FIXED_NS:
            return 0
        return _ROWS_PER_FIXED * self.fixed_ns / self.row_ns if self.row_ns else float("inf")

    def called(self, rows: int, took_ns: int, allowed: int) -> int:
        """Note a call, which might have had `allowed` rows; return how many the next one may have."""
        self._weight = _KEPT * self._weight + 1
        self._rows = _KEPT * self._rows + rows
        self._ns = _KEPT * self._ns + took_ns
        self._squares = _KEPT * self._squares + rows * rows
        self._rows_ns = _KEPT * self._rows_ns + rows * took_ns
        mean_rows, mean_ns = self._rows / self._weight, self._ns / self._weight
        spread = self._squares / self._weight - mean_rows * mean_rows
        differ = spread > _LEAST_SPREAD * mean_rows * mean_rows
        row_ns = (self._rows_ns / self._weight - mean_rows * mean_ns) / spread if differ else self.row_ns
        self._last_ns.append(took_ns)
        self.fixed_ns = min(max(mean_ns - row_ns * mean_rows, 0.0), *self._last_ns)
        if differ:
            self.row_ns = max(mean_ns - self.fixed_ns, 0.0) / mean_rows
        if self.set_rows:
            return self.set_rows
        if not differ and self._weight > 1:
            return max(allowed, 2 * rows)
        most = max(allowed, _GROWTH * rows, rows * self._slice_ns // (took_ns or 1))
        if not self.row_ns:
            return most
        rows_ns = max(self._slice_ns, min(_ROWS_PER_FIXED * self.fixed_ns, _MOST_ROWS_NS))
        return max(1, min(most, int(rows_ns / self.row_ns)))
