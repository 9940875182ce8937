"""Lengths of time as people write them: "500ms", "30s", "5m", "2h"."""

from __future__ import annotations

import re

from squall.engine.errors import UsageError

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
MAX_SECS = 10.0**9
"""Thirty years: more is a mistake."""
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([^\W\d_]*)", re.ASCII)


def parse_duration_secs(text: str) -> float:
    """Seconds of "30", "30s", "500ms", "5m" or "2h"; UsageError for anything else, and for no time at all."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise UsageError(f"duration {text[:80]!r} is not understood; write for example 30s, 5m or 2h")
    number, unit = found[1], found[2] or "s"
    if unit not in UNITS:
        raise UsageError(f"duration {text[:80]!r} has an unknown unit {unit[:80]!r}; units are {', '.join(UNITS)}")
    secs = float(number) * UNITS[unit]
    if not 0 < secs <= MAX_SECS:
        raise UsageError(f"duration {text[:80]!r} is out of range; allowed: more than 0 and at most {MAX_SECS:.0f}s")
    return secs
