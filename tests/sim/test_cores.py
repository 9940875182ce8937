"""Real worker cores, data planes and frames under deaths, broken links and timeouts; `make prove` runs more of it."""

from __future__ import annotations

import pytest

from tests.sim.core_mutants import CORE_MUTANTS, LITERAL, NO_DEDUPE, PLAIN_EMITS, CoreMutant
from tests.sim.cores import ALL_FAULTS, Cluster, batches_of
from tests.sim.halves import run_halves
from tests.sim.invariants import ACKED_EARLY
from tests.sim.parts import Parts

CASES = 20
MUTANT_SEEDS = 400


@pytest.mark.parametrize("actions", [(), ("duplicate",), ALL_FAULTS], ids=["whole links", "repeats", "all faults"])
def test_everything_is_acked_in_the_end_and_nothing_is_left(seed: int, actions: tuple[str, ...]) -> None:
    for number in range(CASES):
        Cluster(seed + number, actions, chained=number % 5 == 0).run()


@pytest.mark.parametrize("actions", [(), ALL_FAULTS], ids=["whole links", "all faults"])
def test_so_it_is_in_batches(seed: int, actions: tuple[str, ...]) -> None:
    for number in range(CASES):
        Cluster(seed + number, actions, chained=number % 5 == 0, in_batches=batches_of(seed + number)).run()


def test_a_death_replays_exactly_what_touched_the_dead(seed: int) -> None:
    for number in range(CASES):
        run_halves(seed + number)


@pytest.mark.parametrize("of_five_deaths", [9100001208, 9100001842])
def test_a_message_that_many_deaths_meet_is_not_given_up(of_five_deaths: int) -> None:
    run_halves(of_five_deaths)


def test_so_it_is_when_no_emit_takes_a_fast_path(seed: int) -> None:
    for number in range(CASES // 2):
        Cluster(seed + number, ALL_FAULTS if number % 2 else (), parts=PLAIN_EMITS).run()


@pytest.mark.parametrize("in_batches", [(), ("numbers", "fan")], ids=["rows", "batches"])
def test_a_case_repeats_exactly(seed: int, in_batches: tuple[str, ...]) -> None:
    once, again = (Cluster(seed, ALL_FAULTS, in_batches=in_batches) for _ in range(2))
    once.run()
    again.run()
    assert once.edges == again.edges
    assert once.rng.random() == again.rng.random()


def test_the_faults_really_happen() -> None:
    counts = {"frames repeated": 0, "frames refused": 0, "lost": 0, "deaths": 0, "timeout": 0, "frame damaged": 0}
    for seed in range(30):
        cluster = Cluster(seed, ALL_FAULTS)
        cluster.run()
        for plane in (node.plane for node in cluster.nodes if node is not None):
            counts["frames repeated"] += plane.counts["frames repeated"]
            counts["frames refused"] += plane.counts["frames refused"]
            counts["lost"] += plane.lost
        counts["deaths"] += sum(incarnation - 1 for incarnation, _ in cluster.board)
        for reason in ("timeout", "frame damaged"):
            counts[reason] += cluster.ledger.reasons.count(reason)
    assert all(counts.values()), counts


@pytest.mark.parametrize("mutant", CORE_MUTANTS, ids=[mutant.off for mutant in CORE_MUTANTS])
def test_what_is_switched_off_is_named(mutant: CoreMutant) -> None:
    assert mutant.first_broken(MUTANT_SEEDS) is not None, f"{mutant.breaks!r} was not seen"


@pytest.mark.parametrize("parts", [NO_DEDUPE, LITERAL], ids=["dedupe", "INIT guard"])
def test_the_other_one_alone_keeps_trees_from_being_acked_early(parts: Parts) -> None:
    one_off = CoreMutant("one of the two", parts, ACKED_EARLY, ("duplicate",), deaths=False)
    assert one_off.first_broken(CASES) is None
