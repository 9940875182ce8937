"""Every schedule of a small shape: breadth first over the states of the model, each looked at once.

Guarantees: with a given number of each fault, whatever may happen next is tried in every state that can be reached, and
the end is checked from each; so every order of every action is covered, of any length. States are compared as pickled
bytes, which may take equal ones for different (more work), never different ones for equal. The first schedule found to
break something is among the shortest.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass

from tests.sim.invariants import InvariantBrokenError, unwrapped
from tests.sim.parts import Parts
from tests.sim.schedule import DEATH, PROGRESS, Action, Case, actions_of
from tests.sim.shapes import Shape
from tests.sim.world import World

Left = tuple[int, ...]
_Key = tuple[bytes, Left]


@dataclass(frozen=True)
class Explored:
    """What was seen of one shape."""

    states: int
    broken: tuple[InvariantBrokenError, Case] | None


class Explorer:
    """One search. `faults` says how often each fault may happen, in one schedule."""

    def __init__(self, shape: Shape, parts: Parts, faults: Mapping[str, int]) -> None:
        self._shape = shape
        self._parts = parts
        self._faults = tuple(faults)
        self._actions: list[tuple[int | None, Action]] = []
        """(which fault's number it takes from, action)."""
        for verb in (*PROGRESS, *faults, *DEATH):
            place = self._faults.index(verb) if verb in faults else None
            self._actions += [(place, action) for action in actions_of(shape, (verb,))]
        first = (pickle.dumps(World(shape, parts), 5), tuple(faults.values()))
        self._numbers: dict[_Key, int] = {first: 0}
        self._came: list[tuple[int, Action | None]] = [(0, None)]
        """Of each state: from which one, by what."""

    def run(self) -> Explored:
        level = list(self._numbers)
        while level:
            following: list[_Key] = []
            for key in level:
                number = self._numbers[key]
                try:
                    with unwrapped():
                        pickle.loads(key[0]).finish()
                    self._step(number, key, following)
                except InvariantBrokenError as error:
                    return Explored(len(self._numbers), (error, self._case(number)))
            level = following
        return Explored(len(self._numbers), None)

    def _step(self, number: int, key: _Key, following: list[_Key]) -> None:
        """Try everything that may happen in one state; add the states that follow."""
        blob, left = key
        world: World | None = None
        for place, (verb, argument) in self._actions:
            if place is not None and not left[place]:
                continue
            world = world or pickle.loads(blob)
            try:
                with unwrapped():
                    possible = getattr(world, verb)(argument)
            except InvariantBrokenError:
                # Report the schedule up to and including this action.
                self._came.append((number, (verb, argument)))
                self._numbers[b"broken", ()] = len(self._came) - 1
                raise
            if not possible:
                continue
            spent = left if place is None else (*left[:place], left[place] - 1, *left[place + 1 :])
            child = (pickle.dumps(world, 5), spent)
            world = None
            if child not in self._numbers:
                self._numbers[child] = len(self._came)
                self._came.append((number, (verb, argument)))
                following.append(child)

    def _case(self, number: int) -> Case:
        number = self._numbers.get((b"broken", ()), number)
        schedule: list[Action] = []
        while number:
            number, action = self._came[number]
            assert action is not None
            schedule.append(action)
        return Case(0, self._shape, tuple(reversed(schedule)))
