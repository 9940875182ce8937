"""A fault as requested: its kind, targets, time, repetitions and duration.

Guarantees: a Fault is plain data that never changes; all its values are texts and numbers. Whether the kind exists and
takes these targets and parameters is not checked here (see `scheduler.faults.check`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from squall.engine.foreign.plain_text import plain

Value: TypeAlias = int | float | str


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a fault plan."""

    kind: str
    """A name of the catalogue: "kill", "partition"."""
    targets: tuple[str, ...] = ()
    """As typed: "node-1:6700", "count", "count[0]", "node-1", "nimbus", "supervisor node-1", "random worker"."""
    at_secs: float = 0.0
    """Seconds after the start of the plan."""
    after_acked: int = 0
    """Messages acked since the start of the plan, in place of a time; 0: by the clock."""
    every_secs: float | None = None
    """Seconds between two occurrences; None: once."""
    times: int | None = None
    """Occurrences in all, with `every_secs`; None: until the plan ends."""
    for_secs: float | None = None
    """Seconds that it lasts; None: the catalogue's time, or a fault that is over at once."""
    probability: float | None = None
    """Of each single tuple or frame; None if the fault is not drawn."""
    params: dict[str, str] = {}
    """As typed; the catalogue says what they mean."""
    seed: int | None = None
    """Seed of this fault's draws; None: derived from the plan's."""


def shown(value: str) -> str:
    """A text of a user, for a message: short, and on one line."""
    text = plain(repr(value))
    return text if len(text) <= 80 else f"{text[:80]}..."
