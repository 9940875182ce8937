"""A fault of the set-up is told from bad messages, whatever the order of failures and acks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall import Failure
from squall.engine.api.failure import EXCEPTION, MACHINE, WORKER_DIED
from squall.engine.tracking.attempts import Attempts, Limits, Remembered
from squall.engine.tracking.doubt import Doubt

WRONG = Failure(EXCEPTION, "split", error="KeyError: 'm'", where="(app.py, line 9, in execute) with tuple (1,)")
POISON = Failure(EXCEPTION, "count", error="ValueError: bad", where="(app.py, line 30, in execute) with tuple ()")
DISK = Failure(MACHINE, "split", error="OSError: full", where="(app.py, line 9, in execute) with tuple (2,)")
AWAY = Failure(EXCEPTION, "split", error="OperationalError: away", where="(app.py, line 5, in execute) with tuple (3,)")
DEATH = Failure(WORKER_DIED)
STEPS = st.lists(
    st.tuples(st.sampled_from([WRONG, WRONG, POISON, DISK, DEATH, None]), st.integers(0, 60)), max_size=150
)


@given(STEPS, st.booleans())
def test_the_run_stops_only_when_enough_messages_fail_alike_and_hardly_any_is_acked(
    steps: list[tuple[Failure | None, int]], acked_before: bool
) -> None:
    attempts = Attempts(Limits(max_crashes=5, fail_fast=True))
    since: dict[int, str] = {}
    for failure, key in steps:
        if failure is None:
            attempts.acked([key], 2)
            since.pop(key, None)
            if not attempts.doubt.causes:
                since.clear()
        else:
            attempts.failed(key, failure)
            attempts.doubt.count_acks()
            if failure is not DEATH:
                since[key] = failure.component
        stops = attempts.doubt.is_set_up(acked_before, 1)
        # Never by few, never by different failures, never by what has failed while others got through.
        assert len(attempts.doubt.causes) <= 32
        if stops:
            assert max(map(list(since.values()).count, since.values())) >= (20 if acked_before else 5)
    # In a new worker, everything is in doubt that was.
    again = Attempts(Limits(max_crashes=5, fail_fast=True))
    again.resume(Remembered(dict(attempts.tries)))
    assert again.doubt.causes == attempts.doubt.causes


def test_every_message_that_fails_alike_is_evidence_and_one_ack_clears() -> None:
    for failure in (WRONG, DISK):
        attempts = Attempts(Limits(max_crashes=5, fail_fast=True))
        for key in range(4):
            attempts.failed(key, failure)
            attempts.failed(key, failure)
            assert not attempts.doubt.is_set_up(False, 1)
        attempts.failed(4, failure)
        assert attempts.doubt.is_set_up(False, 1)
        assert not attempts.doubt.is_set_up(True, 1)
        attempts.doubt.count_acks()
        attempts.acked([77], 2)
        assert not attempts.doubt.causes
        # It failed while others got through: it is bad itself. A full disk is never a message's fault.
        attempts.failed(0, failure)
        assert bool(attempts.doubt.causes) is (failure is DISK)


def test_a_service_that_is_away_stops_nothing_for_ten_seconds_and_condemns_no_message_that_it_failed() -> None:
    attempts = Attempts(Limits(max_crashes=5, fail_fast=True))
    for key in range(40):  # more than can be in doubt
        for _ in range(5):
            attempts.failed(key, AWAY)
    doubt = attempts.doubt
    doubt.count_acks()
    assert not doubt.is_set_up(False, 1_000_000_000)
    assert not doubt.is_set_up(False, 10_999_999_999)
    attempts.acked([97, 98, 99, 100], 2)
    assert not doubt.causes
    assert not any(attempts.condemned(key) for key in range(40))
    # One that goes on while others get through is bad itself.
    for _ in range(5):
        attempts.failed(0, AWAY)
    assert attempts.condemned(0)
    assert not doubt.causes


def test_a_service_that_stays_away_stops_the_run_after_ten_seconds() -> None:
    attempts, retries = Attempts(Limits(max_crashes=5, fail_fast=True)), Doubt(waits=True)
    retries.causes.update(dict.fromkeys(range(5), "split KeyError"))
    for key in range(5):
        attempts.failed(key, AWAY)
    for doubt in (attempts.doubt, retries):
        assert [doubt.is_set_up(False, secs * 10**9) for secs in (1, 10, 11)] == [False, False, True]


def test_after_a_death_only_acks_of_what_was_emitted_later_count() -> None:
    doubt = Doubt(waits=False)
    doubt.causes["k"] = "split KeyError"
    assert not doubt.acked(5)
    doubt.count_acks(10)
    assert not doubt.acked(9)
    assert doubt.acked(11) == ["k"]
