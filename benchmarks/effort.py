"""How long to measure: everything in 13 minutes, or a first impression in two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    rounds: int = 3
    """Of all yardsticks in turn."""
    repeat: int = 2
    """Times the text is gone through where a row costs a microsecond; more where it costs less."""
    paced_secs: float = 5.0
    """Of each load, after the warm-up."""
    kills: int = 40
    daemon_kills: int = 8
    idle_secs: float = 6.0
    peers: bool = True
    """Also those that take ten seconds and more to start."""
    quick: bool = False
    """Few loads, few sizes."""


FULL = Effort()
QUICK = Effort(rounds=1, repeat=1, paced_secs=2.0, kills=5, daemon_kills=1, idle_secs=2.0, peers=False, quick=True)
