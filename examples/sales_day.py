"""Totals of a sales day ("Double 11"): orders per category, exact under any number of worker deaths.

    squall run examples/sales_day.py --workers 2 -- --out RESULT
    squall run examples/sales_day.py --workers 2 --fault "kill random worker at 1s" -- --orders 60000 --out RESULT

::

    orders ──fields(category)──► totals ──global──► board

* `orders` is read from an index: after its worker's death it goes on with the first order that is not acked.
* `totals` has its totals in state that counts each order once.
* `board` writes totals to RESULT before they are acked. Totals only grow, so the largest of a category is the total.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from squall import (
    BasicBolt,
    BasicCollector,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    UsageError,
    spout,
)

CATEGORIES = ("phones", "clothes", "books", "toys", "food", "shoes")


def order(number: int) -> tuple[str, int]:
    """(category, cents) of an order: any numbers, the same each time."""
    mixed = number * 2654435761 % 2**32
    return CATEGORIES[mixed % len(CATEGORIES)], 100 + mixed % 99_900


def orders(start: int, *, count: int) -> Iterator[tuple[str, int]]:
    yield from map(order, range(start, count))


class Totals(StatefulBolt):
    outputs = ("category", "orders", "cents")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        orders, cents = self.state.get(tup["category"], (0, 0))
        self.state[tup["category"]] = total = orders + 1, cents + tup["cents"]
        collector.emit((tup["category"], *total))


class Board(BasicBolt):
    def __init__(self, out: str) -> None:
        self.out = out

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        os.makedirs(self.out, exist_ok=True)
        self.file = Path(self.out, "totals.csv").open("a", buffering=1)  # noqa: SIM115 - until cleanup

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.file.write(f"{tup['category']},{tup['orders']},{tup['cents']}\n")

    def cleanup(self) -> None:
        self.file.close()
        best = totals(self.out)
        best["all"] = sum(count for count, _ in best.values()), sum(cents for _, cents in best.values())
        for category, (count, cents) in best.items():
            print(f"{category:8} {count:7,} orders {cents / 100:15,.2f}")


def totals(out: str | Path) -> dict[str, tuple[int, int]]:
    """(orders, cents) of each category in a result."""
    best: dict[str, tuple[int, int]] = {}
    for line in Path(out, "totals.csv").read_text().splitlines():
        category, *numbers = line.split(",")
        if len(numbers) == 2 and all(numbers):
            count, cents = map(int, numbers)
            best[category] = max(best.get(category, (0, 0)), (count, cents))
    return best


class Arguments(argparse.ArgumentParser):
    """A parser whose errors are one line of Squall's."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def topology(arguments: list[str]) -> Topology:
    parser = Arguments(prog="sales_day")
    parser.add_argument("--orders", type=int, default=11_110)
    parser.add_argument("--out", required=True, help="a directory for the totals, which must not be there yet")
    given = parser.parse_args(arguments)
    builder = TopologyBuilder()
    source = spout("category", "cents")(functools.partial(orders, count=given.orders))
    builder.set_spout("orders", source)
    builder.set_bolt("totals", Totals(), parallelism=2).fields_grouping("orders", "category")
    builder.set_bolt("board", Board(os.path.abspath(given.out))).global_grouping("totals")
    return builder.build()
