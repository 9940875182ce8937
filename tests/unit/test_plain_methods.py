"""Wrong code that would pass for right: methods that only make a coroutine or a generator, and values returned."""

from __future__ import annotations

import functools
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import product
from typing import Any

import pytest

from squall import ExactSink, StatefulBatchBolt, StatefulBolt, StreamBuilder, WindowedBolt, tumbling
from squall.connect import Sink, Source
from squall.engine.api.component import BasicBolt, Bolt, Spout
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.build.builder import TopologyBuilder
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import TopologyError, UsageError
from squall.testing import FixedSpout, SimulatedCluster
from tests.unit.rig import DoesBasic, Feeder, Rig, chain
from tests.unit.wired import wired


async def coroutine(*arguments: Any) -> None:
    """Does nothing until somebody awaits it."""


def generator(*arguments: Any) -> Iterator[None]:
    yield


async def async_generator(*arguments: Any) -> AsyncIterator[None]:
    yield


class Later:
    async def __call__(self, *arguments: Any) -> None:
        """As above."""


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.partial(functools.partial(function), *())


DEFERRED = [
    (coroutine, "async def:"), (generator, "a generator function (it has yield):"),
    (async_generator, "async def with yield:"), (passed_on(coroutine), "async def:"), (Later(), "async def:"),
]


@pytest.mark.parametrize(("method", "kind"), DEFERRED)
@pytest.mark.parametrize(("base", "name"), [
    *product((Bolt, BasicBolt), ("execute", "prepare", "cleanup")), (ExactSink, "commit"), (ExactSink, "refused"),
    (WindowedBolt, "execute_window"), (WindowedBolt, "fold"), (Sink, "connect"), (Sink, "write"),
])
def test_a_bolt_whose_method_does_nothing_when_called_is_refused(
    base: type[Any], name: str, method: Any, kind: str
) -> None:
    bolt = type("Lazy", (base,), {name: method})()
    with pytest.raises(TopologyError) as refused:
        chain(Feeder(), bolt).build()
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(f"component 'bolt-1' (Lazy) defines {name} as {kind} a call would do nothing; allowed:")


@pytest.mark.parametrize(("base", "name"), [
    *product((Feeder,), ("open", "next_tuple", "ack", "fail", "on_failure", "on_dead_letter", "activate", "close")),
    *product((Source,), ("commit", "confirm", "connect", "keep_alive", "read_from")),
])
def test_so_is_a_spout(base: type[Any], name: str) -> None:
    with pytest.raises(TopologyError, match=rf"component 'spout' \(Lazy\) defines {name} as async def"):
        chain(type("Lazy", (base,), {"outputs": ("value",), name: coroutine})()).build()


@pytest.mark.parametrize("use", ["map", "filter", "branch"])
def test_so_is_a_function_of_a_stream(use: str) -> None:
    stream = StreamBuilder().source("n", Feeder())
    with pytest.raises(UsageError, match=rf"{use}\(coroutine\) is given async def: a call would do nothing; allowed:"):
        getattr(stream, use)(coroutine)


METHODS = dict.fromkeys(["blocking", "component_config", "waiting_count", "exhausted"], lambda self: False)


@pytest.mark.parametrize(("name", "method"), [
    *METHODS.items(), ("exhausted", property(coroutine)), ("exhausted", classmethod(bool)),
    ("exhausted", functools.partialmethod(bool)),
])
def test_a_method_is_no_value(name: str, method: Any) -> None:
    with pytest.raises(TopologyError, match=f"component 'spout' defines {name} as a method; allowed: .* @property"):
        chain(type("Lazy", (Spout,), {"outputs": ("value",), name: method})()).build()


def test_read_may_be_a_generator() -> None:
    chain(good := type("Good", (ReplayingSpout,), {"outputs": ("value",), "read": generator})()).build()
    with pytest.raises(TopologyError, match=r"defines start as a generator function \(it has yield\)") as refused:
        chain(type("Bad", (type(good),), {"start": generator})()).build()
    assert len(refused.value.mistakes) == 1


def test_decorated_methods_that_do_their_work_are_left_alone() -> None:
    def runs(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*arguments: Any) -> None:
            """Would be `asyncio.run(function(*arguments))`."""

        return run

    chain(Feeder(), type("Runs", (Bolt,), {"execute": runs(coroutine)})()).build()


class File:
    """An iterator that is no generator, like an open file."""

    def __iter__(self) -> File:
        return self

    def __next__(self) -> str:
        raise StopIteration


RETURNED: list[tuple[Callable[..., Any], str]] = [
    (coroutine, "coroutine"), (generator, "generator"), (async_generator, "async_generator"),
    (lambda *arguments: map(str, ()), "map"), (lambda *arguments: File(), "File"),
]


@pytest.mark.parametrize(("function", "kind"), RETURNED)
@pytest.mark.parametrize("threads", [False, True])
def test_what_would_do_something_later_is_an_error_at_once(
    function: Callable[..., Any], kind: str, threads: bool
) -> None:
    returns = type("Returns", (DoesBasic,), {"execute": lambda bolt, tup, collector: function(tup)})
    spout = Feeder()
    spout.feed(1, id=1)
    rig = Rig(chain(spout, returns(print, blocking=threads)), threads=threads)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TaskCrashed, match=rf"bolt-1\[2\] returned a {kind} from execute, and nothing runs it"):
            rig.settle_until(lambda: False)
    rig.core.tracking.settle()
    assert spout.reasons == [(1, "exception")]
    assert spout.acked == []


def test_any_other_value_is_a_warning_once_per_component() -> None:
    class Asks(Feeder):
        def next_tuple(self) -> Any:
            super().next_tuple()
            return True

    returns = type("Returns", (DoesBasic,), {"execute": lambda bolt, tup, collector: [tup[0]]})
    spout = Asks()
    for number in range(10):
        spout.feed(number, id=number)
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", returns(print), 2, 4).shuffle_grouping("spout")
    rig = Rig(builder)
    rig.settle()
    assert sorted(spout.acked) == list(range(10))
    assert sorted((component, text.split(";")[0]) for component, _, text in rig.errors) == [
        ("bolt", "ComponentError: bolt[2] returned a value of type list from execute, where it is ignored"),
        ("spout", "ComponentError: spout[6] returned a value of type bool from next_tuple, where it is ignored"),
    ]


def run_of(base: type[Any], name: str, value: Any) -> list[tuple[str, int, str]]:
    """The errors of two tasks of a bolt whose method returns a value."""
    bolt = type("Returns", (base,), {name: lambda *arguments: value, "windowing": tumbling(count=3)})()
    rows = FixedSpout(("n",), [(1,)] * 9)
    with SimulatedCluster(wired(rows=(rows, 1), bolt=(bolt, 2, "all rows")).build()) as cluster:
        cluster.run()
        return cluster.errors


@pytest.mark.parametrize(("base", "name"), [
    (StatefulBolt, "execute"), (StatefulBatchBolt, "execute_batch"), (WindowedBolt, "execute_window"),
    (ExactSink, "commit"),
])
def test_so_it_is_from_a_bolt_with_state(base: type[Any], name: str) -> None:
    [(_, _, text)] = run_of(base, name, {0: "refused"})
    assert f"returned a value of type dict from {name}, where it is ignored; allowed: None; " in text


def test_a_sink_that_returns_no_reasons_is_an_error() -> None:
    with pytest.raises(TaskCrashed, match="returned False from write; allowed: None"):
        run_of(Sink, "write", False)
