"""Where there is no memory for one frame, that is lost, and the next one flows; for one value:
`tests/process/test_unread_values.py`."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import zmq

from tests.process.planes import Make, endpoints, pair, parcel, settled, turn_until


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
