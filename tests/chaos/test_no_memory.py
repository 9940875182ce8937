"""Where there is no memory for one value, that message fails; nothing else does, and nobody says "a bug in Squall"."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import zmq

from squall import Config, LocalCluster, RunReport, TopologyBuilder
from tests.process import memory_parts as parts
from tests.process.planes import Make, endpoints, pair, parcel, settled, turn_until

COUNT, VICTIM = 200, 77


def run_with(source: parts.OneIsHuge, sink: parts.Swells, **settings: Any) -> RunReport:
    """The spout's worker sends everything to the sink's."""
    builder = TopologyBuilder()
    builder.set_spout("source", source)
    builder.set_bolt("zink", sink).shuffle_grouping("source")
    with LocalCluster(nodes=1, slots_per_node=2) as cluster:
        job = cluster.submit("huge", builder.build(), Config(workers=2, ackers=1, **settings))
        return job.wait_until_drained(timeout=90)


@pytest.mark.parametrize(("where", "on_error"), [("an emit to zink", "fail"), ("execute", "crash")])
def test_who_asks_for_too_much_fails_its_message(where: str, on_error: str) -> None:
    is_sent = where != "execute"
    limits: dict[str, Any] = {"max_attempts": 2} if on_error == "fail" else {"max_crashes": 2}
    source = parts.OneIsHuge(COUNT, VICTIM, parts.HugeWhenSent if is_sent else bytes)
    report = run_with(source, parts.Swells(-1 if is_sent else VICTIM), on_error=on_error, **limits)
    assert report.dead_letters == 1
    assert report.acked >= COUNT - 1  # more where the spout's own worker ended: it begins again
    failures = str(report.failures["source" if is_sent else "zink"])
    assert "MemoryError" in failures
    assert "exception" in failures
    assert len(report.restarts) == (0 if on_error == "fail" else 2)
    for restart in report.restarts:
        who = "source[2]" if is_sent else "zink[3]"
        assert restart.error.startswith(f"{who} raised MemoryError in {where} (")


def test_a_value_that_there_is_memory_for_at_the_second_try_is_read_then(tmp_path: Any) -> None:
    source = parts.OneIsHuge(COUNT, VICTIM, parts.HugeWhenReceived, str(tmp_path / "mark"))
    report = run_with(source, parts.Swells(-1), message_timeout_secs=3600)
    assert (report.acked, report.failed) == (COUNT, 0)
    assert report.links["refused"] == 0
    assert report.restarts == []


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
