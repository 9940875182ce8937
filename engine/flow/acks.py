"""Acks on their way to ackers: root -> XOR, and root -> mask of the workers that new tuples of the tree were sent to.

Guarantees: however acks of a tree are merged, its acker computes the same. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping


def merge_acks(
    acks: dict[int, int], masks: dict[int, int], more_acks: Mapping[int, int], more_masks: Mapping[int, int]
) -> None:
    """Add more acks and masks to these."""
    if not acks:
        acks.update(more_acks)
    else:
        for root, value in more_acks.items():
            acks[root] = acks.get(root, 0) ^ value
    for root, mask in more_masks.items():
        masks[root] = masks.get(root, 0) | mask
