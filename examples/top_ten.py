"""The ten products that were ordered most, for each second.

    squall run examples/top_ten.py --workers 2 -- --out RESULT

::

    orders ──fields(product)──► count ──global──► rank

docs/examples/top_ten.md tells what of it is exact.
"""

from __future__ import annotations

import argparse
import functools
import os
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from squall import BasicBolt, BasicCollector, Topology, TopologyBuilder, TopologyContext, Tuple, spout

ORDERS_PER_SECOND = 1_000
COUNTED = """
    PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; -- no write waits for the disk
    CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS counts (second, product, pieces, PRIMARY KEY (second, product));
"""
ADD = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET pieces = pieces + excluded.pieces"
RANKED = """
    PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; -- no write waits for the disk
    CREATE TABLE IF NOT EXISTS counts (second, product, pieces, PRIMARY KEY (second, product));
    CREATE VIEW IF NOT EXISTS top_ten AS SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY second ORDER BY pieces DESC, product) AS place FROM counts
    ) WHERE place <= 10;
"""
RAISE = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET pieces = max(pieces, excluded.pieces)"


def order(number: int) -> tuple[int, int, str, int]:
    """(number, second, product, pieces): any orders, the same each time, of few products most."""
    mixed = number * 2654435761 % 2**32
    return number, number // ORDERS_PER_SECOND, f"product-{mixed**3 * 60 // 2**96}", 1 + mixed % 3


def orders(start: int, *, count: int) -> Iterator[tuple[int, int, str, int]]:
    yield from map(order, range(start, count))


class Count(BasicBolt):
    outputs = ("second", "product", "pieces")

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.db = sqlite3.connect(os.path.join(context.state_dir, "counts.db"))
        self.db.executescript(COUNTED)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        number, *counted = tup.values
        with self.db:  # one transaction: an order is remembered and counted, or neither
            if self.db.execute("INSERT OR IGNORE INTO orders VALUES (?)", (number,)).rowcount:
                self.db.execute(ADD, counted)
        # Also for an order that was seen: its first count may have been lost on the way.
        where = "WHERE second = ? AND product = ?"
        collector.emit(self.db.execute(f"SELECT * FROM counts {where}", counted[:2]).fetchone())


class Rank(BasicBolt):
    def __init__(self, out: str) -> None:
        self.out = os.path.abspath(out)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.db = sqlite3.connect(self.out)
        self.db.executescript(RANKED)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        with self.db:
            self.db.execute(RAISE, tup.values)  # counts only grow, so they may come in any order, and again

    def cleanup(self) -> None:
        for row in self.db.execute("SELECT * FROM top_ten WHERE place = 1 ORDER BY second"):
            print(*row)


def topology(arguments: list[str]) -> Topology:
    parser = argparse.ArgumentParser(prog="top_ten")
    parser.add_argument("--orders", type=int, default=10_000)
    parser.add_argument("--out", required=True, help="an SQLite database for the counts, which must not be there yet")
    given = parser.parse_args(arguments)
    builder = TopologyBuilder()
    source = spout("number", "second", "product", "pieces")(functools.partial(orders, count=given.orders))
    builder.set_spout("orders", source)
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("orders", "product")
    builder.set_bolt("rank", Rank(given.out)).global_grouping("count")
    return builder.build()
