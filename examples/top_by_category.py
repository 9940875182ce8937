"""The ten products that were sold most, for each category and second of event time.

    squall run examples/top_by_category.py --workers 2 -- RESULT

RESULT gets a line of JSON for each category and second, exactly once, whatever is killed. Sales arrive up to 0.2
seconds out of order, which `lag_secs` allows for.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from squall import FileSink, StreamBuilder, Topology, Tuple, UsageError, spout, tumbling

SALES, PER_SECOND = 30_000, 1_000


@spout("category", "product", "at")
def sales(start: int) -> Any:
    for number in range(start, SALES):
        mixed = number * 2654435761 % 2**32
        yield f"category-{mixed % 5}", f"product-{mixed**3 * 60 // 2**96}", number / PER_SECOND - mixed % 200 / 1000


def add(counts: Counter[str], sale: Tuple) -> Counter[str]:
    counts[sale["product"]] += 1
    return counts


def best(counts: Tuple) -> tuple[Any, ...]:
    ranked = sorted(counts["counts"].items(), key=lambda item: (-item[1], item[0]))
    return counts["category"], counts["start"], ranked[:10]


def topology(args: list[str]) -> Topology:
    if len(args) != 1:
        raise UsageError("top_by_category.py needs one directory for its result; e.g. -- build/top")
    windows = StreamBuilder().source("sales", sales).key_by("category").window(
        tumbling(secs=1, by="at", lag_secs=0.2)
    )
    counted = windows.aggregate(Counter(), add, field="counts", parallelism=2)
    return counted.map(best, "category", "second", "top").to(FileSink(args[0])).build()
