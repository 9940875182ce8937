"""The envelope of control messages: what is signed is read, what was tampered with is not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import zmq

from squall.engine.api.tuple import Tuple
from squall.engine.core.hook_calls import tamper
from squall.engine.errors import ClusterError, ProtocolError
from squall.ipc.control import ControlClient, ControlServer
from squall.ipc.envelope import Sealer, open_envelope, sign
from squall.ipc.rundir import RunDir
from tests.process.waiting import wait_for
from tests.unit.lab import Lab, forwards, forwards_plain
from tests.unit.rig import Does, DoesBasic

KEY = b"k" * 32


class Ping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str


class Pong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int


# ---- envelopes ----


def test_every_flipped_bit_is_refused() -> None:
    signature, envelope = Sealer(KEY, "client:1").seal("event", 0, "Ping", Ping("x"))
    for at in range(len(envelope)):
        for bit in range(8):
            altered = bytearray(envelope)
            altered[at] ^= 1 << bit
            with pytest.raises(ProtocolError, match="wrong signature"):
                open_envelope(KEY, [signature, bytes(altered)])


GOOD = {"kind": "event", "id": 0, "method": "Ping", "body": b"", "sender": "x", "nonce": [b"s" * 16, 1]}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "order"},
        {"id": -1},
        {"id": "1"},
        {"method": 5},
        {"method": "m" * 101},
        {"body": "text"},
        {"sender": ""},
        {"nonce": [b"s" * 15, 1]},
        {"nonce": [b"s" * 16, 0]},
        {"nonce": [b"s" * 16]},
        {"more": 1},
    ],
)
def test_signed_nonsense_is_refused(change: dict[str, object]) -> None:
    good, nonsense = (msgspec.msgpack.encode({**GOOD, **changed}) for changed in ({}, change))
    assert open_envelope(KEY, [sign(KEY, good), good]).sender == "x"
    with pytest.raises(ProtocolError, match="no envelope"):
        open_envelope(KEY, [sign(KEY, nonsense), nonsense])


# ---- sockets (threads of this process only) ----


@pytest.fixture
def server(run_dir: RunDir) -> Iterator[ControlServer]:
    made = ControlServer(run_dir.nimbus_socket, KEY, "nimbus")
    yield made
    made.close()


@pytest.fixture
def client(server: ControlServer) -> Iterator[ControlClient]:
    made = ControlClient(server.path, KEY, "client:1")
    yield made
    made.close()


def heard(server: ControlServer, client: ControlClient, text: str) -> Ping:
    """What the server hears of it."""
    client.send_event(Ping(text))
    return wait_for("a frame", server.recv).decode(Ping)


def test_a_late_reply_is_not_taken_for_the_next_one(server: ControlServer, client: ControlClient) -> None:
    with pytest.raises(ClusterError, match="no answer"):
        client.call("ping", Ping("first"), Pong, timeout_secs=0.01)
    assert server.reply(wait_for("a frame", server.recv), Pong(1))
    heard(server, client, "here")
    server.send_event("client:1", Pong(2))
    assert wait_for("a frame", client.recv_event).decode(Pong) == Pong(2)


def test_a_peer_that_left_is_reported(server: ControlServer, client: ControlClient) -> None:
    other = ControlClient(server.path, KEY, "client:2")
    heard(server, other, "hello")
    assert server.send_event("client:2", Pong(1))
    other.close()
    wait_for("the server to know that client:2 has left", lambda: not server.send_event("client:2", Pong(2)))


def test_a_successor_takes_the_route_over_and_stragglers_do_not_take_it_back(server: ControlServer) -> None:
    old = ControlClient(server.path, KEY, "supervisor:node-1")
    heard(server, old, "old")
    new = ControlClient(server.path, KEY, "supervisor:node-1")
    heard(server, new, "new")
    assert heard(server, old, "straggler") == Ping("straggler")
    assert server.send_event("supervisor:node-1", Pong(1))
    assert wait_for("a frame", new.recv_event).decode(Pong) == Pong(1)
    assert old.recv_event() is None
    old.close()
    new.close()


def test_garbage_is_counted_and_the_server_serves_on(server: ControlServer, client: ControlClient) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    raw = context.socket(zmq.DEALER)
    raw.setsockopt(zmq.LINGER, 30_000)
    raw.connect(f"ipc://{server.path}")
    reply = Sealer(KEY, "client:3").seal("reply", 1, "ping", Pong(1))
    for parts in ([b""], [b"", b""], [b"x" * 31, b""], [b"x" * 32, b"\xff" * 1000], [b"a"] * 50, reply):
        raw.send_multipart(parts)
    wait_for("6 bad frames", lambda: server.recv() is None and server.refused == 6)
    assert heard(server, client, "still there?") == Ping("still there?")
    raw.close()
    context.term()


def test_a_live_path_is_not_taken_away_and_a_dead_one_is_and_removed_at_the_end(
    server: ControlServer, run_dir: RunDir
) -> None:
    path, kept = run_dir.nimbus_socket, run_dir.path / "kept"
    with pytest.raises(ClusterError, match="another process listens on"):
        ControlServer(path, KEY, "nimbus")
    kept.hardlink_to(path)
    server.close()
    kept.rename(path)
    ControlServer(path, KEY, "nimbus").close()
    assert not path.exists()


R1, E1 = 1 << 16, 0x1111


@pytest.fixture(params=["basic", "plain"])
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(DoesBasic(forwards) if request.param == "basic" else Does(forwards_plain))


def test_each_tuple_passes_by_before_it_is_executed_until_it_is_let_be(lab: Lab) -> None:
    genuine, seen = lab.core.bolt_tasks[lab.at].execute, []

    def before(tup: Tuple | None) -> None:
        assert tup is not None
        assert len(lab.sink.kept) <= len(seen)
        seen.append(tup[0])

    for _ in range(2):
        tamper(lab.core, lab.at, before)
    lab.tree(R1, E1)
    lab.receive("ab", (R1, E1, 2))
    assert seen == [tup[0] for tup in lab.sink.kept] == ["a", "b"]
    tamper(lab.core, lab.at, None)
    assert lab.core.bolt_tasks[lab.at].execute == genuine
    lab.finish()
    assert lab.spout.acked == [R1]


def test_a_spout_is_asked_after_it(lab: Lab) -> None:
    asked: list[Tuple | None] = []
    for before, called in ((asked.append, {None}), (None, set())):
        asked.clear()
        tamper(lab.core, lab.source, before)
        lab.core.run_spouts()
        assert {*asked} == called
