"""Orders with what was paid for them in the same hour: two streams joined by event time.

    squall run examples/paid_orders.py --workers 2 -- RESULT

RESULT gets a line of JSON for each order, exactly once, whatever is killed; `paid` is null if nothing was.
"""

from __future__ import annotations

from typing import Any

from squall import FileSink, StreamBuilder, Topology, UsageError, spout, tumbling

ORDERS, HOUR_SECS, DELAY_SECS = 9_000, 3600, 20


@spout("order", "at", "amount")
def orders(start: int) -> Any:
    for number in range(start, ORDERS):
        yield number, float(number), number % 90 + 10


@spout("order", "at", "paid")
def payments(start: int) -> Any:
    """Two of three orders are paid, some seconds later."""
    for number in [number for number in range(ORDERS) if number % 3][start:]:
        yield number, float(number + DELAY_SECS), number % 90 + 10


def topology(args: list[str]) -> Topology:
    if len(args) != 1:
        raise UsageError("paid_orders.py needs one directory for its result; e.g. -- build/paid")
    builder = StreamBuilder()
    paid = builder.source("payments", payments).key_by("order")
    each_hour = tumbling(secs=HOUR_SECS, by="at")
    joined = builder.source("orders", orders).key_by("order").join(paid, each_hour, left=True, parallelism=2)
    return joined.to(FileSink(args[0])).build()
