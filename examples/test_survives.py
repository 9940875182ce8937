"""A test of your own topology under random faults: copy it beside your topology.

    pytest examples/test_survives.py

Orders go from a file through a check to a ledger. After its worker's death, the spout continues from a stored
position; the ledger writes before it acks. The test breaks workers at random, with three seeds, and proves for each
that the ledger had every order before it was acked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall import (
    AckedPrefix,
    BasicBolt,
    BasicCollector,
    ReplayingSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

if TYPE_CHECKING:
    from squall.testing.fixtures import FixtureChaos


class Orders(ReplayingSpout):
    """Emits the lines of a file. Message id: the line's number."""

    outputs = ("number", "customer", "amount")

    def __init__(self, file: str) -> None:
        self.file = file

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.position_file = Path(context.state_dir) / "position"
        self.position = int(self.position_file.read_text()) if self.position_file.exists() else 0
        self.prefix = AckedPrefix(self.position)

    def read(self) -> Iterator[tuple[Any, Any]]:
        for number, line in enumerate(Path(self.file).read_text().splitlines()):
            if number >= self.position:
                customer, amount = line.split(",")
                yield number, (number, customer, int(amount))

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        # The prefix, not the highest acked line: a line in between may still fail.
        if self.prefix.ack(message_id):
            fresh = self.position_file.with_suffix(".new")
            fresh.write_text(str(self.prefix.committable))
            os.replace(fresh, self.position_file)


class Check(BasicBolt):
    outputs = ("number", "customer", "amount")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["amount"] > 0:
            collector.emit(tup.values)


class Ledger(BasicBolt):
    """Appends each order; it is acked when `execute` returns."""

    def __init__(self, file: str) -> None:
        self.file = file

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        with open(self.file, "a") as file:
            file.write(json.dumps(tup.values) + "\n")


def topology(orders: Path, ledger: Path) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("orders", Orders(str(orders)))
    builder.set_bolt("check", Check(), parallelism=2).shuffle_grouping("orders")
    builder.set_bolt("ledger", Ledger(str(ledger)), parallelism=2).fields_grouping("check", "customer")
    return builder.build()


@pytest.mark.squall_chaos(seeds=range(3), for_secs=2)
def test_no_order_is_lost(squall_chaos: FixtureChaos, tmp_path: Path) -> None:
    orders, ledger = tmp_path / "orders.csv", tmp_path / "ledger"
    orders.write_text("".join(f"customer-{number % 17},{number % 5 * 100}\n" for number in range(100)))
    results = squall_chaos.run(topology(orders, ledger), faults="all")
    assert all(result.verdict.ok == 100 for result in results)
