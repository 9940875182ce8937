"""Links between data planes over real sockets, in one process so that every step can be chosen: credit, arena, faults."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from engine.errors import ClusterError, ComponentError, ProtocolError
from ipc import codec
from ipc.arena import MEMFD_NAME
from ipc.frame import CREDIT, DATA, HEADER_BYTES, HELLO, Header, seal
from ipc.shim import LinkRule, LinkShim
from tests.parcels import content, random_parcel, same
from tests.process.planes import MIB, WINDOW_BYTES, Endpoint, parcel, turn_until

BIG = 100_000
Make = Callable[..., Endpoint]


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="sq-"))  # short: socket paths end at 107 bytes
    yield path
    left = os.listdir(path)
    shutil.rmtree(path)
    assert left == []


@pytest.fixture
def make(directory: Path) -> Iterator[Make]:
    """Makes endpoints; afterwards checks that they leave no socket and no mapping."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made: list[Endpoint] = []

    def make(slot: int, incarnation: int = 1, **options: Any) -> Endpoint:
        made.append(Endpoint(context, directory, slot, incarnation, **options))
        return made[-1]

    yield make
    for endpoint in made:
        endpoint.plane.close()
    context.term()
    assert arena_mappings() == 0


def arena_mappings() -> int:
    return Path("/proc/self/maps").read_text().count(MEMFD_NAME)


def pair(make: Make, **options: Any) -> tuple[Endpoint, Endpoint]:
    one, other = make(0, **options), make(1)
    one.connect(other)
    other.connect(one)
    return one, other


def settled(sender: Endpoint) -> bool:
    return all(link.under_way_bytes == 0 for _, link, _ in sender.plane._outbound.values())


class Explodes:
    """Can be sent, cannot be received."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (_explode, ("cannot be rebuilt",))


def _explode(text: str) -> None:
    raise RuntimeError(text)


# What is delivered


@pytest.mark.parametrize("arena_bytes", [16 * MIB, MIB, 0])
def test_whatever_is_sent_arrives_equal(make: Make, arena_bytes: int, seed: int) -> None:
    dice = random.Random(seed)
    one, other = pair(make, arena_bytes=arena_bytes)
    sent = []
    for _ in range(200):
        turn_until(lambda: one.plane.has_credit(1), [one, other])
        sent.append(random_parcel(dice))
        one.plane.send(1, sent[-1])
    turn_until(lambda: settled(one), [one, other])
    assert same([content(p) for p in other.parcels], [content(p) for p in sent])
    assert other.plane.counts["frames received"] == 200
    assert one.arena_used_bytes == 0


def test_big_buffers_go_by_the_arena_until_it_is_full(make: Make) -> None:
    one, other = pair(make, arena_bytes=MIB)
    other.works = False
    values = [bytes([n]) * 300_000 for n in range(5)] + [bytearray(BIG), b"small"]
    one.plane.send(1, parcel(*values))
    assert one.plane.counts["buffers in arena"] == 4
    assert one.plane.counts["buffers inline"] == 2
    turn_until(lambda: other.parcels, [one, other])
    assert same(other.values, values)
    assert one.arena_used_bytes > 900_000
    other.finish_work()
    turn_until(lambda: settled(one), [one, other])
    assert one.arena_used_bytes == 0


def test_without_an_arena_nothing_is_shared(make: Make) -> None:
    one, other = pair(make, arena_bytes=0)
    one.plane.send(1, parcel(b"x" * BIG, bytearray(BIG)))
    turn_until(lambda: other.parcels, [one, other])
    assert same(other.values, [b"x" * BIG, bytearray(BIG)])
    assert one.plane.counts == {"frames sent": 2, "frames received": 0, "buffers inline": 2}
    assert arena_mappings() == 0


def test_value_that_cannot_be_sent_is_refused_and_the_link_lives(make: Make) -> None:
    one, other = pair(make)
    with pytest.raises(ComponentError, match=r"task 1 emitted .* value 0 \(generator\) cannot be sent"):
        one.plane.send(1, parcel(n for n in range(3)))
    one.plane.send(1, parcel("fine"))
    turn_until(lambda: other.values == ["fine"], [one, other])
    turn_until(lambda: settled(one), [one, other])


def test_value_that_cannot_be_received_is_counted_and_credited(make: Make) -> None:
    """Whoever sent it has been told nothing: its trees time out. The link must not stop for it."""
    one, other = pair(make)
    one.plane.send(1, parcel(Explodes(), b"x" * BIG))
    one.plane.send(1, parcel("fine"))
    turn_until(lambda: settled(one), [one, other])
    assert other.values == ["fine"]
    assert other.plane.counts["frames refused"] == 1
    assert other.plane.counts["frames received"] == 1
    assert other.plane.last_refusal == "frame 1 of slot 0 cannot be decoded: RuntimeError: cannot be rebuilt"
    assert one.arena_used_bytes == 0


# Credit


@pytest.mark.parametrize("arena_bytes", [16 * MIB, 0])
@pytest.mark.parametrize("size", [1000, BIG, 3 * WINDOW_BYTES])
def test_receiver_that_does_not_keep_up_stops_its_sender(make: Make, size: int, arena_bytes: int) -> None:
    one, other = pair(make, arena_bytes=arena_bytes)
    other.works = False
    sent = 0
    for _ in range(2):
        while one.plane.has_credit(1):
            one.plane.send(1, parcel(bytes(size)))
            sent += 1
        under_way = one.plane._outbound[1][1].under_way_bytes
        assert WINDOW_BYTES <= under_way < WINDOW_BYTES + size + 1000
        turn_until(lambda: len(other.parcels) == sent, [one, other])  # noqa: B023
        assert not one.plane.has_credit(1)
        other.finish_work()
        turn_until(lambda: one.plane.has_credit(1) and settled(one), [one, other])
        assert one.arena_used_bytes == 0
    assert sent == 2 * max(1, -(-WINDOW_BYTES // (size + 170))) or size >= BIG


def test_credit_comes_for_what_is_processed_and_no_more(make: Make) -> None:
    one, other = pair(make)
    other.works = False
    for n in range(4):
        one.plane.send(1, parcel(n))
    turn_until(lambda: len(other.parcels) == 4, [one, other])
    link = one.plane._outbound[1][1]
    each = link.under_way_bytes // 4
    other.at_work[2]()
    other.at_work[0]()
    turn_until(lambda: link.under_way_bytes == 3 * each, [one, other])
    other.at_work[1]()
    turn_until(lambda: link.under_way_bytes == each, [one, other])
    other.at_work[3]()
    turn_until(lambda: settled(one), [one, other])


def test_credit_waits_until_it_is_worth_a_frame(make: Make) -> None:
    one, other = pair(make)
    for n in range(3):
        one.plane.send(1, parcel(n))
    while len(other.parcels) < 3:
        assert other.plane.inbound.poll(20_000)
        other.plane.receive(other.take_in, 64)
    sent = other.plane.counts["frames sent"]
    other.plane.send_credit(at_least=4)
    assert other.plane.counts["frames sent"] == sent
    other.plane.send_credit(at_least=3)
    assert other.plane.counts["frames sent"] == sent + 1
    other.plane.send_credit(at_least=0)
    turn_until(lambda: settled(one), [one, other])


def test_no_more_frames_are_taken_than_asked_for(make: Make) -> None:
    one, other = pair(make)
    turn_until(lambda: one.plane.inbound.poll(0) == 0 and other.turn() == 0, [one])
    for n in range(10):
        one.plane.send(1, parcel(n))
    assert other.plane.inbound.poll(20_000)
    assert other.plane.receive(other.take_in, 0) == 0
    assert other.plane.receive(other.take_in, 3) <= 3
    turn_until(lambda: other.values == list(range(10)), [one, other])


def test_peer_may_send_before_it_is_connected_to(make: Make) -> None:
    """A worker learns of a peer from the board, which may be later than the peer's first frames. What those used up of
    the window must be given back, and they must not be taken twice."""
    one, other = make(0), make(1)
    one.connect(other)
    while one.plane.has_credit(1):
        one.plane.send(1, parcel(bytes(BIG)))
    n_sent = one.plane._outbound[1][1].sequence
    turn_until(lambda: len(other.parcels) == n_sent, [other])
    other.connect(one)
    turn_until(lambda: settled(one), [one, other])
    one.plane.send(1, parcel("more"))
    turn_until(lambda: len(other.parcels) == n_sent + 1, [one, other])
    assert other.plane.lost == 0


# Lost frames


def test_lost_tail_and_lost_credit_are_found_by_probing(make: Make) -> None:
    """The last frames of a link have no successor that would show the gap, and nobody repeats a lost credit."""
    shim = LinkShim([LinkRule("drop", 1.0, kind="data")], seed=1)
    one, other = make(0, shim=shim), make(1, shim=LinkShim([LinkRule("drop", 1.0, kind="credit")], seed=1))
    one.connect(other)
    other.connect(one)
    while one.plane.has_credit(1):
        one.plane.send(1, parcel(bytes(BIG)))
    n_lost = one.plane._outbound[1][1].sequence
    one.plane.probe()
    turn_until(lambda: other.plane.lost == n_lost, [one, other])
    assert not one.plane.has_credit(1)  # the answer was lost as well
    other.plane._shim = None
    one.plane.probe()
    turn_until(lambda: settled(one), [one, other])
    one.plane._shim = None
    one.plane.send(1, parcel("fine"))
    turn_until(lambda: settled(one) and other.values == ["fine"], [one, other])
    assert other.plane.lost == n_lost
    assert one.arena_used_bytes == 0


def test_probing_a_healthy_link_changes_nothing(make: Make) -> None:
    one, other = pair(make)
    other.works = False
    one.plane.probe()
    assert one.plane.counts["frames sent"] == 1  # nothing is under way: nothing to ask
    for n in range(5):
        one.plane.send(1, parcel(n))
        one.plane.probe()
    turn_until(lambda: other.turn() == 0 and len(other.parcels) == 5, [one, other])
    assert other.plane.lost == 0
    assert one.plane._outbound[1][1].under_way_bytes > 0
    other.finish_work()
    turn_until(lambda: settled(one), [one, other])


ACTIONS = ["drop", "duplicate", "delay", "reorder", "corrupt", "truncate"]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", ["data", None])
def test_faulty_link_delivers_once_or_not_at_all_and_goes_on(make: Make, action: str, kind: str | None, seed: int) -> None:
    shims = [LinkShim([LinkRule(action, 0.1, kind=kind)], seed + n) for n in range(2)]
    one, other = make(0, shim=shims[0]), make(1, shim=shims[1])
    one.connect(other)
    other.connect(one)
    n_sent = 1000
    for n in range(n_sent):
        while not one.plane.has_credit(1):
            one.plane.probe()
            turn_until(lambda: other.turn() == 0 and one.turn() == 0, [one, other])
        one.plane.send(1, parcel((n, bytes(BIG if n % 10 == 0 else 20_000))))

    def probed() -> bool:
        one.plane.probe()
        return settled(one)

    turn_until(probed, [one, other])
    numbers = [n for n, _ in other.values]
    assert numbers == sorted(set(numbers))  # in order, none twice
    assert all(len(data) == (BIG if n % 10 == 0 else 20_000) for n, data in other.values)
    assert one.arena_used_bytes == 0
    counts = other.plane.counts
    assert counts["frames received"] == len(numbers)
    assert counts["frames received"] + other.plane.lost == n_sent
    assert shims[0].counts[action] > 50
    if kind == "data":
        expected = {"frames repeated": 0, "frames refused": 0, "lost": shims[0].counts[action]}
        if action == "duplicate":
            expected |= {"frames repeated": shims[0].counts[action], "lost": 0}
        elif action in ("corrupt", "truncate"):
            expected["frames refused"] = shims[0].counts[action]
        elif action in ("delay", "reorder"):
            expected["frames repeated"] = expected["lost"] = other.plane.lost
        found = {name: counts[name] for name in ("frames repeated", "frames refused")} | {"lost": other.plane.lost}
        assert found == expected


def test_all_faults_at_once_both_ways(make: Make, seed: int) -> None:
    rules = [LinkRule(action, 0.03) for action in ACTIONS]
    ends = [make(n, shim=LinkShim(rules, seed + n)) for n in range(2)]
    one, other = ends
    one.connect(other)
    other.connect(one)
    for n in range(1000):
        for end in ends:
            peer = 1 - end.slot
            if end.plane.has_credit(peer):
                end.plane.send(peer, parcel((n, bytes(n % 50 * 2000))))
            end.plane.probe()
        turn_until(lambda: other.turn() == 0 and one.turn() == 0, [])

    def probed() -> bool:
        for end in ends:
            end.plane.probe()
        return all(map(settled, ends))

    turn_until(probed, ends)
    for end in ends:
        numbers = [n for n, _ in end.values]
        assert numbers == sorted(set(numbers))
        assert len(numbers) > 500
        assert all(data == bytes(n % 50 * 2000) for n, data in end.values)
        assert end.arena_used_bytes == 0


# Incarnations


def test_stragglers_of_a_dead_incarnation_are_refused(make: Make) -> None:
    """Before and after the board has said so; and they must not disturb the numbering of the living one."""
    one, other = make(0), make(1)
    one.connect(other)
    for n in range(5):
        one.plane.send(1, parcel(("old", n)))
    turn_until(lambda: len(other.parcels) == 5, [other])
    newer = make(0, incarnation=2)
    newer.connect(other)
    newer.plane.send(1, parcel(("new", 1)))
    turn_until(lambda: len(other.parcels) == 6, [other])
    one.plane.send(1, parcel(("old", 5)))
    newer.plane.send(1, parcel(("new", 2)))
    turn_until(lambda: other.plane.counts["frames refused"] == 1 and len(other.parcels) == 7, [other])
    assert other.plane.last_refusal == "frame of slot 0's dead incarnation 1"
    other.plane.disconnect(0)
    other.plane.fence(0, 2)
    one.plane.send(1, parcel(("old", 6)))
    newer.plane.send(1, parcel(("new", 3)))
    turn_until(lambda: other.plane.counts["frames refused"] == 2 and len(other.parcels) == 8, [other])
    assert other.values[5:] == [("new", 1), ("new", 2), ("new", 3)]
    assert other.plane.lost == 0
    # The living one gets credit for all it sent, also for what came before it was connected to.
    other.connect(newer)
    turn_until(lambda: settled(newer), [newer, other])


def test_fence_is_never_lowered(make: Make) -> None:
    one, other = make(0), make(1)
    one.connect(other)
    other.plane.fence(0, 3)
    other.plane.fence(0, 1)
    one.plane.send(1, parcel("old"))
    turn_until(lambda: other.plane.counts["frames refused"] == 2, [other])
    assert not other.parcels


def test_credit_of_a_former_life_is_not_given_to_the_next(make: Make) -> None:
    """The peer died and its successor is connected to before any frame of it came: what is owed is owed to the dead."""
    one, other = pair(make)
    one.plane.send(1, parcel("old"))
    turn_until(lambda: other.parcels, [other]) if other.plane.inbound.poll(20_000) else None
    newer = make(0, incarnation=2)
    other.connect(newer)
    other.plane.send_credit(at_least=0)
    assert newer.plane.inbound.poll(20_000)
    newer.connect(other)
    newer.plane.send(1, parcel("new"))
    turn_until(lambda: settled(newer) and other.values == ["old", "new"], [newer, other])
    assert newer.plane.counts["frames refused"] == 0
    assert [position[1:] for position in other.plane.positions()] == [(2, 0, 1)]


def test_disconnecting_frees_the_arena(make: Make) -> None:
    one, other = pair(make)
    third = make(2)
    one.connect(third)
    for slot in (1, 2):
        one.plane.send(slot, parcel(b"x" * BIG, bytearray(BIG)))
    used = one.arena_used_bytes
    one.plane.disconnect(1)
    assert one.arena_used_bytes == used // 2
    assert not one.plane.is_connected(1)
    assert not one.plane.has_credit(1)
    one.plane.disconnect(1)
    turn_until(lambda: settled(one), [one, third])
    assert one.arena_used_bytes == 0


def test_positions_tell_what_is_under_way(make: Make) -> None:
    one, other = pair(make)
    other.works = False
    for _ in range(3):
        one.plane.send(1, parcel("x"))
    turn_until(lambda: len(other.parcels) == 3, [one, other])
    assert list(one.plane.positions()) == [(1, 1, 3, 0)]
    assert list(other.plane.positions()) == [(0, 1, 0, 0)]
    other.finish_work()
    assert list(other.plane.positions()) == [(0, 1, 0, 3)]


# Frames that nobody of ours would send


class Marker:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return os.mkdir, (str(self.path), 0o700)


def frame(body: list[bytes], kind: int = DATA, sequence: int = 1, **changes: int) -> list[bytes]:
    fields = {"sender": 0, "receiver": 1, "sender_incarnation": 1, "receiver_incarnation": 1} | changes
    head = seal(Header(kind=kind, sequence=sequence, **fields), body)
    return [head + b"".join(body[:1]), *body[1:]]


GOOD, _ = codec.encode(parcel("good"))
REF = (os.getpid(), 1, 5, 4096, 100_000, 1, -1)


def descriptors(*rows: Any) -> bytes:
    return msgspec.msgpack.encode(rows)


BAD_FRAMES: dict[str, tuple[list[bytes], str]] = {
    "nothing": ([b""], "frame header of 0 bytes; it must have 28"),
    "short": ([b"SQ\x01"], "frame header of 3 bytes; it must have 28"),
    "noise": ([random.Random(1).randbytes(500), b"more"], "frame of protocol"),
    "checksum": ([frame([GOOD])[0][:-1] + b"x"], "checksum"),
    "missing part": (frame([GOOD, b"two"])[:1], "checksum"),
    "other slot": (frame([GOOD], receiver=2), "frame for slot 2 incarnation 1"),
    "other incarnation": (frame([GOOD], receiver_incarnation=2), "frame for slot 1 incarnation 2"),
    "number 2**63": (frame([GOOD], sequence=1 << 63), "frames are missing after frame 0"),
    "hello 2**63": (frame([], kind=HELLO, sequence=1 << 63), "frames are missing after frame 0"),
    "hello with content": (frame([b"x"], kind=HELLO), "hello frame of the wrong size"),
    "short credit": (frame([b"1234567"], kind=CREDIT), "credit frame of the wrong size"),
    "long credit": (frame([b"123456789"], kind=CREDIT), "credit frame of the wrong size"),
    "empty credit": (frame([], kind=CREDIT), "credit frame of the wrong size"),
    "credit in parts": (frame([b"12345678", b""], kind=CREDIT), "credit frame of the wrong size"),
    "credit too far": (frame([struct.pack("<Q", 1 << 63)], kind=CREDIT), "credit for frame 9223372036854775808; only 0"),
    "no content": (frame([]), "frame 1 of slot 0 cannot be decoded: EOFError"),
    "no pickle": (frame([b"garbage"]), "frame 1 of slot 0 cannot be decoded: UnpicklingError"),
    "other pickle": (frame([pickle.dumps({"a": 1})]), "frame 1 of slot 0 cannot be decoded: ValueError"),
    "half a pickle": (frame([GOOD[:50]]), "frame 1 of slot 0 cannot be decoded: "),
    "empty descriptors": (frame([GOOD, b""]), "frame 1 of slot 0 cannot be decoded: DecodeError"),
    "other descriptors": (frame([GOOD, descriptors("a")]), "frame 1 of slot 0 cannot be decoded: ValidationError"),
    "missing buffer": (frame([GOOD, descriptors((True, None))]), "frame 1 of slot 0 cannot be decoded: StopIteration"),
    "short reference": (frame([GOOD, descriptors((True, (1, 2)))]), "frame 1 of slot 0 cannot be decoded: TypeError"),
    "foreign file": (frame([GOOD, descriptors((True, REF))]), "frame 1 of slot 0 cannot be decoded: "),
    "dead process": (frame([GOOD, descriptors((True, (0, *REF[1:])))]), "decoded: ClusterError: cannot attach the arena"),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_frame_is_counted_and_harms_nobody(make: Make, name: str, directory: Path) -> None:
    message, refusal = BAD_FRAMES[name]
    one, other = pair(make)
    turn_until(lambda: one.turn() == 0 and other.turn() == 0, [one, other])
    attacker = one.plane._socket(zmq.PUSH)
    attacker.connect(f"ipc://{other.path}")
    attacker.send_multipart(message)
    turn_until(lambda: other.plane.counts["frames refused"] == 1, [one, other])
    assert refusal in other.plane.last_refusal
    assert not other.parcels
    # What was understood of it counts (frame 1 came, and was useless); the link goes on after it.
    sender = one.plane._outbound[1][1]
    if "cannot be decoded" in refusal:
        sender.send(10)
    one.plane.send(1, parcel("good"))
    turn_until(lambda: other.values == ["good"] and settled(one), [one, other])
    assert other.plane.counts["frames refused"] == 1
    assert other.plane.lost == 0
    attacker.close(0)


def test_frame_that_is_refused_is_never_unpickled(make: Make, directory: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    evil = pickle.dumps(Marker(marker))
    other = make(1)
    other.plane.fence(7, 5)
    attacker = other.plane._socket(zmq.PUSH)
    attacker.connect(f"ipc://{other.path}")
    whole = frame([evil])[0]
    messages = [[whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]] for at in range(len(whole))]
    messages += [frame([evil], receiver=9), frame([evil], receiver_incarnation=9), frame([evil], sender=7)]
    messages += [frame([evil], sequence=1 << 40), frame([evil], kind=HELLO), frame([evil], kind=CREDIT), [evil]]
    for message in messages:
        attacker.send_multipart(message)
    turn_until(lambda: other.plane.counts["frames refused"] == len(messages), [other])
    assert not marker.exists()
    assert not other.parcels
    attacker.close(0)


def test_random_messages(make: Make, seed: int) -> None:
    dice = random.Random(seed)
    one, other = pair(make)
    attacker = one.plane._socket(zmq.PUSH)
    attacker.connect(f"ipc://{other.path}")
    good = frame([GOOD, descriptors(), b"x"], sender=9)
    n_messages = 2000
    for _ in range(n_messages):
        message = list(good)
        for _ in range(dice.randrange(1, 4)):
            part = dice.randrange(len(message))
            data, at = message[part], dice.randrange(len(message[part]) + 1)
            message[part] = dice.choice((data[:at], data[:at] + dice.randbytes(3) + data[at + 3 :], dice.randbytes(40)))
        attacker.send_multipart(message)
    one.plane.send(1, parcel("good"))
    handled = ("frames refused", "frames received", "frames repeated")
    turn_until(lambda: sum(other.plane.counts[name] for name in handled) == n_messages + 1, [one, other])
    assert "good" in other.values
    attacker.close(0)


# Beginning and end


def test_arena_of_a_dead_sender_is_unmapped(make: Make) -> None:
    one, other = pair(make)
    one.plane.send(1, parcel(b"x" * BIG))
    turn_until(lambda: settled(one), [one, other])
    assert arena_mappings() == 2
    other.plane.disconnect(0)
    other.plane.fence(0, 2)
    assert arena_mappings() == 1
    one.plane.close()
    newer = make(0, incarnation=2)
    newer.connect(other)
    newer.plane.send(1, parcel(b"x" * BIG))
    turn_until(lambda: len(other.parcels) == 2, [other])
    assert arena_mappings() == 2
    newest = make(0, incarnation=3)  # seen before the board said so
    newest.connect(other)
    newest.plane.send(1, parcel("x"))
    turn_until(lambda: len(other.parcels) == 3, [other])
    assert arena_mappings() == 1


def test_path_that_cannot_be_bound(make: Make, directory: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with pytest.raises(ClusterError, match=f"cannot listen on {directory}/no/0-1: "):
        Endpoint(context, directory / "no", 0)
    context.term()


def test_closing_removes_the_path_and_may_be_repeated(make: Make) -> None:
    one, other = pair(make)
    assert one.path.is_socket()
    one.plane.send(1, parcel(b"x" * BIG))
    one.plane.close()
    one.plane.close()
    assert not one.path.exists()


def test_last_words_are_heard(make: Make) -> None:
    """What a worker sends before it closes reaches a peer that is alive."""
    one, other = pair(make, arena_bytes=0)
    for n in range(50):
        one.plane.send(1, parcel((n, b"x" * BIG)))
    one.plane.close()
    turn_until(lambda: len(other.parcels) == 50, [other])
    assert [n for n, _ in other.values] == list(range(50))


