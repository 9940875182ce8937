"""Stepping aside: as often as asked for while it is short, seldom beside somebody who takes the processor for long."""

from __future__ import annotations

import pytest

from squall.scheduler.worker.loop import StepAside

MS = 1_000_000


class Processor:
    """Another thread has it for so long, when it is left to it."""

    def __init__(self, others_ns: int) -> None:
        self.others_ns = others_ns
        self.now_ns = 0
        self.away_ns = 0

    def step(self) -> None:
        self.now_ns += self.others_ns
        self.away_ns += self.others_ns

    def work(self, total_ns: int, piece_ns: int) -> int:
        """How often it stepped aside."""
        steps = 0
        step_aside = StepAside(self.step, lambda: self.now_ns)
        while self.now_ns < total_ns:
            self.now_ns += piece_ns
            before = self.away_ns
            step_aside()
            steps += self.away_ns > before
        return steps


@pytest.mark.parametrize("others_ns", [1_000, 100_000, 300_000])
def test_a_short_while_is_given_each_time(others_ns: int) -> None:
    assert Processor(others_ns).work(100 * (MS + others_ns), MS) == 100


@pytest.mark.parametrize("others_ns", [301_000, 3 * MS, 50 * MS])
def test_long_ones_take_a_twentieth_of_the_time(others_ns: int) -> None:
    processor = Processor(others_ns)
    assert processor.work(10_000 * MS, MS // 10) > 5
    assert 0.03 < processor.away_ns / processor.now_ns <= 0.05


def test_after_a_long_one_short_ones_are_given_again() -> None:
    processor = Processor(3 * MS)
    step_aside = StepAside(processor.step, lambda: processor.now_ns)
    step_aside()
    processor.others_ns = MS // 10
    step_aside()
    assert processor.away_ns == 3 * MS
    processor.now_ns += 60 * MS
    step_aside()
    step_aside()
    assert processor.away_ns == 3 * MS + 2 * MS // 10
