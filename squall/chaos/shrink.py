"""Finds the smallest part of a list that still fails (delta debugging, Zeller's ddmin).

Guarantees: the result failed when it was tried; if the tries sufficed, no single item of it can be left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class OutOfTries(Exception):
    """The allowed number of tries is used up."""


def smallest(items: Sequence[T], fails: Callable[[Sequence[T]], bool], tries: int) -> list[T]:
    """Find the smallest failing part of `items`, which failed as a whole, in at most `tries` tries."""
    left = tries

    def still_fails(some: Sequence[T]) -> bool:
        nonlocal left
        if not left:
            raise OutOfTries
        left -= 1
        return fails(some)

    best = list(items)
    parts = 2
    with contextlib.suppress(OutOfTries):
        while len(best) > 1:
            size = -(-len(best) // parts)
            chunks = [best[at : at + size] for at in range(0, len(best), size)]
            rests = [[item for other in chunks if other is not chunk for item in other] for chunk in chunks]
            # The rest of a half is the other half.
            candidates = chunks if len(chunks) == 2 else chunks + rests
            found = next((some for some in candidates if still_fails(some)), None)
            if found is not None:
                parts = max(2, parts - 1) if len(found) > size else 2
                best = found
            elif size == 1:
                break
            else:
                parts = min(len(best), 2 * parts)
    return best
