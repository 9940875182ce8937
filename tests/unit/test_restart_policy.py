"""The restart policy: at once, later, never."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from squall.engine.errors import UsageError
from squall.scheduler.common.restart_policy import GiveUp, Restart, RestartPolicy, RestartPolicyOptions

NO_JITTER = RestartPolicyOptions(jitter_ratio=0.0)


def policy(options: RestartPolicyOptions = NO_JITTER) -> RestartPolicy:
    return RestartPolicy(options, random.Random(1))


def delays(verdicts: list[Restart | GiveUp]) -> list[float]:
    return [round(verdict.delay_secs, 6) for verdict in verdicts if isinstance(verdict, Restart)]


def crash_loop(subject: RestartPolicy, times: int, start: float = 0.0) -> tuple[list[Restart | GiveUp], float]:
    """Let a worker die at once, `times` times or until it is given up; the verdicts and the time of the last."""
    now, verdicts = start, []
    for _ in range(times):
        verdict = subject.died(now, lived_secs=0.0)
        verdicts.append(verdict)
        if isinstance(verdict, GiveUp):
            break
        now += verdict.delay_secs
    return verdicts, now


def test_the_first_deaths_restart_at_once_and_then_the_delay_doubles_to_its_limit() -> None:
    verdicts, _ = crash_loop(policy(), 9)
    assert delays(verdicts) == [0, 0, 0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_worker_that_lived_through_its_probation_starts_from_zero_delay() -> None:
    subject = policy()
    crash_loop(subject, 7)
    assert subject.died(100.0, lived_secs=0.99) == Restart(1.0)
    assert subject.died(200.0, lived_secs=1.0) == Restart(0.0)
    assert delays([subject.died(200.0, lived_secs=0.0) for _ in range(3)]) == [0, 0, 0.1]


def test_reset_forgets_deaths_and_delay() -> None:
    subject = policy()
    verdicts, now = crash_loop(subject, 1000)
    assert isinstance(verdicts[-1], GiveUp)
    subject.reset()
    assert subject.died(now, lived_secs=0.0) == Restart(0.0)


def test_a_refused_fork_is_never_tried_at_once_and_never_given_up() -> None:
    subject = policy()
    assert delays([subject.fork_refused() for _ in range(100)])[:6] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert subject.died(0.0, lived_secs=0.0) == Restart(0.0)
    assert subject.fork_refused() == Restart(0.1)


def test_jitter_stays_in_its_band_and_spreads(seed: int) -> None:
    subject = RestartPolicy(RestartPolicyOptions(), random.Random(seed))
    found = [subject.fork_refused().delay_secs for _ in range(1000)][10:]
    assert 0.8 <= min(found) < 0.85
    assert 1.15 < max(found) <= 1.2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RestartPolicyOptions(max_deaths=-1), "max_deaths is -1"),
        (lambda: RestartPolicyOptions(delay_factor=0.5), "delay_factor is 0.5"),
        (lambda: RestartPolicyOptions(jitter_ratio=1.0), "jitter_ratio is 1.0"),
        (lambda: RestartPolicyOptions(max_delay_secs=10.0), "restarted for ever"),
    ],
)
def test_options_that_make_no_sense_are_refused(make: Callable[[], RestartPolicyOptions], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()


def test_no_period_ever_holds_more_restarts_than_allowed(seed: int) -> None:
    rng = random.Random(seed)
    options = RestartPolicyOptions()
    subject = RestartPolicy(options, rng)
    now = 0.0
    restarts: list[float] = []
    for _ in range(2000):
        lived = rng.choice([0.0, 0.01, 1.0, 5.0, 12.0]) * rng.random()
        now += lived
        verdict = subject.died(now, lived)
        if isinstance(verdict, GiveUp):
            now += options.period_secs
            subject.reset()
            restarts.clear()
            continue
        restarts.append(now)
        recent = [at for at in restarts if now - at <= options.period_secs]
        assert len(recent) <= options.max_deaths
        now += verdict.delay_secs


def test_a_death_that_brings_a_dead_letter_nearer_never_counts_against_the_slot() -> None:
    options = RestartPolicyOptions(jitter_ratio=0.0)
    subject = RestartPolicy(options, random.Random(1))
    for second in range(200):
        verdict = subject.died(float(second), 0.1, excused=True)
        assert isinstance(verdict, Restart)
        assert verdict.delay_secs <= options.first_delay_secs
    assert isinstance(subject.died(201.0, 0.1), Restart)
