"""What a spout says of itself is believed only where it can be true; else it is that spout's error, named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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


class Index:
    """As the integers of other libraries."""

    def __index__(self) -> int:
        return 7


class NoBool:
    def __bool__(self) -> bool:
        raise ValueError("no bool")


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


NO_COUNTS = [10**30, 2**63, -1, 2.5, float("nan"), None, "seven", [1]]
ERRORS = [ValueError("no"), OverflowError("no"), SystemExit(0), KeyboardInterrupt()]
ALLOWED = r"; allowed: an integer from 0 to 2\*\*63 - 1 in waiting_count$"


@pytest.mark.parametrize("said", NO_COUNTS, ids=repr)
def test_a_waiting_count_that_cannot_be_is_named_with_what_is_allowed(said: Any) -> None:
    with pytest.raises(TaskCrashed, match=rf"^spout\[\d\] raised .*: waiting_count is .*{ALLOWED}") as crash:
        rig_of(lambda: said).settle()
    assert repr(said) in str(crash.value)


@pytest.mark.parametrize("said", [0, 1, True, Index(), 2**63 - 1], ids=["0", "1", "True", "__index__", "most"])
def test_whatever_is_an_integer_from_0_is_believed(said: Any) -> None:
    rig = rig_of(lambda: said)
    rig.settle()
    rig.core.refresh_gauges()
    assert next(iter(rig.core.spout_tasks.values()))[1].stats.waiting == said.__index__()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("what", ["waiting_count", "exhausted"])
def test_what_a_property_raises_is_its_components_error(error: BaseException, what: str) -> None:
    read = raises(error)
    rig = rig_of(read) if what == "waiting_count" else rig_of(done=read)
    with pytest.raises(TaskCrashed, match=rf"^spout\[\d\] raised {type(error).__name__}.* in {what}$"):
        rig.settle()


def test_an_exhausted_without_a_truth_is_named() -> None:
    with pytest.raises(TaskCrashed, match=r"^spout\[\d\] raised ValueError: no bool in exhausted$"):
        rig_of(done=NoBool).settle()


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


@pytest.mark.parametrize("said", [10**30, -1, None])
def test_a_spout_with_a_thread_is_not_believed_either(said: Any) -> None:
    rig = rig_of(lambda: said, blocking=True)
    with pytest.raises(TaskCrashed, match=r"waiting_count is .*" + ALLOWED):
        wait_for("the thread's error", lambda: rig.step() and False, DEADLINE_SECS)
