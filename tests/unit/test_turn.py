"""The order of one turn, and when a worker may sleep, over a transport and a board that a test writes down in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from squall.engine.api.config import Config
from squall.engine.api.tuple import Tuple
from squall.engine.core.transport import Absorb, Deliver, NoPeers, NoTransport, PeerChange
from squall.engine.core.turn import IDLE_WAIT_MAX_MS, REST_WAIT_MS, Turn
from squall.engine.flow.parcel import Acks, Parcel
from squall.testing.simulated import SimulatedCluster
from tests.unit.rig import Does, Feeder, acks, chain, placed


class Links(NoTransport):
    """Has what the test put there, writes down what happens, and calls `looked` whenever it is looked at."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.frames: list[Parcel] = []
        self.acks: list[Acks] = []
        self.sent: list[Parcel] = []
        self.heard: set[int] = set()
        self.looked: Callable[[], None] = lambda: None
        self.awake = True
        self.under_way = False
        self.told_when_asleep = False

    def receive(self, deliver: Deliver, most: int) -> int:
        self.happened.append("receive")
        self.looked()
        frames, self.frames = self.frames, []
        for parcel in frames:
            self.heard.add(1)
            deliver(parcel, lambda: None)
        return len(frames)

    def take_heard(self) -> set[int]:
        heard, self.heard = self.heard, set()
        return heard

    def take_acks(self, absorb: Absorb) -> int:
        told, self.acks = self.acks, []
        for each in told:
            absorb(each)
        return len(told)

    def has_credit(self, worker: int) -> bool:
        return True

    def send(self, worker: int, parcel: Parcel, most_bytes: int | None = None) -> int:
        self.happened.append("send")
        self.sent.append(parcel)
        return 0

    def set_awake(self, awake: bool) -> None:
        self.awake = awake

    @property
    def is_under_way(self) -> bool:
        return self.under_way

    @property
    def has_acks(self) -> bool:
        return self.told_when_asleep and not self.awake


class Board(NoPeers):
    """Writes down when it is read."""

    def __init__(self, happened: list[str]) -> None:
        self._happened = happened

    def changed_peers(self) -> list[PeerChange]:
        self._happened.append("board")
        return []


class One:
    """The first worker of a net, whose turns the test has."""

    def __init__(self, net: SimulatedCluster) -> None:
        self.net = net
        self.core = net.core(0)
        self.links = Links()
        self.happened = self.links.happened
        board = Board(self.happened)
        self.turn = Turn(self.core, self.links, board, Config(), net.clock.now_ns)


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
    while one.turn.run():
        pass
    waits = []
    for _ in range(7):
        waits.append(one.turn.lie_down())
        assert not one.links.awake
        one.turn.get_up()
        assert one.links.awake
        one.turn.run()
    assert waits == [1, 2, 4, 8, 16, IDLE_WAIT_MAX_MS, IDLE_WAIT_MAX_MS]


def exhaust(one: One, exhausted: bool = True) -> None:
    """As the worker's spouts themselves do, which are copies."""
    for component, _, user in one.core.users():
        if component == "spout":
            user.exhausted = exhausted


def waits_of(one: One, count: int) -> list[int]:
    waits = []
    for _ in range(count):
        waits.append(one.turn.lie_down())
        one.turn.get_up()
        assert not one.turn.run()
    return waits


def test_a_worker_in_which_nothing_can_begin_by_itself_sleeps_longer() -> None:
    spout, one = spout_here(Does(acks))
    spout.feed("x", id=1)
    while one.turn.run():
        pass
    assert max(waits_of(one, 12)) == IDLE_WAIT_MAX_MS  # the spout may have more at any moment
    exhaust(one)
    assert max(waits_of(one, 12)) == REST_WAIT_MS
    one.links.under_way = True
    assert one.turn.lie_down() == IDLE_WAIT_MAX_MS
    one.links.under_way = False
    spout.feed("y", id=2)
    one.core.set_active(False)
    assert max(waits_of(one, 12)) == REST_WAIT_MS
    exhaust(one, False)
    one.core.set_active(True)
    while one.turn.run():
        pass
    assert spout.acked == [1, 2]
    assert waits_of(one, 3)[:2] == [1, 2]


def test_a_worker_with_an_open_message_does_not_sleep_long() -> None:
    """The death of a worker that holds a part of it is known by looking only."""
    spout = Feeder()
    one = One(placed(chain(spout, Does(lambda bolt, tup: None)), "spout __acker bolt-1", ""))
    spout.feed("x", id=1)
    while one.turn.run():
        pass
    exhaust(one)
    assert max(waits_of(one, 12)) == IDLE_WAIT_MAX_MS


def test_nobody_sleeps_past_its_next_deadline() -> None:
    spout = Feeder()
    one = One(placed(chain(spout, Does(lambda bolt, tup: None)), "spout __acker bolt-1", ""))
    spout.feed("x", id=1)
    while one.turn.run():
        pass
    one.net.clock.advance(9.9985)
    one.turn.run()
    assert [one.turn.lie_down(), one.turn.lie_down(), one.turn.lie_down()] == [1, 2, 2]


def test_a_parcel_that_is_bigger_than_it_looked_is_cut_until_it_fits() -> None:
    spout = Feeder()
    one = One(placed(chain(spout, Does(acks)), "spout __acker", "bolt-1"))
    tuple_bytes, rows = one.core.frame_bytes, []

    def send(worker: int, parcel: Parcel, most_bytes: int | None = None) -> int:
        size = parcel.rows * tuple_bytes
        if most_bytes is not None and size > most_bytes:
            return size
        rows.append(parcel.rows)
        return 0

    one.links.send = send  # type: ignore[method-assign]
    for n in range(12):
        spout.feed("x", id=n)
    one.turn.run()
    assert sum(rows) == 12
    assert max(rows) <= 2


def test_a_parcel_that_cannot_be_sent_is_an_error_but_not_where_the_worker_ends() -> None:
    spout = Feeder()
    net = placed(chain(spout, Does(acks)), "spout __acker", "bolt-1")
    one = One(net)
    refused: list[Parcel] = []

    def refuses(worker: int, parcel: Parcel, most_bytes: int | None = None) -> int:
        if parcel.rows:
            refused.append(parcel)
            raise MemoryError("none left")
        return 0

    one.links.send = refuses  # type: ignore[method-assign]
    spout.feed("x", id=1)
    with pytest.raises(Exception, match="none left"):
        one.turn.run()
    spout.feed("y", id=2)
    one.core.run_spouts()
    one.turn.send_last()
    assert len(refused) == 2
    assert len(net.errors) == 1
