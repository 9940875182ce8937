"""Reads a spout's properties `waiting_count` and `exhausted`, without trusting them.

Guarantees: returns an integer that fits a word of the board, or a bool. Anything else is a ComponentError that names
the property, the value and what is allowed. An exception of the property passes through.

Relies on: a caller that makes a TaskCrashed of any exception (`engine.core.spout_executor`), also of `sys.exit`.
"""

from __future__ import annotations

import operator

from squall.engine.api.component import Spout
from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of

MAX_WAITING = 2**63 - 1


def waiting_count(spout: Spout) -> int:
    """Read how many failed messages it holds for a retry."""
    said = spout.waiting_count
    if said.__class__ is int and 0 <= said <= MAX_WAITING:
        return said
    try:
        count = operator.index(said)  # other libraries' integers too
    except TypeError as error:
        raise _no_count(said) from error
    if not 0 <= count <= MAX_WAITING:
        raise _no_count(said)
    return count


def _no_count(said: object) -> ComponentError:
    return ComponentError(f"waiting_count is {repr_of(said)}; allowed: an integer from 0 to 2**63 - 1")


def exhausted(spout: Spout) -> bool:
    """Read whether it has nothing more to emit."""
    return bool(spout.exhausted)
