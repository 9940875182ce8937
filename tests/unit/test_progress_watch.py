"""How long a heartbeat has stood still: only time in which somebody looked counts."""

from __future__ import annotations

from squall.scheduler.common.progress_watch import ProgressWatch


def test_time_without_change_adds_up_and_a_change_ends_it() -> None:
    watch = ProgressWatch(longest_gap_secs=2.0)
    assert [watch.still_secs(1, 7, now) for now in (10.0, 11.0, 12.5)] == [0.0, 1.0, 2.5]
    assert watch.still_secs(1, 8, 13.0) == 0.0
    assert watch.still_secs(1, 8, 14.0) == 1.0


def test_an_observer_that_was_away_does_not_count_the_time() -> None:
    watch = ProgressWatch(longest_gap_secs=2.0)
    watch.still_secs(1, 7, 10.0)
    assert watch.still_secs(1, 7, 1000.0) == 2.0
    assert watch.still_secs(1, 7, 1001.0) == 3.0


def test_ports_are_apart_and_can_be_forgotten() -> None:
    watch = ProgressWatch(longest_gap_secs=2.0)
    watch.still_secs(1, 7, 10.0)
    watch.still_secs(2, 7, 11.0)
    assert (watch.still_secs(1, 7, 12.0), watch.still_secs(2, 7, 12.0)) == (2.0, 1.0)
    watch.forget(1)
    watch.forget(1)
    assert watch.still_secs(1, 7, 13.0) == 0.0
