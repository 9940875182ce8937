"""The restart policy under chance; its table is docs/state-machines.md (test_state_machines.py)."""

from __future__ import annotations

import random

from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions, StartAgain


def test_jitter_stays_in_its_band_and_spreads(seed: int) -> None:
    subject = RestartPolicy(RestartPolicyOptions(), random.Random(seed))
    found = [subject.fork_refused().delay_secs for _ in range(1000)][10:]
    assert 0.8 <= min(found) < 0.85
    assert 1.15 < max(found) <= 1.2


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
        assert isinstance(verdict, StartAgain)
        assert verdict.delay_secs <= options.first_delay_secs
    assert isinstance(subject.died(201.0, 0.1), StartAgain)
