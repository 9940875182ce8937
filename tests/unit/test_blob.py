"""Topologies as bytes: code of any module works in another interpreter, what cannot travel is named at submission."""

from __future__ import annotations

import importlib
import pickle
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from squall.engine.api.component import BasicBolt
from squall.engine.api.functions import bolt
from squall.engine.api.topology import Topology
from squall.engine.build.builder import TopologyBuilder
from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.common import blob
from tests.unit.rig import Feeder


class Keep(BasicBolt):
    """Holds whatever it is given."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


def topology_of(bolt: BasicBolt) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Feeder())
    builder.set_bolt("keep", bolt).shuffle_grouping("numbers")
    return builder.build()


def refusal(bolt: BasicBolt, by_value: ModuleType | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        blob.dump(topology_of(bolt), by_value)
    assert caught.value.__cause__ is not None
    text = str(caught.value)
    assert "\n" not in text
    return text


# What can travel


def test_each_task_gets_an_object_of_its_own() -> None:
    held: list[int] = []
    spec = topology_of(Keep(held=held, apply=lambda n: n))["keep"]
    copies = [blob.copy_component(spec) for _ in range(2)]
    for copy in copies:
        assert type(copy) is Keep
        copy.__dict__["held"].append(copy.__dict__["apply"](1))
    assert [copy.__dict__["held"] for copy in copies] == [[1], [1]]
    assert held == []


# What cannot


def test_the_attribute_that_holds_a_lock_is_named() -> None:
    bolt = Keep(fine=1, x=SimpleNamespace(fine=2, y=threading.Lock()))
    assert refusal(bolt) == (
        "component 'keep' cannot be sent to a worker: keep.x, a SimpleNamespace, cannot be pickled "
        "(cannot pickle '_thread.lock' object); create it in open() or prepare() instead"
    )


class Exits:
    def __reduce__(self) -> tuple[object, ...]:
        raise SystemExit(0)


def test_an_exit_while_a_component_is_pickled_is_told() -> None:
    assert "keep.inner, a Exits, cannot be pickled (0)" in refusal(Keep(inner=Exits()))


def test_a_function_is_told_where_it_may_make_one() -> None:
    lock = threading.Lock()

    def locked(tup: Any) -> None:
        with lock:
            pass

    assert refusal(bolt(locked)).endswith("; create it in the function, or in a class's open() or prepare() instead")


# Loading


def test_bytes_that_are_no_topology() -> None:
    for code in (b"garbage", blob.dump(topology_of(Keep()))[:-20]):
        with pytest.raises(ClusterError, match="the topology's code cannot be loaded in a worker: UnpicklingError: "):
            blob.load(code, [])
    with pytest.raises(ClusterError, match="the code store holds a dict where a topology should be"):
        blob.load(pickle.dumps({}), [])


def test_import_path_is_extended_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["first"])
    for _ in range(2):
        blob.load(blob.dump(topology_of(Keep())), ["second", "first", "third"])
    assert sys.path == ["first", "second", "third"]


# Modules: `squall run FILE` and programs that are run as `__main__` send theirs by value (tests/process)


@pytest.fixture
def topology_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module loaded from a file the way the command line does it: nobody else can import it."""
    (tmp_path / "counting.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("counting")
    sys.modules.pop("counting", None)


SOURCE = """
    from squall import BasicBolt, Spout, TopologyBuilder

    class Numbers(Spout):
        outputs = ("number",)

    class Count(BasicBolt):
        def name(self):
            return "code that travels or does not"

    def build():
        builder = TopologyBuilder()
        builder.set_spout("numbers", Numbers())
        builder.set_bolt("count", Count()).shuffle_grouping("numbers")
        return builder.build()
"""


def test_only_a_module_that_is_to_be_sent_by_value_is(topology_file: ModuleType) -> None:
    assert b"code that travels" not in blob.dump(topology_file.build())
    assert b"code that travels" in blob.dump(topology_file.build(), topology_file)
    assert not cloudpickle.list_registry_pickle_by_value()
    cloudpickle.register_pickle_by_value(topology_file)
    try:
        blob.dump(topology_file.build(), topology_file)
        assert cloudpickle.list_registry_pickle_by_value() == {"counting"}, "as its user wants it"
    finally:
        cloudpickle.unregister_pickle_by_value(topology_file)
