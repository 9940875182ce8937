"""Real worker cores, data planes and frames under deaths, broken links and timeouts; `make prove` runs more of it."""

from __future__ import annotations

import pytest

from tests.sim.core_mutants import PLAIN_EMITS
from tests.sim.cores import ALL_FAULTS, Cluster, batches_of
from tests.sim.halves import run_halves
from tests.sim.parts import PARTS, Parts

CASES = 10


@pytest.mark.parametrize("parts", [PARTS, PLAIN_EMITS], ids=["fast emits", "plain emits"])
@pytest.mark.parametrize("actions", [(), ("duplicate",), ALL_FAULTS], ids=["whole links", "repeats", "all faults"])
def test_everything_is_acked_in_the_end_and_nothing_is_left(seed: int, actions: tuple[str, ...], parts: Parts) -> None:
    for number in range(CASES):
        batches = batches_of(seed + number) if number % 2 else ()
        Cluster(seed + number, actions, chained=number % 5 == 0, in_batches=batches, parts=parts).run()


def test_a_death_replays_exactly_what_touched_the_dead(seed: int) -> None:
    for number in range(2 * CASES):
        run_halves(seed + number)


@pytest.mark.parametrize("of_five_deaths", [9100001208, 9100001842])
def test_a_message_that_many_deaths_meet_is_not_given_up(of_five_deaths: int) -> None:
    run_halves(of_five_deaths)


def test_the_faults_really_happen() -> None:
    wanted = {"frames repeated", "frames refused", "lost", "deaths", "timeout", "frame damaged"}
    for seed in range(30):
        cluster = Cluster(seed, ALL_FAULTS)
        cluster.run()
        wanted -= {*cluster.ledger.reasons, "deaths" if max(cluster.board) > (1, True) else ""}
        for plane in (node.plane for node in cluster.living):
            wanted -= {*filter(plane.counts.get, wanted), "lost" if plane.lost else ""}
        if not wanted:
            break
    assert not wanted
