"""How long to measure: everything in nine minutes, or a first impression in one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    rounds: int = 3
    """Of all yardsticks in turn."""
    repeat: int = 2
    """Times the text is gone through where a row costs a microsecond; more where it costs less."""
    lines: int | None = None
    """Of the text; None: all."""
    warm_up_secs: float = 2.0
    paced_secs: float = 4.0
    """Of each load, after the warm-up."""
    skewed_secs: float = 1.5
    """Of each skewed topology, after its warm-up."""
    value_secs: float = 1.0
    """Of each size and kind of value."""
    kills: int = 40
    daemon_kills: int = 8
    settle_secs: float = 1.0
    """From ready to idle."""
    idle_secs: float = 2.0
    peers: bool = True
    """Also those that take ten seconds and more to start."""
    quick: bool = False
    """Few loads, few sizes."""


FULL = Effort()
QUICK = Effort(
    rounds=1, repeat=1, lines=50_000, warm_up_secs=1.0, paced_secs=1.0, skewed_secs=0.8, value_secs=0.4, kills=3,
    daemon_kills=1, settle_secs=0.4, idle_secs=0.8, peers=False, quick=True,
)  # fmt: skip
