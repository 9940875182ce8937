"""A stock ticker: prices stream in, each share has a task that knows its last prices, jumps give an alert.

    squall run examples/stock_ticker.py --workers 2

::

    ticker ──fields(symbol)──► analyse ──"alert"──global──────────► alerts
                                    └───"bars"──fields(symbol)──► bars

The prices of a share go to one task of `analyse`, in order. `bars` shows what a chart does: open, high, low and close
of each ten ticks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from squall import BasicBolt, BasicCollector, Topology, TopologyBuilder, TopologyContext, Tuple, bolt, spout

SHARES = {"ACME": 100.0, "GLOBEX": 50.0, "INITECH": 20.0}
TICKS = 60
BAR = 10
JUMP_PERCENT = 4.0


def prices() -> list[tuple[str, int, float]]:
    """A day's prices, the same each time: a walk, in which two shares jump."""
    walk, last, rows = random.Random(11), dict(SHARES), []
    for tick in range(TICKS):
        for symbol in SHARES:
            step = walk.uniform(-0.5, 0.5)
            step += {("ACME", 25): 6.0, ("INITECH", 41): -7.5}.get((symbol, tick), 0.0)
            last[symbol] = round(last[symbol] * (1 + step / 100), 2)
            rows.append((symbol, tick, last[symbol]))
    return rows


@spout("symbol", "tick", "price")
def ticker() -> list[tuple[str, int, float]]:
    # A sequence: after a death of its worker, Squall goes on with the first price that is not acked.
    return prices()


class Analyse(BasicBolt):
    outputs = {"bars": ("symbol", "bar", "open", "high", "low", "close"), "alert": ("symbol", "tick", "percent")}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.prices: dict[str, dict[int, float]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        symbol, tick, price = tup.values
        prices = self.prices.setdefault(symbol, {})
        prices[tick] = price
        # All that follows depends on the prices alone. So a price that comes again gives the same alert and the same
        # bar again: perhaps they were lost on their way the first time.
        if tick - 1 in prices:
            percent = 100 * (price / prices[tick - 1] - 1)
            if abs(percent) >= JUMP_PERCENT:
                collector.emit((symbol, tick, percent), stream="alert")
        first = tick - tick % BAR
        of_bar = [prices[one] for one in range(first, first + BAR) if one in prices]
        if len(of_bar) == BAR:
            collector.emit((symbol, first // BAR, of_bar[0], max(of_bar), min(of_bar), of_bar[-1]), stream="bars")
        prices.pop(tick - 3 * BAR, None)


@bolt
def alerts(tup: Tuple) -> None:
    print(f"ALERT {tup['symbol']} {tup['percent']:+.1f} % at tick {tup['tick']}", flush=True)


@bolt
def bars(tup: Tuple) -> None:
    symbol, bar, first, high, low, last = tup.values
    print(f"{symbol} bar {bar}: open {first:.2f}, high {high:.2f}, low {low:.2f}, close {last:.2f}", flush=True)


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("ticker", ticker)
    builder.set_bolt("analyse", Analyse(), parallelism=2).fields_grouping("ticker", "symbol")
    builder.set_bolt("alerts", alerts).global_grouping("analyse", stream="alert")
    builder.set_bolt("bars", bars, parallelism=2).fields_grouping("analyse", "symbol", stream="bars")
    return builder.build()
