"""Whoever has not given the password meets no socket of ours: it is counted, and what it says takes no memory."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from squall.ipc.control import ControlServer
from squall.ipc.door import password_of
from squall.ipc.rundir import RunDir
from squall.ipc.zmtp import COMMAND, MORE, announcement, greeting, hello, ready, zmtp
from tests.held import held
from tests.process.intruder import Intruder
from tests.process.plane_process import PlaneProcess, is_done
from tests.process.planes import (
    MIB,
    OPENING,
    Endpoint,
    Make,
    attack,
    endpoints,
    frame,
    pair,
    parcel,
    settled,
    socket_directory,
    turn_until,
)
from tests.process.waiting import wait_for

PART = bytes(MIB // 2)
PARTS = 4096
MOST_BYTES = 64 * MIB
"""What the test's own work, allocators and threads may take meanwhile."""

AS_BEFORE = greeting(b"NULL") + ready(b"PUSH")
WRONG = greeting(b"PLAIN") + hello(b"squall", b"x" * 64)
OTHER_VERSION = greeting(b"PLAIN") + hello(b"squall", password_of(OPENING[:-1], b"data plane"))
UNASKED = greeting(b"PLAIN") + ready(b"PUSH")
BEGINNINGS = {
    "without a password": AS_BEFORE,
    "a wrong password": WRONG,
    "the password of another version": OTHER_VERSION,
    "no password where one is due": UNASKED,
    "a command of a gigabyte": greeting(b"PLAIN") + announcement(1 << 30, COMMAND),
    "another protocol": b"POST / HTTP/1.1\r\n\r\n",
    "ZMTP 2": b"\xff" + bytes(8) + b"\x7f\x01\x08\x00\x00",
}


@pytest.fixture
def make() -> Iterator[Make]:
    with endpoints() as make:
        yield make


@pytest.fixture
def server() -> Iterator[ControlServer]:
    run_dir = RunDir.create()
    made = ControlServer(run_dir.nimbus_socket, b"k" * 32, "nimbus")
    yield made
    made.close()
    run_dir.remove()


def memory(name: str) -> int:
    """Bytes: VmRSS or VmSize of this process."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


def say_without_end(path: str | Path, beginning: bytes) -> int:
    """Say the beginning, then one message of ever more parts; the most that this process grew by meanwhile."""
    before = memory("VmRSS")
    grown = 0
    part = zmtp(PART, MORE)
    with Intruder(path) as intruder:
        heard = intruder.say(beginning)
        for _ in range(PARTS):
            heard = heard and intruder.say(part)
            grown = max(grown, memory("VmRSS") - before)
            if not heard or grown > MOST_BYTES:
                break
    return grown


def goes_on(one: Endpoint, other: Endpoint) -> None:
    one.plane.send(other.worker, parcel("good"))
    turn_until(lambda: other.values[-1:] == ["good"] and settled(one), [one, other])
    assert other.plane.lost == 0


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_message_without_end_is_refused_counted_and_not_kept(make: Make, beginning: bytes) -> None:
    one, other = pair(make)
    goes_on(one, other)
    assert say_without_end(other.path, beginning) < MOST_BYTES
    turn_until(lambda: other.plane.refused, [one, other])
    assert other.plane.refused == 1
    assert other.plane.counts["frames refused"] == 0
    goes_on(one, other)


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_control_socket_keeps_nothing_of_it_either(server: ControlServer, beginning: bytes) -> None:
    assert say_without_end(server.path, beginning.replace(ready(b"PUSH"), ready(b"DEALER"))) < MOST_BYTES
    wait_for("it is counted", lambda: server.recv() is None and server.refused)
    assert server.refused == 1


ANNOUNCED = {
    "as a part": AS_BEFORE + announcement(3 << 30),
    "as a later part": AS_BEFORE + zmtp(b"hi", MORE) * 3 + announcement(3 << 30),
    "as a command": greeting(b"PLAIN") + announcement(3 << 30, COMMAND),
    "after a wrong password": WRONG + announcement(3 << 30, MORE),
}


@pytest.mark.parametrize("said", ANNOUNCED.values(), ids=ANNOUNCED)
def test_an_announcement_of_three_gigabytes_is_counted_and_no_room_made_for_it(make: Make, said: bytes) -> None:
    one, other = pair(make)
    goes_on(one, other)
    before = memory("VmSize")
    with Intruder(other.path) as intruder:
        intruder.say(said)
        intruder.await_end()
        assert memory("VmSize") - before < 256 * MIB
    turn_until(lambda: other.plane.refused == 1, [one, other])
    goes_on(one, other)
    assert other.plane.refused == 1


@pytest.mark.parametrize("password", [None, b"x" * 64], ids=["none", "wrong"])
def test_a_socket_of_zeromq_is_refused(make: Make, password: bytes | None) -> None:
    one, other = pair(make)
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        if password is not None:
            stranger.setsockopt(zmq.PLAIN_USERNAME, b"squall")
            stranger.setsockopt(zmq.PLAIN_PASSWORD, password)
        stranger.connect(f"ipc://{other.path}")
        stranger.send_multipart(frame([b"evil"]), zmq.NOBLOCK)
        turn_until(lambda: other.plane.refused == 1, [one, other])
    goes_on(one, other)
    assert other.values == ["good"]


def test_who_only_looks_whether_somebody_listens_is_counted_too(make: Make) -> None:
    one, other = pair(make)
    with Intruder(other.path):
        pass
    turn_until(lambda: other.plane.refused == 1, [one, other])
    goes_on(one, other)


def test_a_worker_that_is_busy_lets_its_peers_in_later_and_keeps_nothing_of_others_meanwhile(make: Make) -> None:
    one, dies, other = make(0), make(2), make(1)
    dies.connect(other)
    knocks = other.plane.knocks
    wait_for("the one that dies to have knocked", lambda: knocks.poll(0))
    one.connect(other)
    one.plane.send(1, parcel("early"))
    assert say_without_end(other.path, AS_BEFORE) < MOST_BYTES
    dies.plane.disconnect(1)
    assert say_without_end(other.path, WRONG) < MOST_BYTES
    assert other.plane.refused == 0
    turn_until(lambda: other.values == ["early"] and other.plane.refused == 2, [one, other])
    other.connect(one)
    goes_on(one, other)
    assert other.plane.refused == 2


def test_a_peer_that_dies_before_it_is_let_in_is_not_counted(make: Make) -> None:
    one, other = make(0), make(1)
    door = other.plane.door
    for incarnation in (1, 2):
        dies = make(2, incarnation=incarnation)
        dies.connect(other)
        wait_for("it to knock", lambda: door.knocks.poll(0))
        dies.plane.disconnect(1)
        turn_until(lambda: not door.knocks.poll(0) and held(door) == 0, [other])  # it was let in, and its end is known
    one.connect(other)
    other.connect(one)
    goes_on(one, other)
    assert other.plane.refused == 0


def test_a_flood_of_connections_takes_no_memory_and_each_is_counted(make: Make) -> None:
    one, other = pair(make)
    goes_on(one, other)
    before = memory("VmRSS")
    n_rounds = 500
    for _ in range(n_rounds):
        for beginning in (AS_BEFORE, b"POST / HTTP/1.1\r\n\r\n"):
            with Intruder(other.path) as intruder:
                intruder.say(beginning)
                intruder.await_end()
    turn_until(lambda: other.plane.refused == 2 * n_rounds, [one, other])
    assert memory("VmRSS") - before < MOST_BYTES
    assert held(other.plane.door) == 1
    goes_on(one, other)


def test_frames_of_who_was_let_in_are_checked_all_the_same(make: Make) -> None:
    other = make(1)
    attack(other, frame([b"evil"], opening=OPENING[:-1] + b"x"))
    turn_until(lambda: other.plane.refused == 1, [other])
    assert (other.plane.counts["frames refused"], other.plane.door.refused) == (1, 0)


def stopped(process: PlaneProcess) -> contextlib.ExitStack:
    """Nothing of it runs, its threads neither, until the block ends."""
    assert process.process.pid is not None
    os.kill(process.process.pid, signal.SIGSTOP)
    stack = contextlib.ExitStack()
    stack.callback(os.kill, process.process.pid, signal.SIGCONT)
    return stack


def exchange(one: PlaneProcess, other: PlaneProcess, first: int, last: int) -> Callable[[], bool]:
    one.ask("send", other.worker, first, last)
    return lambda: is_done(one)


def test_a_successor_is_let_in_and_who_was_stopped_meanwhile_lets_it_in_when_it_goes_on() -> None:
    with socket_directory() as directory, contextlib.ExitStack() as stack:
        processes = [PlaneProcess(directory, worker) for worker in (0, 1)]
        one, other = processes
        for process in processes:
            stack.callback(process.close)
        one.connect(other)
        other.connect(one)
        wait_for("frames", exchange(one, other, 0, 20))
        one.kill()
        (directory / "0-1").unlink()
        with stopped(other):
            newer = PlaneProcess(directory, 0, incarnation=2)
            stack.callback(newer.close)
            newer.connect(other)
            newer.ask("send", 1, 20, 40)
        other.ask("declare_dead", 0, 1)
        other.connect(newer)
        wait_for("frames of the successor", lambda: is_done(newer))
        state = other.state()
        assert (state["numbers"][0], state["twice"], state["wrong"]) == ([*range(40)], [], [])
        assert (state["refused"], state["lost"]) == (0, 0)
