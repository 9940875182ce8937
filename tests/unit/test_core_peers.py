"""The worker core when other workers die and are replaced."""

from __future__ import annotations

import random
from typing import Any

import pytest

from squall.engine.api.collectors import BasicCollector
from squall.engine.api.config import Config
from squall.engine.api.failure import Failure
from squall.engine.api.stream import Stream
from squall.engine.api.tuple import Tuple
from squall.engine.core.executor import TaskCrashed
from tests.held import early
from tests.unit.ledger import Ledger, topology_of
from tests.unit.net import TIMEOUT_SECS, Net, pending, placed, scatter, tracked
from tests.unit.rig import Does, DoesBasic, Feeder, aggregates, chain, emits, keeps


def directly(bolt: Does, tup: Tuple) -> None:
    bolt.collector.emit_direct(bolt.context.component_tasks("sink")[0], tup.values, tup, "to")
    bolt.collector.ack(tup)


def basic(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    collector.emit(tup.values)


def basic_directly(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    collector.emit_direct(bolt.context.component_tasks("sink")[0], tup.values, "to")


@pytest.mark.parametrize(
    "middle", [Does(emits(1)), Does(aggregates(2)), Does(directly), DoesBasic(basic), DoesBasic(basic_directly)]
)
def test_what_was_sent_on_to_the_dead_worker_fails_however_it_was_emitted(middle: Any) -> None:
    middle.outputs = {"default": ("value",), "to": Stream("value", direct=True)}
    spout, sink = Feeder(), Does(keeps)
    builder = chain(spout, middle)
    builder.set_bolt("sink", sink).shuffle_grouping("bolt-1").direct_grouping("bolt-1", "to")
    net = placed(builder, "__acker spout", "bolt-1", "sink")
    spout.feed("x", id=1)
    spout.feed("y", id=2)
    net.settle()
    assert sink.kept
    net.kill(2)
    net.settle()
    assert sorted(spout.reasons) == [(1, "worker died"), (2, "worker died")]
    assert (tracked(net), pending(net)) == (0, 0)


def test_a_reset_for_a_spout_that_was_replaced_meanwhile_is_not_lost() -> None:
    def resets(bolt: Does, tup: Tuple) -> None:
        bolt.collector.reset_timeout(tup)

    spout, sink = Feeder(), Does(resets)
    net = placed(chain(spout, sink), "bolt-1", "spout", "__acker")
    net.settle()
    net.kill(1)
    net.restart(1)
    spout.feed("x", id=1)
    net.clock.advance(TIMEOUT_SECS - 1)
    net.let(1)
    net.clock.advance(TIMEOUT_SECS - 1)
    net.let(0)
    net.settle()
    net.clock.advance(TIMEOUT_SECS - 1)
    net.settle()
    assert spout.reasons == []
    net.advance(TIMEOUT_SECS)
    assert spout.reasons == [(1, "timeout")]


@pytest.mark.parametrize("places", [("spout bolt-1", "__acker"), ("spout __acker", "bolt-1")])
def test_a_spout_that_raises_when_it_is_told_of_a_death_is_named(places: tuple[str, ...]) -> None:
    class Raises(Feeder):
        def on_failure(self, message_id: Any, failure: Failure) -> None:
            raise ValueError("not now")

    spout = Raises()
    net = placed(chain(spout, Does(keeps)), *places)
    spout.feed("x", id=1)
    net.settle()
    net.kill(1)
    with pytest.raises(TaskCrashed, match=r"^spout\[3\] raised ValueError: not now in on_failure"):
        net.settle()


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
