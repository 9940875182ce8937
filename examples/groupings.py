"""All, global, direct and custom groupings, and several streams per component.

    squall run examples/groupings.py --workers 2

::

    orders ──default──shuffle────────► price ──priced──global──► ledger
       └────"rates"──all──► (every price task)
    price ──"urgent"──direct──► (the courier that price names)
    price ──default──custom(by region)──► regions

A shop: orders have a region and an amount; currency rates go to every pricing task; each priced order goes to the one
ledger, to the tally of its region, and, if it is large, to a courier that the pricing task chooses itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    CustomGrouping,
    ReplayingSpout,
    Stream,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

REGIONS = ("north", "south", "east", "west")
RATES = {"EUR": 1.0, "USD": 0.9}
LARGE = 90


class Orders(ReplayingSpout):
    """Emits a hundred orders, after the rates, which have their own stream and are untracked."""

    outputs = {"default": ("order", "region", "currency", "amount"), "rates": ("currency", "rate")}

    def read(self) -> Iterator[tuple[Any, Any]]:
        for currency, rate in RATES.items():
            self.collector.emit((currency, rate), stream="rates")
        for number in range(100):
            currency = "EUR" if number % 3 else "USD"
            yield number, (number, REGIONS[number % 4], currency, number)


class Price(BasicBolt):
    """Converts an order's amount; reads two streams, writes two."""

    outputs = {"default": ("order", "region", "euros"), "urgent": Stream("order", direct=True)}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.rates: dict[str, float] = dict(RATES)
        self.couriers = context.component_tasks("courier")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup.source_stream == "rates":
            self.rates[tup["currency"]] = tup["rate"]
            return
        order, region, currency, amount = tup.values
        collector.emit((order, region, amount * self.rates[currency]))
        if amount >= LARGE:
            collector.emit_direct(self.couriers[order % len(self.couriers)], (order,), stream="urgent")


class ByRegion(CustomGrouping):
    """Sends a region's orders to the task with that region's number."""

    def prepare(self, context: TopologyContext, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.targets = list(target_tasks)

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return [self.targets[REGIONS.index(values[1]) % len(self.targets)]]


class Tally(BasicBolt):
    """Counts orders per region, or per courier; prints at the end."""

    def __init__(self, field: str) -> None:
        self.field = field

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.who = f"{context.component_id}[{context.task_index}]"
        self.seen: dict[int, Any] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.seen[tup["order"]] = tup[self.field]

    def cleanup(self) -> None:
        if self.field == "order":
            print(f"{self.who}: orders {sorted(self.seen)}")
        else:
            counts = Counter(self.seen.values())
            print(f"{self.who}: " + ", ".join(f"{key} {counts[key]}" for key in sorted(counts)))


class Ledger(BasicBolt):
    """Receives every order: its grouping is global."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.euros: dict[int, float] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.euros[tup["order"]] = tup["euros"]

    def cleanup(self) -> None:
        print(f"ledger: {len(self.euros)} orders, {sum(self.euros.values()):.2f} euros")


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("orders", Orders())
    builder.set_bolt("price", Price(), parallelism=2).shuffle_grouping("orders").all_grouping("orders", stream="rates")
    builder.set_bolt("regions", Tally("region"), parallelism=4).custom_grouping("price", ByRegion())
    builder.set_bolt("courier", Tally("order"), parallelism=2).direct_grouping("price", stream="urgent")
    builder.set_bolt("ledger", Ledger()).global_grouping("price")
    return builder.build()
