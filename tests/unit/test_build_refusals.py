"""`build()` refuses in one line what could only fail later: blank names, calls that cannot be made, odd outputs."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.builder import TopologyBuilder
from squall.engine.api.component import BasicBolt
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import TopologyError
from tests.unit.rig import Does, Feeder, Rig, acks, chain


def mistakes(bolt: Any = None, spout: Any = None, id: str = "bolt") -> list[str]:
    builder = TopologyBuilder()
    builder.set_spout("spout", spout or Feeder())
    builder.set_bolt(id, bolt or Does(acks)).shuffle_grouping("spout")
    try:
        builder.build()
    except TopologyError as error:
        return list(error.mistakes)
    return []


def bolt_with(base: type, **members: Any) -> Any:
    return type("Mine", (base,), members)()


@pytest.mark.parametrize("name", [" ", "   "])
def test_blank_names_are_refused(name: str) -> None:
    (text,) = mistakes(id=name)
    assert "a component id is blank" in text
    for outputs in ({name: ("x",)}, (name,)):
        assert any("name is blank" in text for text in mistakes(Does(acks, outputs)))


@pytest.mark.parametrize("outputs", [5, {"default": 5}, {"default": None}])
def test_odd_outputs_are_refused_with_their_value(outputs: Any) -> None:
    (text,) = mistakes(bolt_with(BasicBolt, outputs=outputs, execute=lambda self, t, c: None))
    assert "declares bad outputs: " in text
    assert "allowed: field names" in text


def test_an_ack_that_raises_is_not_counted_as_one() -> None:
    """A spout that dies of it again and again would seem to get on, and be started again without end."""
    spout = Feeder()
    spout.ack = lambda message_id: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    spout.feed("x", id=1)
    rig = Rig(chain(spout, Does(acks)))
    with pytest.raises(TaskCrashed, match="in ack"):
        rig.settle()
    ((_, task),) = rig.core.spout_tasks.values()
    assert task.stats.acked == 0
