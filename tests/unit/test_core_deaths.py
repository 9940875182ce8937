"""Two or three workers in any interleaving, with and without deaths: never acked early, never pending for ever."""

from __future__ import annotations

import random

import pytest

from squall.engine.api.config import Config
from tests.held import early
from tests.unit.ledger import Ledger, topology_of
from tests.unit.net import Net, scatter

MAX_TURNS = 12_000


def make_net(rng: random.Random, failing: float, messages: int = 40) -> tuple[Net, Ledger]:
    ledger = Ledger(messages, rng, failing)
    topology = topology_of(ledger)
    plan = scatter(topology, rng, n_workers=rng.choice((2, 3)), ackers=rng.choice((1, 2, 3)))
    config = Config(seed=rng.getrandbits(30), max_spout_pending=rng.choice((3, 10, None)))
    return Net(topology, plan, config, rng), ledger


def finish(net: Net, ledger: Ledger) -> None:
    """Turn until everything is acked and quiet, and look whether anything was left."""
    for _ in range(MAX_TURNS):
        if len(ledger.acked) == ledger.messages and net.quiet:
            break
        net.turn()
    assert ledger.too_early == []
    assert sorted(ledger.acked) == list(range(ledger.messages))
    assert net.quiet
    for core in net.cores:
        assert [len(task.pending) for _, task in core.spout_tasks.values()] == [0] * len(core.spout_tasks)
        assert [len(acker) for acker in core.ackers.values()] == [0] * len(core.ackers)
        core.tracking.rotate()
        core.tracking.rotate()
        assert [early(acker) for acker in core.ackers.values()] == [0] * len(core.ackers)




@pytest.mark.parametrize("number", range(12))
def test_in_any_interleaving_everything_is_acked_and_nothing_left(seed: int, number: int) -> None:
    net, ledger = make_net(random.Random(seed), failing=0)
    finish(net, ledger)
    assert ledger.reasons == []
    assert set(ledger.attempts.values()) == {1}
    # Nothing was told twice or to the wrong one: not even garbage.
    assert sum(early(acker) for core in net.cores for acker in core.ackers.values()) == 0


@pytest.mark.parametrize("number", range(6))
def test_what_fails_is_replayed_until_it_is_acked(seed: int, number: int) -> None:
    net, ledger = make_net(random.Random(seed), failing=0.2)
    finish(net, ledger)
    assert set(ledger.reasons) <= {"failed"}


@pytest.mark.parametrize("number", range(24))
def test_whoever_dies_everything_is_acked_without_waiting_for_a_timeout(seed: int, number: int) -> None:
    rng = random.Random(seed)
    net, ledger = make_net(rng, failing=rng.choice((0, 0.1)))
    for _ in range(rng.randrange(1, 12)):
        for _ in range(rng.randrange(150)):
            net.turn()
        net.chaos()
    net.repair()
    finish(net, ledger)
    assert set(ledger.reasons) <= {"failed", "worker died"}
