"""Functions as components: the same life as those made of classes, one line for what they cannot be."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from squall import Config, Emit, FailedTuple, TopologyContext, UsageError, bolt, spout
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import ClusterError
from squall.scheduler.common import blob
from squall.testing import complete_topology
from squall.testing.simulated import SimulatedCluster
from tests.unit.rig import chain
from tests.unit.wired import wired


@spout("n")
def numbers() -> Iterator[int]:
    """Counts."""
    yield from range(5)


@spout("n")
def from_start(start: int) -> Iterator[int]:
    yield from range(start, 40)


@bolt("square")
def square(tup: Any) -> Iterator[int]:
    yield tup["n"] ** 2


@bolt("square")
def even_squares(tup: Any) -> int | None:
    return None if tup["n"] % 2 else tup["n"] ** 2


def emitted(*components: Any) -> dict[str, list[Any]]:
    return complete_topology(chain(*components).build())


def test_what_a_function_returns_is_emitted_unless_it_is_none() -> None:
    assert emitted(numbers, even_squares)["bolt-1"] == [(0,), (4,), (16,)]


def twice(tup: Any) -> Iterator[Any]:
    yield tup["n"]
    yield None
    yield Emit((-tup["n"],), "default")


def test_a_generator_function_behind_another_function_yields_all_the_same() -> None:
    assert emitted(numbers, bolt("n")(lambda tup: [twice(tup)][0]))["bolt-1"] == [
        (sign * n,) for n in range(5) for sign in (1, -1)
    ]


async def waits(tup: Any) -> None: ...


async def waits_and_yields(tup: Any) -> Any:
    yield 1


@pytest.mark.parametrize("function", [waits, waits_and_yields])
def test_what_nothing_would_run_is_an_error(function: Callable[[Any], Any]) -> None:
    with pytest.raises(TaskCrashed, match=r"<lambda> returned a (coroutine|async_generator), and nothing runs it"):
        emitted(numbers, bolt("n")(lambda tup: [function(tup)][0]))


class Order(NamedTuple):
    id: int
    amount: int


@pytest.mark.parametrize(
    ("fields", "made", "row"),
    [
        (("a",), 1, (1,)),
        (("a",), [1, 2], ([1, 2],)),
        (("a",), (None,), (None,)),
        (("a",), ((1, 2),), ((1, 2),)),
        (("a",), Order(1, 2), (Order(1, 2),)),
        (("a", "b"), (1, 2), (1, 2)),
        (("a", "b"), [1, 2], (1, 2)),
        (("a", "b"), Order(1, 2), (1, 2)),
    ],
)
def test_a_plain_tuple_is_a_row_and_anything_else_the_value_of_one_field(
    fields: tuple[str, ...], made: Any, row: tuple[Any, ...]
) -> None:
    @spout(*fields)
    def source() -> Iterator[Any]:
        yield None  # nothing at the moment
        yield made

    @bolt(*fields)
    def again(tup: Any) -> Iterator[Any]:
        yield None
        yield made

    @bolt(*fields)
    def returns(tup: Any) -> Any:
        return made

    rows = emitted(source, again, returns)
    assert rows["spout"] == rows["bolt-1"] == rows["bolt-2"] == [row]


def test_a_spout_emits_on_other_streams_and_may_ask_for_its_context() -> None:
    """Of a bolt, and to one task: test_complete_topology.py."""

    @spout("n", streams={"odd": ("n",)})
    def source(context: TopologyContext) -> Iterator[Any]:
        yield context.task_index
        yield Emit((2,), "odd")

    assert complete_topology(wired(source=(source, 1)).build()) == {"source": [(0,)], "source/odd": [(2,)]}


@pytest.mark.parametrize("made", [range(3), [0, 1, 2], (0, 1, 2), dict.fromkeys(range(3))])
def test_a_spout_function_may_return_any_iterable(made: Any) -> None:
    assert emitted(spout("n")(lambda: made))["spout"] == [(0,), (1,), (2,)]


def sequence() -> range:
    return range(40)


@bolt
def forgets(tup: Any) -> None:
    if tup["n"] == 7:
        raise FailedTuple("always")


@pytest.mark.parametrize("source", [from_start, spout("n")(sequence)])
def test_a_source_that_can_be_read_from_an_index_goes_on_at_the_first_record_that_is_not_acked(
    source: Any, tmp_path: Path
) -> None:
    with SimulatedCluster(chain(source, forgets).build(), Config(max_spout_pending=9), state_root=tmp_path) as cluster:
        emitted = cluster.emitted["spout"]
        cluster.run_until(lambda: len(emitted) >= 20)
        cluster.advance(1)
        cluster.kill(0)
        cluster.restart(0)
        before = len(emitted)
        cluster.run_until(lambda: len(emitted) > before)
        assert emitted[before] == (7,)
    for rest in (range(7, 40), ()):
        with SimulatedCluster(chain(source, square).build(), state_root=tmp_path) as again:
            again.run()
            assert again.emitted["spout"] == [(n,) for n in rest]


@pytest.mark.parametrize("text", ["7", "00000000000000000007 00000000\n", "x" * 99])
def test_a_damaged_position_is_not_taken_for_one(text: str, tmp_path: Path) -> None:
    file = tmp_path / "spout-0" / "position"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(TaskCrashed) as crashed, SimulatedCluster(chain(from_start).build(), state_root=tmp_path):
        pass
    assert isinstance(crashed.value.__cause__, ClusterError)
    assert f"{file} holds" in str(crashed.value.__cause__)


def test_a_position_that_cannot_be_stored_is_reported_and_records_go_on(tmp_path: Path) -> None:
    (tmp_path / "spout-0").mkdir()
    with SimulatedCluster(chain(from_start).build(), state_root=tmp_path) as cluster:
        (tmp_path / "spout-0" / "position").mkdir()
        cluster.run()
        assert len(cluster.emitted["spout"]) == 40
        assert "cannot store how far it is" in cluster.errors[0][2]


def test_finally_of_a_generator_runs_at_an_orderly_end() -> None:
    ended: list[str] = []

    @spout("n")
    def endless() -> Iterator[int | None]:
        try:
            while True:
                yield None
        finally:
            ended.append("closed")

    with SimulatedCluster(chain(endless).build(), copy=lambda spec: spec.component) as cluster:
        cluster.step()
    assert ended == ["closed"]


# Travelling


def test_a_function_of_a_module_travels_by_name() -> None:
    for data in (pickle.dumps(square), blob.dump(chain(numbers, square).build())):
        assert b"test_functions" in data
        assert b"<locals>" not in data
    again = pickle.loads(pickle.dumps(square))
    assert again is not square, "each task has an object of its own"
    assert again.function is square.function
    assert copy.copy(numbers) is not numbers


# Wrong use


def two(tup: Any, other: Any) -> None: ...


def yields(tup: Any) -> Iterator[int]:
    yield 1


def positional(tup: Any, context: Any, /) -> None: ...


@pytest.mark.parametrize(
    ("decorate", "text"),
    [
        (lambda: bolt(waits), "@bolt is put on waits; allowed: a function, with or without yield (for async def"),
        (lambda: bolt("a")(square), "@bolt is put on square; allowed: a function"),
        (lambda: bolt(two), "@bolt function two: missing a required argument: 'other'; allowed parameters: one for"),
        (lambda: bolt(positional), "@bolt function positional: 'context' parameter is positional only"),
        (lambda: bolt(lambda: 1), "@bolt function <lambda>: too many positional arguments; allowed parameters: one"),
        (lambda: bolt(yields), '@bolt function yields yields, but names no field to emit; allowed: @bolt("field", '),
        (lambda: spout(sequence), '@spout on sequence names no field to emit; allowed: @spout("field", ...)'),
        (lambda: bolt("a", streams=[1]), "streams is [1]; allowed: a dict"),
        (lambda: spout(streams=[1]), "streams is [1]; allowed: a dict"),
        (lambda: spout("a")(lambda n: n), "@spout function <lambda>: missing a required argument: 'n'; allowed parame"),
    ],
)
def test_wrong_use_is_one_line(decorate: Callable[[], Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        decorate()
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)
