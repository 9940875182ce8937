"""What a spout says of itself is believed only where it can be true; else it is that spout's error, named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from squall.engine.core.closing import close_tasks
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.spout_executor import SpoutTask
from tests.process.waiting import wait_for
from tests.unit.rig import DEADLINE_SECS, Does, Feeder, Rig, acks, chain


def raises(error: BaseException) -> Callable[[], Any]:
    def read() -> Any:
        raise error

    return read


class Says(Feeder):
    """Answers with what the test wants."""

    waiting: Callable[[], Any] = staticmethod(lambda: 0)
    done: Callable[[], Any] = staticmethod(lambda: True)

    @property
    def waiting_count(self) -> int:
        return self.waiting()  # type: ignore[no-any-return]

    @property
    def exhausted(self) -> Any:
        return self.done()

    @exhausted.setter
    def exhausted(self, value: Any) -> None:
        pass


def rig_of(
    waiting: Callable[[], Any] | None = None, done: Callable[[], Any] | None = None, blocking: bool = False
) -> Rig:
    spout = Says()
    spout.blocking = blocking
    if waiting is not None:
        spout.waiting = waiting  # type: ignore[method-assign]
    if done is not None:
        spout.done = done  # type: ignore[method-assign]
    return Rig(chain(spout, Does(acks)), threads=blocking)


NO_COUNTS = [10**30, -1, 2.5, None]
ERRORS = [ValueError("no"), SystemExit(0)]


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("said", NO_COUNTS)
def test_a_waiting_count_that_cannot_be_is_the_spouts_error(said: Any, blocking: bool) -> None:
    rig = rig_of(lambda: said, blocking=blocking)
    with pytest.raises(TaskCrashed, match=r"^spout\[\d\] raised .* in waiting_count$"):
        wait_for("the error", lambda: rig.step() and False, DEADLINE_SECS)
    close_tasks(rig.core)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("what", ["waiting_count", "exhausted"])
def test_what_a_property_raises_is_its_components_error(error: BaseException, what: str) -> None:
    read = raises(error)
    rig = rig_of(read) if what == "waiting_count" else rig_of(done=read)
    with pytest.raises(TaskCrashed, match=rf"^spout\[\d\] raised {type(error).__name__}.* in {what}$"):
        rig.settle()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_worker_that_ends_by_it_can_still_publish(error: BaseException) -> None:
    """Its last words, and what was counted until then, would be lost otherwise."""
    rig = rig_of(raises(error))
    with pytest.raises(TaskCrashed, match=r"in waiting_count$"):
        rig.core.refresh_gauges()
    rig.core.refresh_gauges()
    ((_, task),) = rig.core.spout_tasks.values()
    assert isinstance(task, SpoutTask)
    assert (task.stats.waiting, task.stats.errors) == (0, 1)
