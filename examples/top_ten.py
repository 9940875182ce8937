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
from collections.abc import Iterator

from squall import BasicCollector, SqlSink, StatefulBolt, Topology, TopologyBuilder, Tuple, spout

ORDERS_PER_SECOND = 1_000
RANKED = """
    PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; -- no write waits for the disk
    CREATE TABLE IF NOT EXISTS counts (second, product, pieces, PRIMARY KEY (second, product));
    CREATE VIEW IF NOT EXISTS top_ten AS SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY second ORDER BY pieces DESC, product) AS place FROM counts
    ) WHERE place <= 10;
"""
RAISE = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET pieces = max(pieces, excluded.pieces)"


def order(number: int) -> tuple[int, str, int]:
    """(second, product, pieces): any orders, the same each time, of few products most."""
    mixed = number * 2654435761 % 2**32
    return number // ORDERS_PER_SECOND, f"product-{mixed**3 * 60 // 2**96}", 1 + mixed % 3


def orders(start: int, *, count: int) -> Iterator[tuple[int, str, int]]:
    yield from map(order, range(start, count))


class Count(StatefulBolt):
    outputs = ("second", "product", "pieces")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        key = tup["second"], tup["product"]
        self.state[key] = pieces = self.state.get(key, 0) + tup["pieces"]
        collector.emit((*key, pieces))


def connect(out: str) -> sqlite3.Connection:
    db = sqlite3.connect(out, check_same_thread=False)
    db.executescript(RANKED)
    return db


def topology(arguments: list[str]) -> Topology:
    parser = argparse.ArgumentParser(prog="top_ten")
    parser.add_argument("--orders", type=int, default=10_000)
    parser.add_argument("--out", required=True, help="an SQLite database for the counts, which must not be there yet")
    given = parser.parse_args(arguments)
    builder = TopologyBuilder()
    source = spout("second", "product", "pieces")(functools.partial(orders, count=given.orders))
    builder.set_spout("orders", source)
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("orders", "product")
    # Counts only grow, so they may come in any order.
    ranks = SqlSink(functools.partial(connect, os.path.abspath(given.out)), RAISE)
    builder.set_bolt("rank", ranks).global_grouping("count")
    return builder.build()
