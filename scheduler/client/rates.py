"""What the components of a topology did between two looks at it, for `squall top` and the web page.

Pure. Thread: any.
"""

from __future__ import annotations

from typing import Any

_COUNTS = ("executed", "emitted", "acked", "failed")


def component_rates(before: dict[str, Any], now: dict[str, Any], secs: float) -> dict[str, dict[str, float]]:
    """Return, for each component of `now`, its rates, its mean time in `execute` and its capacity in the `secs` seconds
    between two documents of `describe`; 0 for what did not happen, or fell because its tasks have moved."""
    return {
        name: _rates(before["components"].get(name, component), component, max(secs, 1e-3))
        for name, component in now["components"].items()
    }


def _rates(before: dict[str, Any], now: dict[str, Any], secs: float) -> dict[str, float]:
    executed, busy_ns = (max(0, now[key] - before[key]) for key in ("executed", "execute_ns"))
    return {
        **{f"{key}_per_sec": max(0, now[key] - before[key]) / secs for key in _COUNTS},
        "execute_latency_ms": busy_ns / executed / 1e6 if executed else 0.0,
        "capacity": busy_ns / 1e9 / secs / now["tasks"],
    }
