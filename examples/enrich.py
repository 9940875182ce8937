"""Enrichment over a network: each order is looked up in a service, many at a time, with retries.

    squall run examples/enrich.py --workers 2 -- localhost:7070 RESULT

::

    orders ──shuffle──► look_up ──shuffle──► write

The service gets a line with a customer's number and answers with a line: the name. `look_up` is an `AsyncBolt`: while
one lookup waits for its answer, up to a hundred others are under way, in one thread. A lookup is tried three times;
then its order fails, and the spout emits it again later. With an HTTP library such as aiohttp the bolt looks the same:
make the session in `setup`, and close it in `teardown`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall import AsyncBolt, BoltCollector, FailedTuple, Topology, TopologyBuilder, TopologyContext, Tuple, bolt, spout

ORDERS = 500
TRIES = 3
FIRST_PAUSE_SECS = 0.02
ANSWER_SECS = 2.0


@spout("order", "customer")
def orders() -> list[tuple[int, int]]:
    return [(number, number * 7 % 100) for number in range(ORDERS)]


class LookUp(AsyncBolt):
    outputs = ("order", "customer", "name")
    max_in_flight = 100

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.retries = context.counter("retries")

    async def execute(self, tup: Tuple) -> None:
        name = await self.with_retries(tup["customer"])
        self.collector.emit((*tup.values, name), anchors=tup)
        self.collector.ack(tup)

    async def with_retries(self, customer: int) -> str:
        for attempt in range(TRIES):
            try:
                async with asyncio.timeout(ANSWER_SECS):
                    return await self.ask(customer)
            except OSError:  # a TimeoutError is one too
                self.retries.inc()
                await asyncio.sleep(FIRST_PAUSE_SECS * 2**attempt * random.uniform(0.5, 1.0))
        raise FailedTuple(f"no answer about customer {customer} in {TRIES} tries")

    async def ask(self, customer: int) -> str:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(f"{customer}\n".encode())
            answer = await reader.readline()
        finally:
            writer.close()
        if not answer.endswith(b"\n"):
            raise ConnectionError("the service hung up")
        return answer.decode().strip()


def topology(arguments: list[str]) -> Topology:
    address, out = arguments
    host, _, port = address.rpartition(":")
    path = Path(out).absolute()

    @bolt
    def write(tup: Tuple) -> None:
        with path.open("a") as file:
            print(*tup, sep=",", file=file)

    builder = TopologyBuilder()
    builder.set_spout("orders", orders)
    builder.set_bolt("look_up", LookUp(host, int(port))).shuffle_grouping("orders")
    builder.set_bolt("write", write).shuffle_grouping("look_up")
    return builder.build()
