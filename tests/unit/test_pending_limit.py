"""The limit of open messages that a spout finds by itself, before models of bolts whose best limit is known."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from squall.engine.core import pace, pending_limit, turn
from squall.engine.core.pending_limit import FIRST, GOAL_NS, MOST, PLAIN, PendingLimit
from squall.engine.flow import shuffle_rounds

MS = 1_000_000


class Servers:
    """Bolts: `tasks` that take `each_ns` a message, one after the other."""

    def __init__(self, each_ns: int, tasks: int = 1) -> None:
        self.each_ns, self.tasks, self.step_ns = each_ns, tasks, 0
        self.queue: deque[int] = deque()
        self.ends: list[int] = [0] * tasks
        self.under_way: list[tuple[int, int]] = []

    def put(self, began_ns: int) -> None:
        self.queue.append(began_ns)

    def answered(self, now_ns: int) -> list[int]:
        """When the messages had been emitted that are acked now."""
        for task in range(self.tasks):
            while self.queue and self.ends[task] <= now_ns:
                self.ends[task] = max(self.ends[task], now_ns - self.step_ns) + self.each_ns
                self.under_way.append((self.ends[task], self.queue.popleft()))
        done = [began_ns for end_ns, began_ns in self.under_way if end_ns <= now_ns]
        self.under_way = [one for one in self.under_way if one[0] > now_ns]
        return done

    @property
    def quiet(self) -> bool:
        return not (self.queue or self.under_way)


class Holder(Servers):
    """The same with a bolt behind that acks `count` messages at a time."""

    def __init__(self, each_ns: int, count: int) -> None:
        super().__init__(each_ns)
        self.count, self.held = count, []

    def answered(self, now_ns: int) -> list[int]:
        self.held += super().answered(now_ns)
        free = len(self.held) // self.count * self.count
        answered, self.held = self.held[:free], self.held[free:]
        return answered


class Bulk(Servers):
    """A bolt that takes `each_ns` for as many as wait, up to 8,192 of them."""

    ends_ns = 0

    def answered(self, now_ns: int) -> list[int]:
        if now_ns < self.ends_ns:
            return []
        done = [began_ns for _, began_ns in self.under_way]
        self.under_way = [(0, self.queue.popleft()) for _ in range(min(8192, len(self.queue)))]
        if self.under_way:
            self.ends_ns = now_ns + self.each_ns
        return done


class Run:
    """A spout task in virtual time, whose source gives `most_per_sec`."""

    def __init__(
        self, bolts: Servers, limit: PendingLimit | None = None, most_per_sec: float = float("inf"),
        step_ns: int = MS // 5,
    ) -> None:
        self.bolts, self.limit = bolts, limit or PendingLimit()
        self.step_ns = bolts.step_ns = step_ns
        self.now_ns = self.pending = self.acked = self.waited_ns = self.quiet_steps = self.starved = 0
        self.took_ns: list[int] = []
        self.most_per_sec, self.emitted, self.bytes = most_per_sec, 0, 100

    def go_on(self, secs: float, acks: float = float("inf")) -> Run:
        """For `secs`, or until so many are acked."""
        end_ns = self.now_ns + round(secs * 1e9)
        while self.now_ns < end_ns and self.acked < acks:
            self.now_ns += self.step_ns
            answered = self.bolts.answered(self.now_ns)
            self.took_ns += [self.now_ns - began_ns for began_ns in answered]
            self.pending -= len(answered)
            self.acked += len(answered)
            if self.now_ns >= self.limit.due_ns:
                self.limit.look(self.now_ns, self.acked, self.waited_ns, self.bytes)
            while self.pending < self.limit.limit and self.emitted < self.most_per_sec * self.now_ns / 1e9:
                self.bolts.put(self.now_ns)
                self.pending += 1
                self.emitted += 1
            if self.pending >= self.limit.limit:
                self.waited_ns += self.step_ns
                self.quiet_steps = self.quiet_steps + 1 if self.bolts.quiet else 0
                if self.quiet_steps * self.step_ns >= 3 * MS:
                    self.limit.starved(self.bytes)
                    self.starved += 1
        return self

    def measured(self, secs: float) -> tuple[float, float]:
        """Messages per second, and median ms of a message, from now on."""
        acked, seen = self.acked, len(self.took_ns)
        self.go_on(secs)
        took = sorted(self.took_ns[seen:])
        return (self.acked - acked) / secs, took[len(took) // 2] / MS


@pytest.mark.parametrize(("each_ms", "tasks"), [(50, 4), (1, 2), (200, 8)])
def test_slow_bolts_get_few_messages_and_stay_busy(each_ms: float, tasks: int) -> None:
    run = Run(Servers(round(each_ms * MS), tasks), step_ns=MS // 2).go_on(20)
    per_sec, ms = run.measured(10)
    assert per_sec >= 0.95 * tasks * 1000 / each_ms
    assert ms <= max(3 * GOAL_NS / MS, 5 * each_ms)


@pytest.mark.parametrize("each_us", [10, 25, 100])
def test_quick_bolts_get_as_many_as_they_do_in_the_time_that_is_allowed(each_us: int) -> None:
    run = Run(Servers(each_us * 1000)).go_on(1)
    per_sec, ms = run.measured(1)
    assert per_sec >= 0.98e6 / each_us
    assert ms <= 2.1 * GOAL_NS / MS


@pytest.mark.parametrize("each_ms", [4, 50, 500])
def test_a_bolt_with_a_fixed_time_a_call_gets_thousands_within_ten_calls(each_ms: int) -> None:
    run = Run(Bulk(each_ms * MS), most_per_sec=2e6, step_ns=MS // 2).go_on(10 * each_ms / 1000)
    assert run.measured(20 * each_ms / 1000)[0] >= 0.8 * 8192 / (each_ms / 1000)


@pytest.mark.parametrize(("tasks", "limit", "secs", "acked", "most"), [
    (1, PendingLimit(), 100, 95, 30),  # else messages time out, again and again
    (16, PendingLimit(bulk=False), 9, 80, 32),  # all end at once, as the rows of one call do, but more would only wait
    (16, PendingLimit(bulk=False, least=32), 30, 16 * 29, 64),  # no trial of a lower limit leaves some idle
])
def test_tasks_that_take_a_second_a_message(
    tasks: int, limit: PendingLimit, secs: int, acked: int, most: int
) -> None:
    run = Run(Servers(1000 * MS, tasks), limit, step_ns=10 * MS).go_on(secs)
    assert run.acked >= acked
    assert limit.limit <= most
    assert max(run.took_ns) <= 30_000 * MS


@pytest.mark.parametrize("count", [65, 1000, 20_000])
def test_a_bolt_that_waits_for_many_messages_gets_them(count: int) -> None:
    run = Run(Holder(20_000, count)).go_on(10, 3 * count)
    assert run.acked >= 3 * count
    assert run.now_ns <= 3 * count * 20_000 + 200 * MS


def test_a_holding_bolt_is_not_starved_again_and_again() -> None:
    """Its messages take long, so that a lower limit is worth a trial; but few at which it starves."""
    run = Run(Holder(1 * MS, 1000), step_ns=MS).go_on(50)
    assert run.starved <= 8
    assert run.measured(10)[0] >= 900


def test_bolts_that_become_slow_get_fewer_and_ones_that_become_quick_get_more() -> None:
    bolts = Servers(20_000)
    run = Run(bolts).go_on(1)
    quick = run.limit.limit
    bolts.each_ns = 2 * MS
    run.go_on(45)
    assert run.measured(5)[1] <= 3 * GOAL_NS / MS
    bolts.each_ns = 20_000
    run.go_on(1)
    assert run.limit.limit >= quick / 2
    assert run.measured(1)[0] >= 49_000


def test_a_spout_whose_source_is_slower_keeps_its_limit() -> None:
    assert Run(Servers(MS), most_per_sec=10).go_on(20).limit.limit == FIRST


def test_memory_is_bounded() -> None:
    """A bolt that acks nothing."""
    for size_bytes, most in ((100, MOST), (1 << 13, 1 << 13), (1 << 19, PLAIN), (1 << 22, 256), (1 << 27, FIRST)):
        run = Run(Holder(1000, 1 << 40))
        run.bytes = size_bytes
        run.go_on(2)
        assert run.pending == run.limit.limit == most
        assert not run.limit.may_rise(size_bytes)


def test_the_page_of_the_pace_has_every_knob() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pace.md").read_text()
    values = [item for module in (pace, pending_limit, turn, shuffle_rounds) for item in vars(module).items()]
    assert [name for name, value in values if type(value) in (int, float) and f"`{name}`" not in page] == []
