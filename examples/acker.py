"""How an acker knows that a tree is done: the worked example of Storm's acker, as a topology that runs.

    squall run examples/acker.py --local

::

              ┌─1001─► bolt_1 ─1110─┐
    messages ─┤                     ├─► bolt_3
              └─1010─► bolt_2 ─1111─┘
          each ── root, XOR of ids ──fields(root)──► acker

Each tuple carries an id. Every component tells the bolt `acker` the XOR of the ids that it received and emitted, as
Storm's components tell theirs. Each id comes to it twice, from who emitted the tuple and from who processed it; so the
XOR of all is zero when every tuple was processed, in whatever order the news comes. The acker keeps one number per
tree.

Squall does the same inside, with random ids of 64 bits; its own ackers answer the message of this topology.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    Emit,
    ReplayingSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    bolt,
)

ROOT = 66
TUPLE = ("root", "id")
TO_ACKER = ("root", "who", "xor")


def bits(number: int) -> str:
    return f"{number:04b}"


class Messages(ReplayingSpout):
    """Emits a tuple to each of two bolts, and tells the acker of both."""

    outputs = {"first": TUPLE, "second": TUPLE, "acker": TO_ACKER}

    def read(self) -> Iterator[tuple[Any, Any]]:
        # Three messages to Squall, one tree to the acker of this example.
        yield "to bolt_1", Emit((ROOT, 0b1001), "first")
        yield "to bolt_2", Emit((ROOT, 0b1010), "second")
        yield "to acker", Emit((ROOT, "messages emitted 1001 and 1010", 0b1001 ^ 0b1010), "acker")

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        if not self.kept:
            print("Squall's own ackers have answered too", flush=True)


class Passes(BasicBolt):
    """Emits one tuple with a new id, and acks its input."""

    outputs = {"default": TUPLE, "acker": TO_ACKER}

    def __init__(self, new: int) -> None:
        self.new = new

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.name = context.component_id

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        root, old = tup.values
        collector.emit((root, self.new))
        what = f"{self.name} acked {bits(old)} and emitted {bits(self.new)}"
        collector.emit((root, what, old ^ self.new), stream="acker")


@bolt(streams={"acker": TO_ACKER})
def bolt_3(tup: Tuple) -> Iterator[Emit]:
    yield Emit((tup["root"], f"bolt_3 acked {bits(tup['id'])}", tup["id"]), "acker")


class Acker(BasicBolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.values: dict[int, int] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        root, who, xor = tup.values
        before = self.values.get(root, 0)
        after = self.values[root] = before ^ xor
        print(f"{who}: {bits(before)} XOR {bits(xor)} = {bits(after)}", flush=True)
        if not after:
            del self.values[root]
            print(f"tree {root} is done", flush=True)


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("messages", Messages())
    builder.set_bolt("bolt_1", Passes(0b1110)).shuffle_grouping("messages", stream="first")
    builder.set_bolt("bolt_2", Passes(0b1111)).shuffle_grouping("messages", stream="second")
    builder.set_bolt("bolt_3", bolt_3).shuffle_grouping("bolt_1").shuffle_grouping("bolt_2")
    acker = builder.set_bolt("acker", Acker())
    for component in ("messages", "bolt_1", "bolt_2", "bolt_3"):
        acker.fields_grouping(component, "root", stream="acker")
    return builder.build()
