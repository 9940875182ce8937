"""How many messages flow between the faults of a seed."""

from __future__ import annotations

from squall.chaos.deaths import Death
from squall.chaos.flow import Flow, flow
from squall.chaos.injector import Injected
from squall.chaos.trial import Outcome, Sample
from squall.scheduler.faults.fault import Fault

STARTED_SECS = 50.0


def outcome(acked: list[int], faults: list[tuple[float, float]], deaths: list[Death]) -> Outcome:
    """A sample each second."""
    return Outcome(
        STARTED_SECS, healed_secs=len(acked) - 1.0, deaths=deaths,
        samples=[Sample(float(number), count, 0) for number, count in enumerate(acked)],
        injected=[
            Injected(Fault("stop", ("node-1:6700",)), STARTED_SECS + began, STARTED_SECS + ended)
            for began, ended in faults
        ],
    )  # fmt: skip


def test_time_with_a_fault_in_force_does_not_count() -> None:
    seen = outcome([0, 10, 20, 21, 22, 32], [(2.1, 3.9)], [])
    assert flow(seen) == Flow(10.0, 3.0, 6.4)


def test_nor_does_the_time_until_a_dead_worker_works_again() -> None:
    death = Death("node-1:6700", 1.5, "killed", "kill", 0.1, 1.0)
    assert flow(outcome([0, 10, 11, 12, 22], [(1.5, 1.5)], [death])) == Flow(10.0, 2.0, 5.5)


def test_one_that_never_worked_again_takes_the_rest() -> None:
    death = Death("node-1:6700", 1.5, "killed", "kill")
    assert flow(outcome([0, 10, 11, 12, 12], [], [death])) == Flow(10.0, 1.0, 3.0)


def test_a_fault_that_was_missed_is_none_and_what_follows_the_faults_does_not_count() -> None:
    seen = outcome([0, 10, 20], [(0.5, 1.5)], [])
    seen.injected[0].missed = "it was dead"
    seen.samples.append(Sample(3.0, 1000, 0))
    assert flow(seen) == Flow(10.0, 2.0, 10.0)


def test_without_samples_or_time_between_there_is_no_flow() -> None:
    assert flow(outcome([], [], [])) == Flow(0.0, 0.0, 0.0)
    assert flow(outcome([0, 10], [(0.0, 1.0)], [])) == Flow(0.0, 0.0, 10.0)
