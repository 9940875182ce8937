"""Values read in place, between planes that lose frames or die, and between workers that are killed."""

from __future__ import annotations

import gc

import pytest

from squall import Config, TopologyBuilder, run
from squall.ipc.shim import LinkRule, LinkShim
from tests.process.lending_parts import Keeps, Long, Relays
from tests.process.planes import Endpoint, Make, endpoints, pair, parcel, settled, turn_until

MIB = 1 << 20
VALUES = [bytes([number]) * 300_000 for number in range(3)]
"""So many have room in an arena of one MiB."""


@pytest.fixture
def make() -> object:
    with endpoints() as make:
        yield make


def lender(make: Make, shim: LinkShim | None = None) -> tuple[Endpoint, Endpoint]:
    one, other = pair(make, arena_bytes=MIB, shim=shim)
    one.plane.viewers = {batch.target for batch in parcel(b"").batches}
    return one, other


def taken_by_arena(one: Endpoint) -> int:
    """How many further values go by the arena."""
    before = one.plane.counts["buffers in arena"]
    one.plane.send_credit(1000)
    one.plane.send(1, parcel(*(bytes(value) + b"." for value in VALUES)))
    return one.plane.counts["buffers in arena"] - before


def test_credit_does_not_free_what_is_viewed_and_the_last_view_does(make: Make) -> None:
    one, other = lender(make)
    one.plane.send(1, parcel(*VALUES))
    turn_until(lambda: settled(one), [one, other])
    assert one.plane.has_credit(1)
    held = other.values
    other.parcels.clear()
    assert taken_by_arena(one) == 0
    turn_until(lambda: settled(one), [one, other])
    assert [bytes(view) for view in held] == VALUES
    held.clear()
    other.parcels.clear()
    gc.collect()
    assert taken_by_arena(one) == 3
    turn_until(lambda: settled(one), [one, other])
    other.parcels.clear()


def test_what_was_lent_to_the_dead_is_free(make: Make) -> None:
    one, other = lender(make)
    one.plane.send(1, parcel(*VALUES))
    turn_until(lambda: settled(one), [one, other])
    other.plane.disconnect(0)
    one.plane.disconnect(1)
    after = make(1, incarnation=2)
    one.connect(after)
    assert taken_by_arena(one) == 3
    turn_until(lambda: len(after.values) == 3, [one, after])
    after.parcels.clear()
    other.parcels.clear()


def test_what_a_lost_frame_lent_is_free(make: Make) -> None:
    shim = LinkShim([LinkRule("drop", 1.0, kind="data")], seed=1)
    one, other = lender(make, shim)
    one.plane.send(1, parcel(*VALUES))
    one.plane.break_links([], 1)
    one.plane.send(1, parcel("shows the gap"))
    turn_until(one.plane.take_lost, [one, other])
    assert taken_by_arena(one) == 3
    turn_until(lambda: len(other.values) == 4, [one, other])
    other.parcels.clear()


def test_views_outlive_their_sender(make: Make) -> None:
    one, other = lender(make)
    one.plane.send(1, parcel(*VALUES))
    turn_until(lambda: len(other.values) == 3, [one, other])
    held = other.values
    other.parcels.clear()
    one.close()
    other.plane.fence(0, 2)
    assert [bytes(view) for view in held] == VALUES


@pytest.mark.parametrize("arena_bytes", [64 * MIB, 4 * MIB])
def test_values_are_right_when_a_reader_is_killed_and_when_views_are_kept_beyond_the_ack(arena_bytes: int) -> None:
    """A spout, a bolt that passes views on and is killed once, a bolt that keeps 20 views: each in its own worker."""
    builder = TopologyBuilder()
    builder.set_spout("long", Long(120))
    builder.set_bolt("relays", Relays(dies_at=60)).shuffle_grouping("long")
    builder.set_bolt("keeps", Keeps()).shuffle_grouping("relays")
    report = run(builder.build(), Config(workers=3, arena_bytes=arena_bytes, max_spout_pending=16))
    assert (report.acked, report.pending, report.dead_letters) == (120, 0, 0)
    assert len(report.restarts) == 1
    assert report.components["keeps"].failed == 0
