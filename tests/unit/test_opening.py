"""Spouts that open slowly or say what is not so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from squall import AsyncSpout
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.spout_executor import SpoutTask
from squall.scheduler.worker.self_watch import Opening
from tests.process.waiting import wait_for
from tests.unit.rig import DEADLINE_SECS, Does, Feeder, Rig, acks, chain

GO_ON, BEGUN = threading.Event(), threading.Event()


class SlowSource(AsyncSpout):
    outputs = ("value",)

    async def setup(self) -> None:
        BEGUN.set()
        await asyncio.to_thread(GO_ON.wait)

    async def next_tuple(self) -> None:
        await asyncio.sleep(0.001)


def test_a_setup_is_published() -> None:
    """Of a spout; of a bolt: tests/process/test_async_bolts.py."""
    published: list[tuple[int, int]] = []
    now_ns = 0
    opening = Opening(lambda *words: published.append(words), lambda: now_ns)
    rig = Rig(chain(SlowSource(), Does(acks)), threads=True)
    try:
        rig.settle()
        assert BEGUN.wait(30)
        opening.begin(7)
        opening.ended(rig.core)
        assert published == [(7, 0), (0, 0)]
        for secs in (5, 10):
            now_ns = secs * 10**9
            opening.look()
        assert published[2:] == [(3, 5 * 10**9)]
        GO_ON.set()
        wait_for("the end", lambda: (opening.look(), published[-1] == (0, 0))[1])
    finally:
        GO_ON.set()
        rig.close()


def raises(error: BaseException) -> Callable[[], Any]:
    def read() -> Any:
        raise error

    return read


def rig_of(what: str, read: Callable[[], Any], blocking: bool = False) -> Rig:
    """Its spout answers with `read` when it is asked for this property."""
    answers = property(lambda spout: read(), lambda spout, value: None)
    says = type("Says", (Feeder,), {"blocking": blocking, what: answers})
    return Rig(chain(says(), Does(acks)), threads=blocking)


NO_COUNTS = [10**30, -1, 2.5, None]
ERRORS = [ValueError("no"), SystemExit(0)]


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("said", NO_COUNTS)
def test_a_waiting_count_that_cannot_be_is_the_spouts_error(said: Any, blocking: bool) -> None:
    rig = rig_of("waiting_count", lambda: said, blocking)
    with pytest.raises(TaskCrashed, match=r"^spout\[\d\] raised .* in waiting_count$"):
        wait_for("the error", lambda: rig.step() and False, DEADLINE_SECS)
    rig.close()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("what", ["waiting_count", "exhausted"])
def test_what_a_property_raises_is_its_components_error(error: BaseException, what: str) -> None:
    with pytest.raises(TaskCrashed, match=rf"^spout\[\d\] raised {type(error).__name__}.* in {what} \("):
        rig_of(what, raises(error)).settle()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_worker_that_ends_by_it_can_still_publish(error: BaseException) -> None:
    """Its last words, and what was counted until then, would be lost otherwise."""
    rig = rig_of("waiting_count", raises(error))
    with pytest.raises(TaskCrashed, match=r"in waiting_count \("):
        rig.core.refresh_gauges()
    rig.core.refresh_gauges()
    task = rig.spout_task
    assert isinstance(task, SpoutTask)
    assert (task.stats.waiting, task.stats.errors) == (0, 1)
