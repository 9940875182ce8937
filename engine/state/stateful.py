"""Bolts with state: the base classes that users derive from.

What they promise is in docs/state.md; `engine.state.stateful_task` keeps it.
"""

from __future__ import annotations

from typing import Any

from squall.engine.api.component import BasicBolt, BatchBolt
from squall.engine.state.keyed import State


class _WithState:
    """What both kinds have in common."""

    state: State
    """A mapping of this task, by key: whatever Python compares and hashes by value. Values are whatever can be pickled.
    Set before `prepare`."""
    state_ttl_secs: float | None = None
    """Time to live: a value that was not used for so long is removed, soon after. None: never."""
    state_kept_keys: int = 1_000_000
    """Keys that are kept in memory; others are read from the store when they are asked for."""
    durability: str = "process"
    """What committed state survives: "process" every death of processes, "full" a power loss, too."""


class StatefulBolt(_WithState, BasicBolt):
    """A basic bolt whose `self.state` counts each tuple once, under every fault: a tuple that comes again after it was
    absorbed is acked without `execute`, and what it emitted is emitted again as it was.

    Changes of `self.state` and emits are committed together, and then the tuples are acked. An `execute` that raises
    leaves no change."""


class StatefulBatchBolt(_WithState, BatchBolt):
    """The same for batches: `execute_batch` sees the rows that its state has not absorbed. Leave the state of rows
    alone that you fail by `collector.fail(row)`: the others are committed."""


def mistake_of(component: Any) -> str | None:
    """What is wrong with the settings of a bolt with state; None if nothing is."""
    ttl, kept = component.state_ttl_secs, component.state_kept_keys
    if ttl is not None and not (isinstance(ttl, int | float) and 0 < ttl < 1e9):
        return f"has state_ttl_secs {ttl!r:.80}; allowed: seconds above 0, or None"
    if not (isinstance(kept, int) and kept > 0):
        return f"has state_kept_keys {kept!r:.80}; allowed: a number from 1 up"
    return None
