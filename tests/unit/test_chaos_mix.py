"""What `squall chaos` draws from a seed."""

from __future__ import annotations

from collections import Counter

import pytest

from squall import UsageError
from squall.chaos.injector import at_secs
from squall.chaos.mix import draw, kinds_of
from squall.scheduler.common.restart_policy import RestartPolicyOptions

WORKERS = ["node-1:6700", "node-1:6701"]
KINDS = kinds_of("all")


def test_a_seed_draws_the_same_again() -> None:
    assert draw(7, KINDS, WORKERS, 30.0) == draw(7, KINDS, reversed(WORKERS), 30.0)
    assert draw(7, KINDS, WORKERS, 30.0) != draw(8, KINDS, WORKERS, 30.0)


@pytest.mark.parametrize("for_secs", [0.1, 3.0, 300.0])
def test_every_seed_has_faults_within_its_time(for_secs: float) -> None:
    for seed in range(200):
        faults = draw(seed, KINDS, WORKERS, for_secs)
        assert faults
        assert all(0 <= at_secs(fault) <= for_secs for fault in faults)
        assert faults == sorted(faults, key=at_secs)


def test_no_seed_kills_more_than_a_slot_is_forgiven() -> None:
    policy = RestartPolicyOptions()
    for seed in range(200):
        kills = Counter(fault.targets for fault in draw(seed, ("kill",), WORKERS[:1], policy.period_secs))
        assert max(kills.values()) <= policy.max_deaths / 2


def test_a_worker_has_one_lasting_fault_at_a_time() -> None:
    for seed in range(200):
        free_secs = dict.fromkeys(WORKERS, 0.0)
        for fault in draw(seed, KINDS, WORKERS, 30.0):
            (worker,) = fault.targets
            assert at_secs(fault) >= free_secs[worker] - 0.002
            free_secs[worker] = at_secs(fault) + (fault.for_secs or 0.0)


def test_seeds_differ_in_their_kinds() -> None:
    assert {frozenset(fault.kind for fault in draw(seed, KINDS, WORKERS, 30.0)) for seed in range(50)} >= {
        frozenset({"kill"}), frozenset({"stop"}), frozenset({"kill", "stop"}),
    }  # fmt: skip


def test_a_mix_is_groups_and_kinds() -> None:
    assert kinds_of("process") == ("kill", "stop")
    assert kinds_of("stop, kill") == ("stop", "kill")


@pytest.mark.parametrize("mix", ["", "proces", "kill,", "kill;stop"])
def test_an_unknown_mix_is_refused(mix: str) -> None:
    with pytest.raises(UsageError, match="is unknown; allowed: all, process, kill, stop; several joined by commas"):
        kinds_of(mix)
