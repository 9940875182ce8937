"""The tuple tree of one message: two lines, six names, anchored over three levels.

    squall run examples/names.py
    squall run examples/names.py --local

::

    msg 1  "刘备 关羽 张飞 / 曹操 郭嘉 荀彧"
      ├── line "刘备 关羽 张飞"        ├── name 刘备  ├── name 关羽  └── name 张飞
      └── line "曹操 郭嘉 荀彧"        ├── name 曹操  ├── name 郭嘉  └── name 荀彧

The spout's message is acked when all nine tuples of its tree are. `names` fails its first line once, to show that the
whole tree is replayed from the root; the printed tree is that of the successful attempt.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    Bolt,
    BoltCollector,
    FailedTuple,
    ReplayingSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

MESSAGE = "刘备 关羽 张飞\n曹操 郭嘉 荀彧"


class Messages(ReplayingSpout):
    """One message. `attempt` tells its tuple trees apart."""

    outputs = ("attempt", "message")

    def read(self) -> Iterator[tuple[Any, Any]]:
        self.attempts = itertools.count(1)
        yield "msg 1", (next(self.attempts), MESSAGE)

    def fail(self, message_id: Any) -> None:
        print(f"{message_id} failed, it will be emitted again", flush=True)
        self.replace(message_id, (next(self.attempts), MESSAGE))

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        print(f"{message_id} acked: its whole tree is processed", flush=True)


class Lines(BasicBolt):
    """Splits a message into its lines."""

    outputs = ("attempt", "line")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for line in tup["message"].splitlines():
            collector.emit((tup["attempt"], line))


class Names(Bolt):
    """Splits a line into its names, anchored by hand."""

    outputs = ("attempt", "line", "name")

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        if tup["attempt"] == 1 and tup["line"].startswith("曹操"):
            raise FailedTuple("the first attempt at this line fails on purpose")
        for name in tup["line"].split():
            self.collector.emit((tup["attempt"], tup["line"], name), anchors=tup)
        self.collector.ack(tup)


class Hello(BasicBolt):
    """Greets each name; prints the tree when it is complete."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.trees: dict[int, dict[str, list[str]]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        tree = self.trees.setdefault(tup["attempt"], {})
        tree.setdefault(tup["line"], []).append(tup["name"])
        if sum(map(len, tree.values())) < len(MESSAGE.split()):
            return
        print(f"msg 1 (attempt {tup['attempt']})")
        for line in MESSAGE.splitlines():
            print(f"├── line {line}")
            # After the death of the spout's worker attempts are counted anew, so a tree may be of two.
            for name in tree.get(line, ()):
                print(f"│   ├── hello {name}")
        print(end="", flush=True)


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("messages", Messages())
    builder.set_bolt("lines", Lines()).shuffle_grouping("messages")
    builder.set_bolt("names", Names(), parallelism=2).fields_grouping("lines", "line")
    builder.set_bolt("hello", Hello()).global_grouping("names")
    return builder.build()
