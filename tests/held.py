"""What an object holds that nobody is to ask for in the product: containers, whatever it calls them, and runs."""

from __future__ import annotations

from collections import deque
from typing import Any

from squall.engine.tracking.acker import Acker


def held(thing: Any) -> int:
    """Entries of all its containers. What has nothing left to do should have none."""
    state = thing.__getstate__()
    attributes = state if isinstance(state, tuple) else (state,)
    values = (value for named in attributes if named for value in named.values())
    return sum(len(value) for value in values if isinstance(value, dict | set | list | deque))


def early(acker: Acker) -> int:
    """Messages of roots that it has had no INIT of: all it holds beside trees and answers."""
    return held(acker) - len(acker) - len(acker.answers)
