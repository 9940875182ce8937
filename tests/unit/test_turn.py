"""The order of one turn, and when a worker may sleep, over a transport and a board that a test writes down in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from squall import Config, Tuple
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.transport import Deliver, NoPeers, NoTransport
from squall.engine.core.turn import IDLE_WAIT_MAX_MS, REST_WAIT_MS, Turn
from squall.engine.flow.parcel import Parcel
from squall.testing.simulated import SimulatedCluster
from tests.unit.rig import Does, Feeder, acks, chain, keeps, placed


class Links(NoTransport):
    """Calls `looked` whenever it is looked at."""

    def __init__(self) -> None:
        self.looked: Callable[[], None] = lambda: None
        self.awake = True
        self.under_way = False

    def receive(self, deliver: Deliver, most: int) -> int:
        self.looked()
        return 0

    def set_awake(self, awake: bool) -> None:
        self.awake = awake

    def has_credit(self, worker: int) -> bool:
        return True

    @property
    def is_under_way(self) -> bool:
        return self.under_way


class One:
    """The first worker of a net, whose turns the test has."""

    def __init__(self, net: SimulatedCluster) -> None:
        self.net = net
        self.core = net.core(0)
        self.links = Links()
        self.turn = Turn(self.core, self.links, NoPeers(), Config(), net.clock.now_ns)

    def run_dry(self) -> None:
        while self.turn.run():
            pass

    def waits(self, count: int) -> list[int]:
        """How long it sleeps each time when nothing comes."""
        found = []
        for _ in range(count):
            found.append(self.turn.lie_down())
            assert self.links.awake == (found[-1] == 0)
            self.turn.get_up()
            assert self.links.awake
            assert not self.turn.run()
        return found

    def exhaust(self, exhausted: bool = True) -> None:
        """As the worker's spouts themselves do, which are copies."""
        for task in self.core.spout_tasks.values():
            task.user.exhausted = exhausted


def spout_here(*bolts: Does) -> tuple[Feeder, One]:
    spout = Feeder()
    net = placed(chain(spout, *bolts), "spout __acker " + " ".join(f"bolt-{n + 1}" for n in range(len(bolts))), "")
    return spout, One(net)


def test_a_turn_looks_again_after_spouts_and_feeders_and_before_them_if_they_take_their_time() -> None:
    def slowly(bolt: Does, tup: Tuple) -> None:
        one.net.clock.advance(tup[0])
        bolt.collector.emit(tup.values, anchors=tup)
        bolt.collector.ack(tup)

    feeder, leaf = Does(slowly, ("secs",)), Does(acks)
    spout, one = spout_here(feeder, leaf)
    seen: list[tuple[int, int]] = []
    one.links.looked = lambda: seen.append((len(feeder.seen), len(leaf.seen)))
    for number, secs in enumerate((0.0, 0.001, 0.0, 0.0)):
        spout.feed(secs, id=number)
        one.turn.run()
        assert len(leaf.seen) == number + 1
    # As a turn begins, and before those that nobody reads from; once more because the turn before took so long.
    assert seen == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (2, 2), (3, 2), (3, 3), (4, 3)]


def test_a_worker_that_has_worked_does_not_sleep_and_an_idle_one_ever_longer() -> None:
    spout, one = spout_here(Does(acks))
    spout.feed("x", id=1)
    assert one.turn.run()
    assert one.turn.lie_down() == 0
    assert one.links.awake
    one.run_dry()
    assert one.waits(7) == [1, 2, 4, 8, 16, IDLE_WAIT_MAX_MS, IDLE_WAIT_MAX_MS]


def test_a_worker_in_which_nothing_can_begin_by_itself_sleeps_longer() -> None:
    spout, one = spout_here(Does(acks))
    spout.feed("x", id=1)
    one.run_dry()
    assert max(one.waits(12)) == IDLE_WAIT_MAX_MS  # the spout may have more at any moment
    one.exhaust()
    assert max(one.waits(12)) == REST_WAIT_MS
    one.links.under_way = True
    assert one.turn.lie_down() == IDLE_WAIT_MAX_MS
    one.links.under_way = False
    spout.feed("y", id=2)
    one.core.set_active(False)
    assert max(one.waits(12)) == REST_WAIT_MS
    one.exhaust(False)
    one.core.set_active(True)
    one.run_dry()
    assert spout.acked == [1, 2]
    assert one.waits(3)[:2] == [1, 2]


def test_a_worker_with_an_open_message_sleeps_neither_long_nor_past_its_deadline() -> None:
    """The death of a worker that holds a part of it is known by looking only."""
    spout, one = spout_here(Does(keeps))
    spout.feed("x", id=1)
    one.run_dry()
    one.exhaust()
    assert max(one.waits(12)) == IDLE_WAIT_MAX_MS
    one.net.clock.advance(9.9985)
    one.turn.run()
    assert [one.turn.lie_down(), one.turn.lie_down(), one.turn.lie_down()] == [2, 2, 2]


def sending(send: Callable[[One, Parcel, int], int]) -> One:
    """A worker with tuples for another, which it sends so."""
    spout = Feeder()
    one = One(placed(chain(spout, Does(acks)), "spout __acker", "bolt-1"))
    one.links.send = lambda _, parcel, most_bytes=0: send(one, parcel, most_bytes)  # type: ignore[method-assign]
    for number in range(12):
        spout.feed("x", id=number)
    return one


def test_a_parcel_that_is_bigger_than_it_looked_is_cut_until_it_fits() -> None:
    rows = []

    def send(one: One, parcel: Parcel, most_bytes: int) -> int:
        size = parcel.rows * one.core.outgoing.frame_bytes
        if size > most_bytes:
            return size
        rows.append(parcel.rows)
        return 0

    sending(send).turn.run()
    assert sum(rows) == 12
    assert max(rows) <= 2


def test_a_parcel_that_cannot_be_sent_is_an_error_but_not_where_the_worker_ends() -> None:
    def send(one: One, parcel: Parcel, most_bytes: int) -> int:
        if parcel.rows:
            raise MemoryError("none left")
        return 0

    one = sending(send)
    with pytest.raises(TaskCrashed, match="none left"):
        one.turn.run()
    one.core.run_spouts()
    one.turn.send_last()
    assert one.net.errors
