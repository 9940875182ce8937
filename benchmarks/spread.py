"""Times of repeated events as cells of a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def milliseconds(secs: Sequence[float]) -> list[str]:
    """Median, 99th percentile and most."""
    ordered = sorted(secs)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return [f"{at * 1000:.0f} ms" for at in (statistics.median(ordered), p99, ordered[-1])]
