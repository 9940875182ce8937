"""Where there is no memory for one value, that message fails; nothing else does, and nobody says "a bug in Squall"."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import zmq

from squall import Config, LocalCluster, RunReport, TopologyBuilder
from tests.chaos.isolation_topologies import Nothing
from tests.process.memory_parts import HugeWhenReceived, HugeWhenSent, OneIsHuge
from tests.process.planes import Make, endpoints, pair, parcel, settled, turn_until

COUNT = 200


def run_with(kind: type, *arguments: Any) -> RunReport:
    """The spout's worker sends everything to the sink's, and one value in a list, at which an emit does not look."""
    builder = TopologyBuilder()
    builder.set_spout("source", OneIsHuge(COUNT, kind, *arguments))
    builder.set_bolt("zink", Nothing()).shuffle_grouping("source")
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("huge", builder.build(), Config(workers=2, on_error="fail", max_attempts=2))
        return job.wait_until_drained(timeout=90)


def test_a_value_that_there_is_no_memory_to_send_fails_its_message() -> None:
    report = run_with(HugeWhenSent)
    assert (report.acked, report.dead_letters, report.restarts) == (COUNT - 1, 1, [])
    failures = str(report.failures["source"])
    assert "MemoryError" in failures
    assert "exception" in failures


def test_a_value_that_there_is_memory_for_at_the_second_try_is_read_then(tmp_path: Any) -> None:
    report = run_with(HugeWhenReceived, str(tmp_path / "mark"))
    assert (report.acked, report.failed, report.restarts) == (COUNT, 0, [])
    assert report.links["refused"] == 0


class NoMemoryOnce:
    """A socket whose next receive finds no memory for what came."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.failed = False

    def recv(self, *arguments: Any, **options: Any) -> Any:
        came = self._socket.recv(*arguments, **options)
        if not self.failed:
            self.failed = True
            raise MemoryError
        return came

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


@pytest.mark.parametrize("value", ["small", b"x" * 100_000], ids=["one part", "several parts"])
def test_a_frame_that_there_is_no_memory_for_is_lost_and_counted(value: Any) -> None:
    with endpoints() as make:
        one, other = linked(make)
        inbound = other.plane.inbound
        other.plane.inbound = NoMemoryOnce(inbound)  # type: ignore[assignment]
        one.plane.send(1, parcel(value))
        one.plane.send(1, parcel("next"))
        turn_until(lambda: settled(one), [one, other])
        assert other.values == ["next"]
        assert (other.plane.counts["frames refused"], other.plane.lost) == (1, 1)
        other.plane.inbound = inbound


def test_a_frame_that_zeromq_has_no_memory_for_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoints() as make:
        one, other = linked(make)
        send, refusals = zmq.Socket.send, [zmq.ZMQError(errno.ENOMEM)]

        def refuses_once(*arguments: Any, **options: Any) -> Any:
            if refusals:
                raise refusals.pop()
            return send(*arguments, **options)

        monkeypatch.setattr(zmq.Socket, "send", refuses_once)
        with pytest.raises(MemoryError, match=r"ZeroMQ has none for a frame of \d+ bytes"):
            one.plane.send(1, parcel("too much"))
        one.plane.send(1, parcel("next"))
        turn_until(lambda: settled(one), [one, other])
        assert other.values == ["next"]


def linked(make: Make) -> Any:
    """Two planes that have met."""
    one, other = pair(make, arena_bytes=0)
    for end, peer in ((one, 1), (other, 0)):
        end.plane.send(peer, parcel("hello"))
    turn_until(lambda: settled(one) and settled(other), [one, other])
    other.parcels.clear()
    return one, other
