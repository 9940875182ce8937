"""What `squall chaos` draws from a seed."""

from __future__ import annotations

from collections import Counter

import pytest

from squall import UsageError
from squall.chaos.mix import Places, draw, kinds_of
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.faults.catalogue import AT_START, CATALOGUE, ActsOn
from squall.scheduler.faults.resolution import Place, View, check, resolve
from squall.scheduler.faults.sentence import Fault

BOLTS = ["worker", "two words"]
PLACES = Places(["node-1:6700", "node-2:6701"], ["lines", *BOLTS], BOLTS, sinks=BOLTS[1:])
ALONE = Places(PLACES.workers[:1], PLACES.components, PLACES.bolts)
KINDS = kinds_of("all")
VIEW = View(
    ("node-1", "node-2"), PLACES.workers,
    [Place("chaos", name, number, "node-1:6700") for number, name in enumerate(PLACES.components)],
)


def of_seed(seed: int, places: Places = PLACES, for_secs: float = 30.0) -> list[Fault]:
    return draw(seed, KINDS, places, for_secs)


def end_of(fault: Fault) -> float:
    return fault.at_secs + (fault.for_secs or 0.0)


def drawn(seeds: int, *kinds: str, places: Places = PLACES) -> list[Fault]:
    return [fault for seed in range(seeds) for fault in draw(seed, kinds or KINDS, places, 30.0)]


def test_a_seed_draws_the_same_again() -> None:
    again = Places(PLACES.workers[::-1], PLACES.components[::-1], PLACES.bolts[::-1], sinks=BOLTS[1:])
    assert of_seed(7) == of_seed(7, again)
    assert of_seed(7) != of_seed(8)


@pytest.mark.parametrize("for_secs", [0.1, 3.0, 300.0])
def test_every_seed_kills_each_worker_while_a_sink_hangs_and_has_faults_within_its_time(for_secs: float) -> None:
    for seed in range(100):
        faults = of_seed(seed, for_secs=for_secs)
        hangs = [one for one in faults if one.kind == "hang" and one.targets == ("component 'two words'",)]
        killed = {one.targets[0] for one in faults if one.kind == "kill" for hang in hangs
                  if hang.at_secs < one.at_secs < end_of(hang)}
        assert killed >= {*PLACES.workers}
        assert not [one for one in faults if one.targets == ("nimbus",) for hang in hangs if not hang.probability
                    if one.at_secs < end_of(hang) and hang.at_secs < end_of(one)]
        assert all(0 <= fault.at_secs <= for_secs for fault in faults)
        assert faults == sorted(faults, key=lambda fault: fault.at_secs)


def test_every_fault_is_one_of_the_catalogue_and_ends() -> None:
    faults = drawn(200)
    assert {fault.kind for fault in faults} == set(CATALOGUE)
    for fault in faults:
        resolve(check(fault)[0], fault.targets, VIEW)
        assert (fault.for_secs is None) == (CATALOGUE[fault.kind].lasts_secs is None)


def test_a_worker_is_killed_to_meet_what_hits_those_that_start() -> None:
    faults = drawn(50, *kinds_of("code"))
    for fault, kill in zip(faults[::2], faults[1::2], strict=True):
        assert (fault.kind, fault.targets, fault.at_secs) == ("bad-code", kill.targets, kill.at_secs)
        assert kill.kind == "kill"


def test_every_daemon_is_killed() -> None:
    killed = {name for fault in drawn(50, "kill-daemon") for name in fault.targets}
    assert killed == set(PLACES.of("daemon"))
    assert "forking-parent node-2" in killed


def test_no_seed_kills_more_than_a_slot_is_forgiven() -> None:
    policy = RestartPolicyOptions()
    for seed in range(100):
        kills = Counter(fault.targets for fault in draw(seed, ("kill",), ALONE, policy.period_secs))
        assert max(kills.values()) <= policy.max_deaths / 2


def test_a_target_has_one_lasting_fault_at_a_time() -> None:
    for seed in range(100):
        free_secs: dict[tuple[str, ...], float] = {}
        faults = of_seed(seed)
        for before, fault in zip([None, *faults], faults, strict=False):
            if before is not None and before.kind == AT_START:
                continue  # it is killed for that
            assert fault.at_secs >= free_secs.get(fault.targets, 0.0) - 0.002
            free_secs[fault.targets] = end_of(fault)


def test_a_topology_of_one_worker_has_no_faults_of_links() -> None:
    kinds = {fault.kind for fault in drawn(50, places=ALONE)}
    assert kinds >= {"kill", "poison", "disk-full"}
    assert ActsOn.LINKS not in {CATALOGUE[kind].acts_on for kind in kinds}
    with pytest.raises(UsageError, match="a topology of one worker has no links"):
        draw(1, kinds_of("link"), ALONE, 30.0)


def test_a_mix_is_groups_and_kinds() -> None:
    assert kinds_of("process") == ("kill", "stop", "throttle")
    assert kinds_of("stop, kill") == ("stop", "kill")
    for mix in ("", "proces", "kill,", "kill;stop"):
        with pytest.raises(UsageError, match="is unknown; allowed: all, process, executor, tuple, link, daemons, "):
            kinds_of(mix)
