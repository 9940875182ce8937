"""Data planes of real processes: thousands of parcels, arenas between processes, deaths and replacements."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.process.plane_process import PlaneProcess, connect_all, is_done
from tests.process.planes import MIB, socket_directory
from tests.process.waiting import wait_for

DEADLINE_SECS = 100.0
Start = Callable[..., PlaneProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[PlaneProcess] = []
    with socket_directory() as directory:

        def start(worker: int, incarnation: int = 1, **options: Any) -> PlaneProcess:
            started.append(PlaneProcess(directory, worker, incarnation, **options))
            return started[-1]

        try:
            yield start
            for process in started:
                process.close()
        finally:
            for process in started:
                if not process.pipe.closed:
                    process.kill()
            # What was killed could not remove its path; of real workers the whole run directory is removed.
            for path in directory.iterdir():
                path.unlink()


@pytest.mark.parametrize("arena_bytes", [64 * MIB, 256 << 10, 0])
@pytest.mark.parametrize(("n_processes", "n_parcels"), [(2, 2000), (3, 700)])
def test_everyone_sends_to_everyone(start: Start, n_processes: int, n_parcels: int, arena_bytes: int) -> None:
    """All links full in both directions at once, far more bytes than any window or arena holds."""
    processes = [start(worker, arena_bytes=arena_bytes, window_bytes=512 << 10) for worker in range(n_processes)]
    connect_all(*processes)
    for process in processes:
        for other in processes:
            if other is not process:
                process.ask("send", other.worker, 0, n_parcels)
    wait_for("all parcels", lambda: all(map(is_done, processes)), DEADLINE_SECS)
    for process in processes:
        state = process.state()
        assert state["wrong"] == state["twice"] == []
        everyone_else = {other.worker for other in processes if other is not process}
        assert state["numbers"] == {worker: list(range(n_parcels)) for worker in everyone_else}  # and in this order
        assert state["counts"].get("frames refused", 0) == state["lost"] == state["arena"] == 0
        assert state["counts"]["frames received"] == n_parcels * len(everyone_else)
        assert ("buffers in arena" in state["counts"]) == (arena_bytes > 0)
        assert ("buffers inline" in state["counts"]) == (arena_bytes < MIB)


@pytest.mark.parametrize("arena_bytes", [64 * MIB, 0])
def test_receiver_is_killed_and_replaced(start: Start, arena_bytes: int) -> None:
    one, other = start(0, arena_bytes=arena_bytes), start(1)
    connect_all(one, other)
    for incarnation in (1, 2, 3):
        first = incarnation * 10_000
        other.ask("die_at", first + 100)
        one.ask("send", 1, first, first + 5000)
        other.process.join(DEADLINE_SECS)
        assert other.process.exitcode == -signal.SIGKILL
        other.kill()
        wait_for("the dead one's window to fill", lambda: not one.state()["credit"][1], DEADLINE_SECS)
        one.ask("declare_dead", 1, incarnation)
        state = one.state()
        assert state["arena"] == 0
        assert state["peers"] == []
        other = start(1, incarnation + 1)
        connect_all(one, other)
        wait_for("the rest to go to the new one", lambda: is_done(one), DEADLINE_SECS)
        state = other.state()
        # Some were lost with the dead one. What came to the living one came whole, and from there on nothing lacks.
        numbers = state["numbers"][0]
        assert numbers == list(range(numbers[0], first + 5000))
        assert state["wrong"] == state["twice"] == []
        assert state["lost"] == 0
        assert state["counts"].get("frames refused", 0) == 0
        assert one.state()["arena"] == 0


def test_sender_is_killed_with_its_arena_and_replaced(start: Start) -> None:
    """Frames of the dead lie in the receiver's queue, and the memory they point into may be gone."""
    other = start(1)
    for incarnation in range(1, 5):
        one = start(0, incarnation)
        one.connect(other)
        # Before the sockets have shaken hands nothing would be in the receiver's queue.
        one.ask("send", 1, -incarnation, 1 - incarnation)
        wait_for("a frame", lambda: -incarnation in other.state()["numbers"].get(0, ()), DEADLINE_SECS)  # noqa: B023
        os.kill(other.process.pid or 0, signal.SIGSTOP)
        one.ask("send", 1, 0, 300)
        wait_for("a full queue", lambda: one.state()["blocked"] > 3, DEADLINE_SECS)  # noqa: B023
        one.kill()
        os.kill(other.process.pid or 0, signal.SIGCONT)
        if incarnation % 2:
            other.ask("declare_dead", 0, incarnation)
    one = start(0, 5)
    connect_all(one, other)
    one.ask("send", 1, 1000, 1500)
    wait_for("the living one's parcels", lambda: is_done(one), DEADLINE_SECS)
    state = other.state()
    assert set(range(1000, 1500)) <= set(state["numbers"][0])
    assert state["wrong"] == []
    assert state["counts"]["frames refused"] > 0
    assert state["lost"] == 0
    assert state["mapped"] <= 1  # arenas of the dead are not kept
