"""The parts of the proof, each a function of plain arguments that any process can run, and its outcome."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from dataclasses import dataclass

from squall.engine.errors import SquallError
from tests.sim import cores
from tests.sim.core_mutants import CORE_MUTANTS
from tests.sim.explore import Explorer
from tests.sim.halves import run_halves
from tests.sim.invariants import InvariantBrokenError
from tests.sim.mutants import MUTANTS
from tests.sim.parts import Parts
from tests.sim.schedule import find
from tests.sim.shapes import SHAPES
from tests.sim.state_lives import STATE_MUTANTS, run_life

_GC_THRESHOLD = 50_000
"""Worlds are cyclic garbage; looking for it less often makes a case a quarter faster."""
_MOST_SEEDS = 20_000
_MOST_CORE_SEEDS = 600
_MOST_STATE_SEEDS = 2_000

_LINKS = "repeat repeat_init drop"
_LATE = "drop overtake wait wait"
_ASKED = "drop overtake ask"
_DEATH = "kill repeat"
_LOSS_AND_DEATH = "kill drop"
_AGE = "wait wait rotate repeat_init"
_TWO_WORKERS = (
    "edge", "chain", "chain, acker apart", "sent on", "fan-out", "two branches", "self anchor", "no bolts",
    "failing bolt", "resetting bolt",
)
SEARCHES = (
    *((shape, faults) for shape in _TWO_WORKERS for faults in (_LINKS, _LATE, _ASKED, _DEATH)),
    *((shape, _LOSS_AND_DEATH) for shape in ("edge", "chain, acker apart", "sent on")),
    ("edge", _AGE), ("edge", "drop spoil wait wait ask"), ("chain", "drop drop ask ask"),
    ("forgetful bolt", "wait wait rotate drop"), *((shape, "spoil drop ask") for shape in _TWO_WORKERS),
    *((shape, faults) for shape in ("join", "the last first") for faults in ("repeat", "drop", "overtake")),
    *(("acker in a third worker", faults) for faults in ("repeat", "drop", "repeat_init")),
    ("branches apart", ""),
)
"""(shape, the faults that may happen in one schedule) of the exhaustive part."""
SHORT_SEARCHES = (
    *((shape, "repeat drop") for shape in _TWO_WORKERS if shape != "failing bolt"), ("failing bolt", "repeat"),
    ("edge", "kill"), ("chain, acker apart", "kill"), ("edge", "overtake wait wait"), ("join", ""),
    ("the last first", ""),
    ("acker in a third worker", ""), ("edge", "drop ask ask"), ("chain", _ASKED),
    ("edge", "spoil drop ask"), ("chain, acker apart", "spoil"), ("forgetful bolt", "wait"),
)
"""Those that a test run has time for."""


@dataclass(frozen=True)
class Outcome:
    """One row of the summary; `wrong` says what is not as it must be."""

    what: str
    counted: str
    secs: float
    """Of processor time: the machine may be busy with other things."""
    cases: int = 0
    wrong: str = ""


def search(shape: str, faults: str) -> Outcome:
    """Every schedule of one shape with these faults."""
    gc.set_threshold(_GC_THRESHOLD)
    began = time.process_time()
    verbs = faults.split()
    found = Explorer(SHAPES[shape], Parts(), {verb: verbs.count(verb) for verb in verbs}).run()
    wrong = f"{found.broken[0]}\n  {found.broken[1]}" if found.broken else ""
    counted = f"{found.states:,} states, {found.schedules:,} schedules"
    return Outcome(f"{shape}; {faults or 'no fault'}", counted, time.process_time() - began, found.schedules, wrong)


def random_cases(first: int, count: int) -> Outcome:
    """Seeded random schedules of every shape."""
    gc.set_threshold(_GC_THRESHOLD)
    began = time.process_time()
    finding = find(range(first, first + count), Parts())
    return _random_outcome("random", first, count, began, str(finding) if finding else "")


def core_cases(first: int, count: int) -> Outcome:
    """Seeded random schedules of real worker cores and data planes."""
    gc.set_threshold(_GC_THRESHOLD)
    began = time.process_time()
    wrong = ""
    for seed in range(first, first + count):
        try:
            cores.run_case(seed)
            if seed % 5 == 0:
                run_halves(seed)
        except InvariantBrokenError as error:
            wrong = f"{error}\n  core seed {seed}"
            break
        except SquallError as error:
            # A crash of the product's own; as an exception it cannot be sent to the pool's parent, which would wait.
            wrong = f"{type(error).__name__}: {error}\n  core seed {seed}"
            break
    return _random_outcome("cores", first, count, began, wrong)


def state_cases(first: int, count: int) -> Outcome:
    """Seeded random lives of topologies with state, windows and sinks."""
    began = time.process_time()
    wrong = ""
    for seed in range(first, first + count):
        try:
            run_life(seed)
        except InvariantBrokenError as error:
            wrong = str(error)
            break
        except SquallError as error:
            wrong = f"{type(error).__name__}: {error}\n  state seed {seed}"
            break
    return _random_outcome("state", first, count, began, wrong)


def _random_outcome(what: str, first: int, count: int, began: float, wrong: str) -> Outcome:
    return Outcome(what, f"seeds {first:,} to {first + count - 1:,}", time.process_time() - began, count, wrong)


def mutant(index: int, seeds: Iterable[int] = range(_MOST_SEEDS)) -> Outcome:
    """One negative control: the exhaustive search must name the invariant; random cases are counted until they do."""
    control = MUTANTS[index]
    began = time.process_time()
    broken = Explorer(SHAPES[control.shape], control.parts, control.faults).run().broken
    if broken is None:
        return Outcome(control.off, "not caught", time.process_time() - began, wrong=f"{control.breaks} was not seen")
    error, case = broken
    wrong = "" if error.invariant == control.breaks else f"{error.invariant!r} broke, not {control.breaks!r}"
    finding = find(seeds, control.parts)
    chance = f"random case {finding.case.seed + 1:,}" if finding else "by no random case"
    counted = f"{error.invariant}: after {len(case.schedule)} actions; {chance}"
    return Outcome(control.off, counted, time.process_time() - began, wrong=wrong)


def core_mutant(index: int) -> Outcome:
    """One negative control with real cores."""
    control = CORE_MUTANTS[index]
    began = time.process_time()
    seen = control.first_broken(_MOST_CORE_SEEDS)
    return _caught(f"{control.off} (cores)", control.breaks, began, seen and f"{seen[1]}: core case {seen[0] + 1}")


def state_mutant(index: int) -> Outcome:
    """One negative control of state."""
    control = STATE_MUTANTS[index]
    began = time.process_time()
    seen = control.first_broken(_MOST_STATE_SEEDS)
    how = None if seen is None else f"{control.breaks}: state case {seen + 1}"
    return _caught(f"{control.off} (state)", control.breaks, began, how)


def _caught(what: str, breaks: str, began: float, how: str | None) -> Outcome:
    """The outcome of a control that was begun then: how it was caught, if it was."""
    wrong = f"{breaks} was not seen" if how is None else ""
    return Outcome(what, how or "not caught", time.process_time() - began, wrong=wrong)
