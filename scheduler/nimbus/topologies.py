"""Finds the topologies that Nimbus knows by name.

Guarantees: a name stands for one topology at a time; the error for a wrong name lists the right ones.

Pure. Thread: Nimbus's loop.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from squall.engine.errors import UsageError
from squall.scheduler.common.messages import SlotRef
from squall.scheduler.nimbus.topology_life import TopologyLife


def with_near_name(name: str, known: Iterable[str], rest: str) -> str:
    """`rest`, behind a suggestion of one of `known` if it resembles `name`, whatever the case of letters."""
    known = list(known)
    near = difflib.get_close_matches(name.casefold(), [other.casefold() for other in known], n=1)
    if not near:
        return rest
    # Of names that differ in case alone, the one that is nearest as it was written.
    nearest = max(
        (other for other in known if other.casefold() == near[0]),
        key=lambda other: difflib.SequenceMatcher(None, other, name).ratio(),
    )
    return f"did you mean {nearest!r}? {rest[:1].upper()}{rest[1:]}"


class Topologies:
    """Topologies in the order of their submission."""

    def __init__(self, lives: Iterable[TopologyLife]) -> None:
        self._lives = {life.record.name: life for life in lives}

    def __iter__(self) -> Iterator[TopologyLife]:
        """Iterate over a snapshot: topologies may be added and removed meanwhile."""
        return iter(list(self._lives.values()))

    def __bool__(self) -> bool:
        return bool(self._lives)

    def add(self, life: TopologyLife) -> None:
        self._lives[life.record.name] = life

    def remove(self, name: str) -> None:
        """Remove the topology of that name, if there is one."""
        self._lives.pop(name, None)

    def by_id(self, topology_id: str) -> TopologyLife | None:
        return next((life for life in self._lives.values() if life.record.id == topology_id), None)

    def get(self, name: str) -> TopologyLife | None:
        return self._lives.get(name)

    def named(self, name: str) -> TopologyLife:
        """The topology of that name. UsageError if there is none."""
        life = self._lives.get(name)
        if life is None:
            running = ", ".join(repr(other) for other in self._lives) or "none"
            hint = with_near_name(name, self._lives, f"running: {running}")
            raise UsageError(f"there is no topology named {name!r:.80}; {hint}")
        return life

    def changeable(self, name: str) -> TopologyLife:
        """The topology of that name. UsageError if it is being killed or moved already."""
        life = self.named(name)
        status, successor = life.record.status, life.record.successor
        if successor is not None:
            raise UsageError(f"topology {name!r} gives way to {successor.topology.id}: try again when that is there")
        if status not in ("ACTIVE", "INACTIVE"):
            then = "; try again when it has moved" if status == "REBALANCING" else ""
            raise UsageError(f"topology {name!r} is {status}: only ACTIVE and INACTIVE ones can change{then}")
        return life

    def check_free(self, name: str) -> None:
        """UsageError if the name is taken."""
        life = self._lives.get(name)
        if life is None:
            return
        if life.record.successor is not None:
            raise UsageError(
                f"a topology named {name!r} gives way to {life.record.successor.topology.id}: choose another name, or "
                "replace that one, too"
            )
        if life.record.status == "KILLED":
            raise UsageError(
                f"a topology named {name!r} is still being killed: its name is free when its workers have stopped"
            )
        raise UsageError(f"a topology named {name!r} is already running: choose another name, or kill it first")

    def taken_slots(self) -> set[SlotRef]:
        return {slot for life in self._lives.values() for slot in life.slots}
