"""What the Flux files of test_flux.py name."""

from __future__ import annotations

from typing import Any

from squall import BasicBolt, BasicCollector, CustomGrouping, Topology, TopologyBuilder, Tuple, bolt, spout

NUMBER = 3


@spout("word")
def words() -> list[str]:
    return ["a", "b", "a"]


@bolt("word")
def same(tup: Tuple) -> Any:
    return tup["word"]


class Thing:
    """A component that knows what it was made of."""

    tag = "none"

    class Inner:
        pass

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given, self.named, self.calls = given, named, list[Any]()

    @classmethod
    def of(cls, *given: Any) -> Thing:
        return cls("factory", *given)

    def with_tag(self, *given: Any) -> None:
        self.calls.append(given)

    def fails(self) -> None:
        raise LookupError("not here")


class Count(BasicBolt):
    outputs = ("word", "count")
    tag = "none"

    def __init__(self, *given: Any, limit: int = 0) -> None:
        if limit < 0:
            raise ValueError(f"limit {limit}")
        self.given, self.limit = given, limit

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["word"], 1))


class First(CustomGrouping):
    def choose_tasks(self, task_id: int, values: Any) -> list[int]:
        return [0]


class Source:
    def __init__(self, id_: str) -> None:
        self.id = id_

    def getTopology(self, config: dict[str, Any]) -> Topology:  # noqa: N802 - Storm's name
        builder = TopologyBuilder()
        builder.set_spout(self.id, words, parallelism=config["shop.spouts"])
        return builder.build()

    def nothing(self, config: dict[str, Any]) -> None:
        return None
