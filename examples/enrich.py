"""Enrichment over HTTP: each order is looked up in a service, many at a time, with retries, and written to Parquet.

    squall run examples/enrich.py --workers 2 -- orders.csv http://localhost:8080/customers/ RESULT

::

    orders ──shuffle──► look_up ──shuffle──► keep

A line of orders.csv is an order's number and its customer's. Needs aiohttp and pyarrow. docs/examples/enrich.md tells
what of it is exact.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import aiohttp

from squall import (
    AsyncBolt,
    BoltCollector,
    Config,
    FailedTuple,
    FeedSpout,
    ParquetSink,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)  # fmt: skip

TRIES = 3
FIRST_PAUSE_SECS = 0.02
ANSWER_SECS = 2.0


class LookUp(AsyncBolt):
    outputs = ("order", "customer", "name")
    max_in_flight = 100

    def __init__(self, url: str) -> None:
        self.url = url

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.retries = context.counter("retries")

    async def setup(self) -> None:
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWER_SECS), raise_for_status=True)

    async def teardown(self) -> None:
        await self.session.close()

    async def execute(self, tup: Tuple) -> None:
        order, customer = map(int, tup["text"].split(","))
        self.collector.emit((order, customer, await self.name_of(customer)), anchors=tup)
        self.collector.ack(tup)

    async def name_of(self, customer: int) -> str:
        for attempt in range(TRIES):
            try:
                async with self.session.get(f"{self.url}{customer}") as answer:
                    return (await answer.json())["name"]
            except (aiohttp.ClientError, TimeoutError):
                self.retries.inc()
                await asyncio.sleep(FIRST_PAUSE_SECS * 2**attempt * random.uniform(0.5, 1.0))
        raise FailedTuple(f"no answer about customer {customer} in {TRIES} tries")  # the spout emits it again later


def topology(arguments: list[str]) -> Topology:
    orders, url, out = arguments
    builder = TopologyBuilder(Config(max_attempts=10))  # then an order is a dead letter
    builder.set_spout("orders", FeedSpout([orders]))
    builder.set_bolt("look_up", LookUp(url)).shuffle_grouping("orders")
    builder.set_bolt("keep", ParquetSink(out)).shuffle_grouping("look_up")
    return builder.build()
