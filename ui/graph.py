"""Where the components of a topology are drawn: in layers, from its spouts on.

Guarantees: each component is in a layer after all that send to it, circles aside; the order in the layers keeps lines
short and crossings few (barycentres, some sweeps); the same topology is always drawn alike.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter

_SWEEPS = 6


def layers_of(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The layers, each from top to bottom. `edges`: from sender to receiver."""
    after: dict[str, list[str]] = {name: [] for name in names}
    for sender, receiver in dict.fromkeys(edges):
        if sender in after and receiver in after and sender != receiver:
            after[sender].append(receiver)
    after = _without_circles(after)
    before: dict[str, list[str]] = {name: [] for name in names}
    for sender, receivers in after.items():
        for receiver in receivers:
            before[receiver].append(sender)
    depth: dict[str, int] = {}
    for name in TopologicalSorter(before).static_order():
        depth[name] = max((depth[sender] + 1 for sender in before[name]), default=0)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in names:
        layers[depth[name]].append(name)
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        row = {name: _middle(index, layer) for layer in layers for index, name in enumerate(layer)}
        for layer in layers if forth else reversed(layers):
            neighbours = before if forth else after
            layer.sort(key=lambda name: _mean([row[other] for other in neighbours[name]], row[name]))
            row.update({name: _middle(index, layer) for index, name in enumerate(layer)})
    return layers


def _middle(index: int, layer: Sequence[str]) -> float:
    """How far below the middle of its layer a component is: layers are centred."""
    return index - (len(layer) - 1) / 2


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _without_circles(after: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Leave out edges that lead back, found by a walk in depth."""
    kept: dict[str, list[str]] = {name: [] for name in after}
    begun: set[str] = set()
    for root in after:
        path = {root: iter(after[root])} if root not in begun else {}
        begun.add(root)
        while path:
            name, receivers = next(reversed(path.items()))
            for receiver in receivers:
                if receiver in path:
                    continue
                kept[name].append(receiver)
                if receiver not in begun:
                    begun.add(receiver)
                    path[receiver] = iter(after[receiver])
                    break
            else:
                del path[name]
    return kept
