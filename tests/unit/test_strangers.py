"""Strangers that talk to a socket on purpose: they never wait, are never many, and hang up when the fault ends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from squall.scheduler.breaking.strangers import HOSTILE_BYTES, KEPT, Address, Strangers
from squall.scheduler.faults.in_force import FaultInForce, Victim

PASSWORD = b"p" * 64
FAULT = FaultInForce(
    1, HOSTILE_BYTES, ["nimbus"], 100.0, 110.0, "node-1", [Victim("nimbus", 1, 1)],
    params={"sends": "half-open", "per_sec": 10},
)  # fmt: skip


class Listener:
    """A process that takes connections, and answers none by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen(64)
        self.socket.setblocking(False)
        self.taken: list[socket.socket] = []

    def take(self) -> int:
        """How many connections have come."""
        while True:
            try:
                self.taken.append(self.socket.accept()[0])
            except BlockingIOError:
                return len(self.taken)

    def open(self) -> int:
        """How many of them are still open."""
        return sum(not _has_ended(each) for each in self.taken)

    def close(self) -> None:
        for each in (self.socket, *self.taken):
            each.close()


def _has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    return True


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(tmp_path / "s")
    yield made
    made.close()


@pytest.fixture
def make(listener: Listener) -> Iterator[Callable[..., Strangers]]:
    made = []

    def strangers(takes_tuples: bool = False) -> Strangers:
        address = Address(listener.path, PASSWORD, takes_tuples)
        made.append(Strangers("node-1", lambda name: address if name == "nimbus" else None))
        return made[-1]

    yield strangers
    for each in made:
        each.end()


def test_few_are_open_at_a_time_and_none_at_the_end(make: Callable[..., Strangers], listener: Listener) -> None:
    sent = make()
    sent.take([FAULT], 100.0)
    for _ in range(3 * KEPT):
        due = sent.next_deadline()
        assert due is not None
        sent.tick(due - 0.01)
        sent.tick(due)
        listener.take()
        assert listener.open() <= KEPT
    assert listener.take() == 3 * KEPT + 1
    sent.tick(110.0)
    assert (listener.open(), sent.next_deadline()) == (0, None)


@pytest.mark.parametrize("how", ["healed", "forgotten", "the carrier ends"])
def test_they_hang_up(make: Callable[..., Strangers], listener: Listener, how: str) -> None:
    sent = make()
    sent.take([FAULT], 100.0)
    assert (listener.take(), listener.open()) == (1, 1)
    if how == "healed":
        sent.take([replace(FAULT, ends_secs=101.0)], 101.0)
    elif how == "forgotten":
        sent.take([], 101.0)
    else:
        sent.end()
    assert listener.open() == 0


def test_who_is_away_is_tried_again(make: Callable[..., Strangers], listener: Listener) -> None:
    sent = make()
    away = listener.path.rename(listener.path.with_name("away"))
    sent.take([FAULT, replace(FAULT, id=2, victims=[Victim("node-1:6700", 1, 1)])], 100.0)
    assert listener.take() == 0
    away.rename(listener.path)
    sent.tick(100.2)
    assert listener.take() == 1


def test_others_carry_their_own_faults_out(make: Callable[..., Strangers], listener: Listener) -> None:
    sent = make()
    sent.take([replace(FAULT, carrier="node-2"), replace(FAULT, kind="stop")], 100.0)
    assert (listener.take(), sent.next_deadline()) == (0, None)


@pytest.mark.parametrize("takes_tuples", [False, True])
def test_a_forger_gives_the_password_and_waits_to_be_let_in(
    make: Callable[..., Strangers], listener: Listener, takes_tuples: bool
) -> None:
    sent = make(takes_tuples)
    sent.take([replace(FAULT, params={"sends": "forged", "per_sec": 10})], 100.0)
    listener.take()
    first = listener.taken[0]
    first.setblocking(False)
    assert first.recv(4096).endswith(PASSWORD)
    for turn, (answer, said) in enumerate(((b"WELCOME", b"INITIATE"), (b"READY", b""))):
        sent.tick(100.2 + turn)
        with pytest.raises(BlockingIOError):
            first.recv(4096)
        first.send(answer)
        sent.tick(100.6 + turn)
        assert said in first.recv(4096)


def test_all_ways_are_taken_in_turn(make: Callable[..., Strangers], listener: Listener) -> None:
    sent = make()
    sent.take([replace(FAULT, params={"sends": "all", "per_sec": 10})], 100.0)
    for turn in range(6):
        sent.tick(100.2 + turn)
    assert listener.take() == 7
    said = []
    for each in listener.taken:
        each.setblocking(False)
        try:
            said.append(each.recv(1 << 16))
        except BlockingIOError:
            said.append(b"")
    assert len(set(said)) == 7
    assert said.count(b"") == 1, "one says nothing"
    assert [each.endswith(PASSWORD) for each in said] == [False] * 4 + [False, False, True]
