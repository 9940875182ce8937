"""Whatever users' code raises, out of whichever method, is that component's error: never Squall's, never silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from squall import Config, TaskHook, TopologyBuilder
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import LocalRunner
from squall.engine.tracking.fate import Letter
from tests.unit.rig import Does, DoesBasic, EverySecond, Feeder, Rig, acks, chain, refuses


class Base(BaseException):
    """Nobody's child but BaseException's."""


class Speechless(Exception):
    def __str__(self) -> str:
        raise Base

    __repr__ = __str__


def cycle() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


RAISED: list[Callable[[], BaseException]] = [
    SystemExit, lambda: SystemExit(0), KeyboardInterrupt, GeneratorExit, Base, Speechless,
    lambda: ValueError("x" * 10**7), lambda: ExceptionGroup("group", [ValueError(), Speechless()]), cycle,
    StopIteration, MemoryError,
]


def thrower(raised: Callable[[], BaseException], **named: Any) -> Does | DoesBasic:
    def throw(value: Any) -> None:
        if value == "bad":
            raise raised()

    return refuses(throw, **named)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("basic", [False, True])
@pytest.mark.parametrize("raised", RAISED)
def test_out_of_execute_it_fails_its_tuple_alone(
    raised: Callable[[], BaseException], basic: bool, blocking: bool
) -> None:
    spout = Feeder()
    spout.on_dead_letter = lambda message_id, failure: None  # type: ignore[method-assign]
    bolt = thrower(raised, basic=basic, blocking=blocking)
    rig = Rig(chain(spout, bolt), threads=True, on_error="fail", max_attempts=1)
    for n in range(20):
        spout.feed("bad" if n == 7 else n, id=n)
    rig.settle_until(lambda: len(spout.acked) + len(rig.dead_letters) == 20)
    assert sorted(spout.acked) == [n for n in range(20) if n != 7]
    ((component, _, message_id, values, failure),) = rig.dead_letters
    assert (component, message_id, values) == ("spout", 7, ("bad",))
    assert (failure.reason, failure.component, failure.attempt) == ("exception", "bolt-1", 1)
    assert failure.error.startswith(type(raised()).__name__)
    assert len(failure.error) < 600
    for runner in rig.core.blocking:
        runner.stop()


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("raised", RAISED)
def test_out_of_execute_it_ends_the_worker_with_its_trees_failed(
    raised: Callable[[], BaseException], blocking: bool
) -> None:
    spout = Feeder()
    rig = Rig(chain(spout, thrower(raised, blocking=blocking)), threads=True)
    spout.feed("bad", id=1)
    with pytest.raises(TaskCrashed, match=rf"^bolt-1\[\d\] raised {type(raised()).__name__}.* in execute \(") as caught:
        rig.settle_until(lambda: False)
    assert len(str(caught.value)) < 700
    assert len(caught.value.traceback_text) < 20_000
    rig.core.tracking.charge()
    assert [failure.reason for failure in rig.core.outbox.fails.values()] == ["exception"]


def whole_life(builder: TopologyBuilder, **settings: Any) -> None:
    rig = Rig(builder, **settings)
    rig.settle()
    rig.core.set_active(False)
    raise rig.close()[0]


PLACES = [
    *(("spout", method) for method in (
        "open", "next_tuple", "ack", "on_failure", "on_dead_letter", "activate", "deactivate", "close",
    )),
    *(("grouping", method) for method in ("prepare", "choose_tasks")),
    *(("hook", method) for method in ("prepare", "emit", "spout_ack", "spout_fail", "cleanup")),
]


@pytest.mark.parametrize(("place", "method"), PLACES)
@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit, Base, Speechless])
def test_out_of_any_other_method_it_ends_the_worker(place: str, method: str, raised: type[BaseException]) -> None:
    def refuse(*args: Any) -> None:
        raise raised

    spout, hook, grouping, builder = Feeder(), TaskHook(), EverySecond(), TopologyBuilder()
    setattr({"spout": spout, "hook": hook, "grouping": grouping}[place], method, refuse)
    spout.watched_by = [hook] if place == "hook" else []
    builder.set_spout("spout", spout)
    bolt = builder.set_bolt("bolt", Does(lambda bolt, tup: getattr(bolt.collector, tup[0])(tup)))
    bolt.custom_grouping("spout", grouping) if place == "grouping" else bolt.shuffle_grouping("spout")
    spout.feed("fail" if "fail" in method or method == "on_dead_letter" else "ack", id=1)
    with pytest.raises(TaskCrashed, match=rf"^spout\[\d\] raised {raised.__name__}") as caught:
        whole_life(builder, max_attempts=1 if method == "on_dead_letter" else None, max_crashes=None)
    assert place != "spout" or method in str(caught.value) or method == "on_dead_letter"


@pytest.mark.parametrize("on_error", ["crash", "fail"])
def test_an_interrupt_of_the_operator_ends_a_local_run(on_error: str) -> None:
    """There the terminal's Ctrl-C arrives in the middle of users' code."""
    spout = Feeder()
    spout.feed("bad", id=1)
    topology = chain(spout, thrower(KeyboardInterrupt)).build()
    runner = LocalRunner(topology, Config(on_error=on_error), copy=lambda spec: spec.component)
    with runner, pytest.raises(KeyboardInterrupt):
        runner.run(timeout_secs=5)


class Key:
    def __init__(self, bad: bool) -> None:
        self.bad = bad

    def __hash__(self) -> int:
        if self.bad:
            raise Base
        return 1


@pytest.mark.parametrize("bolts", [1, 2])
def test_a_key_that_cannot_be_hashed_counts_against_its_message(bolts: int) -> None:
    """The emit raises in the spout, as ever; yet it is known which message it was."""
    builder, spout = TopologyBuilder(), Feeder()
    builder.set_spout("spout", spout)
    for n in range(bolts):
        builder.set_bolt(f"bolt-{n}", Does(acks), 2).fields_grouping("spout", "value")
    spout.feed(Key(bad=True), id=5)
    rig = Rig(builder)
    with pytest.raises(TaskCrashed, match=r"^spout\[\d\] raised Base in next_tuple \("):
        rig.settle()
    rig.core.tracking.charge()
    task = rig.spout_task
    assert task.pending.attempts.tries[5].crashes == 1
    assert task.pending.attempts.last_failure(5).error == "Base"
    assert law(rig) == (1, 1)


def law(rig: Rig) -> tuple[int, int]:
    """Attempts, and those of them that failed; each is in one column, whatever became of its emit."""
    task = rig.spout_task
    task.count_emits()
    acked, failed, dead, abandoned, _, emitted, _ = task.stats.account
    assert emitted == acked + failed + dead + abandoned + len(task.pending)
    return emitted, failed


@pytest.mark.parametrize("limits", [{"on_error": "fail"}, {"max_attempts": 7, "max_crashes": None}])
def test_a_key_that_raises_when_its_message_is_sent_again_counts_and_ends_nothing(limits: dict[str, Any]) -> None:
    """Given back, it fails, waits and fails again until it is in the ledger once more; the rest flows."""
    builder, spout = TopologyBuilder(), Feeder()
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", Does(acks), 2).fields_grouping("spout", "value")
    rig = Rig(builder, **limits)
    closed: list[bool] = []
    task = rig.spout_task
    task.give_back(Letter(5, (Key(bad=True),), lambda: closed.append(True)))
    for n in range(20):
        spout.feed(n, id=100 + n)
    for _ in range(50):
        rig.advance(1)
    assert sorted(spout.acked) == list(range(100, 120))
    ((component, _, message_id, _, failure),) = rig.dead_letters
    assert (component, message_id, failure.error) == ("spout", 5, "Base")
    assert (failure.reason, failure.component, failure.attempt) == ("exception", "spout", limits.get("max_attempts", 5))
    assert closed == [True]
    assert law(rig) == (20 + failure.attempt, failure.attempt - 1)
