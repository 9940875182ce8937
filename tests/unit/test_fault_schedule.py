"""When faults begin and end: the same events give the same instructions, and whatever begins ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.fault import AfterAcked, AfterSecs, Fault
from squall.scheduler.faults.schedule import AGAIN_SECS, Begin, End, Instruction, Schedule
from squall.scheduler.faults.sentence import parse
from squall.scheduler.faults.view import View
from tests.unit.test_fault_resolution import VIEW, A, B, C

NOBODY = View()


@dataclass
class Driver:
    """Runs a schedule as the lines say it."""

    lines: list[str]
    seed: int = 1
    said: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.schedule = Schedule([parse(line) for line in self.lines], self.seed)

    def turn(self, now_secs: float, acked: int = 0, view: View = VIEW) -> list[Instruction]:
        return self.note(now_secs, self.schedule.turn(now_secs, acked, view))

    def note(self, now_secs: float, instructions: list[Instruction]) -> list[Instruction]:
        for instruction in instructions:
            what = f"{instruction.id} {instruction.fault.kind}" if isinstance(instruction, Begin) else ""
            self.said.append((now_secs, what or f"end {instruction.id}"))
        return instructions

    def follow(self, until_secs: float) -> list[tuple[float, str]]:
        """Turn every tenth of a second."""
        for tenths in range(round(until_secs * 10) + 1):
            self.turn(tenths / 10)
        return self.said


def test_once_and_over_at_once() -> None:
    driver = Driver(["kill count at 3s"])
    assert driver.turn(2.9) == []
    assert driver.follow(100) == [(3, "1 kill")]
    assert driver.schedule.heal(100) == []


def test_what_lasts_ends() -> None:
    assert Driver(["stop count for 2s at 1s"]).follow(100) == [(1, "1 stop"), (3, "end 1")]
    assert Driver(["stop count"]).follow(100) == [(0, "1 stop"), (3, "end 1")]


def test_again_and_again() -> None:
    lines = ["partition node-1 node-2 for 3s at 2s every 10s, 3 times"]
    assert Driver(lines).follow(100) == [
        (2, "1 partition"), (5, "end 1"), (12, "2 partition"), (15, "end 2"), (22, "3 partition"), (25, "end 3"),
    ]  # fmt: skip


def test_faults_that_did_not_begin_as_often_as_asked() -> None:
    thrice, late = "kill count at 1s every 5s 3 times", "kill count at 9s"
    driver = Driver([thrice, late, "kill count every 1s 2 times", "stop count every 5s"])
    driver.follow(6.5)
    assert [(number, begun) for number, _, begun in driver.schedule.not_begun()] == [(0, 2), (1, 0)]


def test_what_has_no_end_goes_on_until_it_is_healed() -> None:
    driver = Driver(["stop count for 2s every 5s"])
    driver.follow(11)
    assert driver.said[-1] == (10, "3 stop")
    assert driver.schedule.heal(11) == [End(3, 11)]
    assert driver.turn(100) == []
    assert driver.schedule.heal(101) == []


def test_after_so_many_acks() -> None:
    driver = Driver(["kill count after 100 acked every 2s, 2 times"])
    assert driver.turn(5, 99) == []
    driver.turn(6, 100)
    driver.turn(7, 100)
    driver.turn(8, 1)
    assert driver.said == [(6, "1 kill"), (8, "2 kill")]


def test_ends_come_before_what_begins_at_the_same_time() -> None:
    assert Driver(["stop count for 2s", "kill split at 2s"]).follow(9) == [(0, "1 stop"), (2, "end 1"), (2, "2 kill")]


def test_late_turns_bunch_nothing_up() -> None:
    driver = Driver(["kill count every 1s, 4 times"])
    for now in (0, 10, 10.5, 11, 11.5, 12, 13):
        driver.turn(now)
    assert driver.said == [(0, "1 kill"), (10, "2 kill"), (11, "3 kill"), (12, "4 kill")]


def test_who_is_not_there_is_waited_for() -> None:
    driver = Driver(["kill random worker at 1s"])
    assert driver.turn(1, view=NOBODY) == []
    assert driver.turn(1 + 0.9 * AGAIN_SECS) == []
    (begin,) = driver.turn(1 + AGAIN_SECS)
    assert isinstance(begin, Begin)
    assert begin.targets[0] in {f"worker {name}" for name in (A, B, C)}


def test_what_was_postponed_begins_again_with_another_id() -> None:
    driver = Driver(["stop count for 5s every 20s, 2 times"])
    (begin,) = driver.turn(0)
    assert isinstance(begin, Begin)
    driver.schedule.postpone(begin)
    assert driver.follow(100) == [
        (0, "1 stop"), (AGAIN_SECS, "2 stop"), (5 + AGAIN_SECS, "end 2"), (20 + AGAIN_SECS, "3 stop"),
        (25 + AGAIN_SECS, "end 3"),
    ]  # fmt: skip
    driver = Driver(["stop count for 5s"])
    (begin,) = driver.turn(0)
    assert isinstance(begin, Begin)
    driver.schedule.heal(0)
    driver.schedule.postpone(begin)
    assert driver.turn(1) == []


def test_seeds_decide_who_is_drawn() -> None:
    def drawn(seed: int) -> list[str]:
        schedule = Schedule([parse("kill random worker every 1s, 9 times")], seed)
        begun = [schedule.turn(second, 0, VIEW)[0] for second in range(9)]
        return [begin.targets[0] for begin in begun if isinstance(begin, Begin)]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(9)}) == 9
    own = [Schedule([parse("kill random worker seed 5")], seed).turn(0, 0, VIEW)[0] for seed in range(9)]
    assert len({begin.targets for begin in own if isinstance(begin, Begin)}) == 1


secs = st.floats(0, 20).map(lambda value: round(value, 2))
faults = st.builds(
    Fault, st.sampled_from(sorted(CATALOGUE)), st.sampled_from([(), ("random worker",), ("count",), ("random node",)]),
    st.one_of(st.builds(AfterSecs, secs), st.builds(AfterAcked, st.integers(1, 50))),
    st.none() | st.floats(0.1, 9), st.none() | st.integers(1, 4), st.none() | st.floats(0.1, 9),
    seed=st.none() | st.integers(0, 9),
)  # fmt: skip
events = st.lists(st.tuples(st.floats(0, 3), st.integers(0, 9), st.sampled_from("tttn")), max_size=40)


def played(schedule: Schedule, happened: list[tuple[float, int, str]]) -> list[tuple[float, Instruction]]:
    now, acked, said = 0.0, 0, []
    for secs_later, more, what in happened:
        now, acked = now + secs_later, acked + more
        view = NOBODY if what == "n" else VIEW
        said += [(now, instruction) for instruction in schedule.turn(now, acked, view)]
    return said + [(now, instruction) for instruction in schedule.heal(now)]


@given(st.lists(faults, max_size=4), st.integers(0, 99), events)
def test_whatever_begins_ends_in_time_and_by_seed(
    several: list[Fault], seed: int, happened: list[tuple[float, int, str]]
) -> None:
    schedule = Schedule(several, seed)
    said = played(schedule, happened)
    assert said == played(Schedule(several, seed), happened)
    assert schedule.turn(1e9, 10**9, VIEW) == []
    begun = {one.id: (now, one) for now, one in said if isinstance(one, Begin)}
    ended = [one.id for _, one in said if isinstance(one, End)]
    assert sorted(ended) == sorted(id_ for id_, (_, begin) in begun.items() if begin.ends_secs is not None)
    turns = [now for now, _ in said]
    assert turns == sorted(turns)
    for _, end in said:
        if isinstance(end, End):
            assert end.at_secs >= begun[end.id][0]
    for number, fault in enumerate(several):
        times = [now for now, begin in begun.values() if begin.number == number]
        assert len(times) <= (fault.times or (99 if fault.every_secs else 1))
        if fault.every_secs:
            assert all(b - a >= fault.every_secs - 1e-9 for a, b in pairwise(times))
        if isinstance(fault.when, AfterSecs):
            assert all(now >= fault.when.secs for now in times)
