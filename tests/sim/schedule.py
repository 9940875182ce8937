"""Schedules: what may happen in a shape, seeded random lists of it, and the shortest that still breaks something.

A schedule is a tuple of actions; an action is (verb, argument). The same schedule of a shape always does the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.sim.invariants import InvariantBrokenError, shortened, unwrapped
from tests.sim.parts import Parts
from tests.sim.shapes import SHAPES, Shape
from tests.sim.world import LINKS, World

Action = tuple[str, Any]
Schedule = tuple[Action, ...]

PROGRESS = ("emit", "send", "deliver", "deliver_new", "look", "flush_kept")
"""What happens without any fault, in any order."""
FAULTS = ("drop", "repeat", "overtake", "spoil", "ask", "repeat_init", "wait", "rotate", "kill")
DEATH = ("bury", "restart")
_OF_SLOT = ("send", "look", "flush_kept", "ask", "rotate", "kill", "bury", "restart")
_OF_LINK = ("deliver", "deliver_new", "drop", "repeat", "overtake", "spoil")
_SHARES = {
    "emit": 12, "send": 30, "deliver": 50, "deliver_new": 6, "look": 4, "flush_kept": 3, "bury": 16, "restart": 16,
}
"""Those of deaths are large because they are possible only after one."""
_FAULT_SHARE = 3
_TABLE_SIZE = 1024
_MIN_ACTIONS, _MAX_ACTIONS = 20, 90
_MIXES = 64
"""Different sets of shares that cases are drawn from: each has some faults often and others not at all."""


def actions_of(shape: Shape, verbs: tuple[str, ...]) -> list[Action]:
    """Every action of these verbs in a shape."""
    found: list[Action] = []
    for verb in verbs:
        if verb in _OF_SLOT:
            found += [(verb, worker) for worker in range(shape.plan.n_workers)]
        elif verb in _OF_LINK:
            found += [(verb, link) for link in LINKS[shape.plan.n_workers]]
        else:
            found.append((verb, None))
    return found


@dataclass(frozen=True)
class Case:
    """One schedule of one shape."""

    seed: int
    shape: Shape
    schedule: Schedule

    def __str__(self) -> str:
        steps = "\n".join(f"    {number:2}. {_words(action)}" for number, action in enumerate(self.schedule, 1))
        return f"seed {self.seed}, shape {self.shape.name!r} ({self.shape.layout}):\n{steps}"


def _words(action: Action) -> str:
    verb, argument = action
    if argument is None:
        return verb.replace("_", " ")
    if verb in _OF_LINK:
        return f"{verb.replace('_', ' ')} on link {argument[0]} -> {argument[1]}"
    return f"{verb.replace('_', ' ')} worker {argument}"


@unwrapped()
def run_case(case: Case, parts: Parts) -> None:
    """Raises InvariantBrokenError."""
    world = World(case.shape, parts, case.seed)
    for verb, argument in case.schedule:
        getattr(world, verb)(argument)
    world.finish()


def breaks(case: Case, parts: Parts) -> InvariantBrokenError | None:
    try:
        run_case(case, parts)
    except InvariantBrokenError as error:
        return error
    return None


def shrink(case: Case, parts: Parts, invariant: str) -> Case:
    """The same invariant broken by as few actions as can be."""
    of = partial(Case, case.seed, case.shape)
    return of(shortened(case.schedule, lambda trial: breaks(of(trial), parts), invariant))


class Dice:
    """Draws cases. The same seed gives the same case, whatever was drawn before."""

    def __init__(self, shapes: tuple[Shape, ...] = tuple(SHAPES.values())) -> None:
        self._shapes = shapes
        self._tables: dict[tuple[str, int], list[Action]] = {}
        self._rng = random.Random()

    def _table(self, shape: Shape, mix: int) -> list[Action]:
        table = self._tables.get((shape.name, mix))
        if table is None:
            rng = random.Random(mix)
            faults = [verb for verb in FAULTS if rng.random() < 0.5]
            shares = {**_SHARES, **{verb: _FAULT_SHARE * rng.choice((1, 2, 6)) for verb in faults}}
            # In a third of the mixes frames are long under way.
            shares["deliver"] //= rng.choice((1, 1, 8))
            weighted: list[Action] = []
            for verb, share in shares.items():
                actions = actions_of(shape, (verb,))
                weighted += [action for action in actions for _ in range(max(1, share * 4 // len(actions)))]
            table = [weighted[index * len(weighted) // _TABLE_SIZE] for index in range(_TABLE_SIZE)]
            self._tables[shape.name, mix] = table
        return table

    def case(self, seed: int) -> Case:
        rng = self._rng
        rng.seed(seed)
        bits = rng.getrandbits(48)
        shape = self._shapes[(bits & 0xFFFF) % len(self._shapes)]
        table = self._table(shape, (bits >> 16 & 0xFFFF) % _MIXES)
        length = _MIN_ACTIONS + (bits >> 32) % (_MAX_ACTIONS - _MIN_ACTIONS + 1)
        drawn = rng.getrandbits(10 * length)
        return Case(seed, shape, tuple([table[drawn >> shift & 1023] for shift in range(0, 10 * length, 10)]))


@dataclass(frozen=True)
class Finding:
    """A case that broke an invariant, as it was drawn and as short as it gets."""

    case: Case
    error: InvariantBrokenError
    smallest: Case

    def __str__(self) -> str:
        return f"{self.error}\n  {self.smallest}"


def find(seeds: Iterable[int], parts: Parts) -> Finding | None:
    """The first case among these seeds that breaks an invariant."""
    dice = Dice()
    for seed in seeds:
        case = dice.case(seed)
        error = breaks(case, parts)
        if error is not None:
            return Finding(case, error, shrink(case, parts, error.invariant))
    return None
