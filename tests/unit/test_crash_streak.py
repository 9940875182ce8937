"""Deaths that are charged to messages are hope only as long as something is acked between them."""

from __future__ import annotations

from squall.scheduler.common.crash_streak import CRASHES_WITHOUT_AN_ACK, CRASHES_WITHOUT_ANY_ACK, CrashStreak


def test_a_stream_that_never_acks_is_hopeless_after_some_crashes() -> None:
    streak = CrashStreak()
    answers = [streak.leads_anywhere(0, crashes) for crashes in range(CRASHES_WITHOUT_ANY_ACK + 2)]
    assert answers == [True] * CRASHES_WITHOUT_ANY_ACK + [False] * 2


def test_acks_between_crashes_are_hope_however_many_crashes_there_are() -> None:
    streak = CrashStreak()
    assert all(streak.leads_anywhere(crashes // 10 + 1, crashes) for crashes in range(1000))


def test_a_stream_that_stops_acking_is_hopeless_in_the_end_and_an_ack_brings_hope_back() -> None:
    streak = CrashStreak()
    assert streak.leads_anywhere(5, 2)
    assert streak.leads_anywhere(5, 2 + CRASHES_WITHOUT_AN_ACK - 1)
    assert not streak.leads_anywhere(5, 2 + CRASHES_WITHOUT_AN_ACK)
    assert streak.leads_anywhere(6, 2 + CRASHES_WITHOUT_AN_ACK)
