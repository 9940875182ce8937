"""The parts of the proof, each a function of plain arguments that any process can run, and its outcome."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from squall.engine.errors import SquallError
from tests.sim import cores
from tests.sim.control import Control
from tests.sim.core_mutants import CORE_MUTANTS
from tests.sim.explore import Explorer
from tests.sim.halves import run_halves
from tests.sim.invariants import InvariantBrokenError
from tests.sim.life_mutants import LIFE_MUTANTS
from tests.sim.mutants import MUTANTS
from tests.sim.parts import Parts
from tests.sim.schedule import find
from tests.sim.shapes import SHAPES
from tests.sim.state_lives import STATE_MUTANTS, run_life

_GC_THRESHOLD = 50_000
"""Worlds are cyclic garbage; looking for it less often makes a case a quarter faster."""
_MOST_SEEDS = 20_000
CONTROLS: tuple[Control, ...] = (*CORE_MUTANTS, *LIFE_MUTANTS, *STATE_MUTANTS)

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
    ("edge", "spoil ask"), ("chain, acker apart", "spoil"), ("forgetful bolt", "wait"),
)
"""Those that a test run has time for."""


@dataclass(frozen=True)
class Outcome:
    """One row of the summary; `wrong` says what is not as it must be."""

    what: str
    counted: str
    wrong: str = ""
    secs: float = 0.0
    """Of processor time: the machine may be busy with other things."""
    shown_by: int | None = None
    """Of a control: the first seed that shows it."""


def timed(job: Callable[[], Outcome]) -> Outcome:
    """Run one job."""
    gc.set_threshold(_GC_THRESHOLD)
    began = time.process_time()
    return replace(job(), secs=time.process_time() - began)


def search(shape: str, faults: str) -> Outcome:
    """Every schedule of one shape with these faults."""
    verbs = faults.split()
    found = Explorer(SHAPES[shape], Parts(), {verb: verbs.count(verb) for verb in verbs}).run()
    wrong = f"{found.broken[0]}\n  {found.broken[1]}" if found.broken else ""
    return Outcome(f"{shape}; {faults or 'no fault'}", f"{found.states:,} states", wrong)


def core_case(seed: int) -> None:
    cores.run_case(seed)
    if seed % 5 == 0:
        run_halves(seed)


CASES: dict[str, Callable[[int], None]] = {"core": core_case, "state": run_life}


def random_cases(kind: str, first: int, count: int) -> Outcome:
    """Seeded random cases: of real worker cores and data planes, of topologies with state, or of the model."""
    seeds = range(first, first + count)
    told = f"seeds {first:,} to {seeds[-1]:,}"
    if kind not in CASES:
        return Outcome(f"{kind} cases", told, str(find(seeds, Parts()) or ""))
    for seed in seeds:
        try:
            CASES[kind](seed)
        except (InvariantBrokenError, SquallError) as error:
            # As an exception, a crash of the product's own cannot be sent to the pool's parent, which would wait.
            return Outcome(f"{kind} cases", told, f"{type(error).__name__}: {error}\n  {kind} seed {seed}")
    return Outcome(f"{kind} cases", told)


def mutant(index: int, seeds: Iterable[int] = range(_MOST_SEEDS)) -> Outcome:
    """One negative control: the exhaustive search must name the invariant; random cases are counted until they do."""
    control = MUTANTS[index]
    broken = Explorer(SHAPES[control.shape], control.parts, control.faults).run().broken
    if broken is None:
        return Outcome(control.off, "not caught", f"{control.breaks} was not seen")
    error, case = broken
    wrong = "" if error.invariant == control.breaks else f"{error.invariant!r} broke, not {control.breaks!r}"
    finding = find(seeds, control.parts)
    chance = f"random case {finding.case.seed + 1:,}" if finding else "by no random case"
    return Outcome(control.off, f"{error.invariant}: after {len(case.schedule)} actions; {chance}", wrong)


def control(index: int) -> Outcome:
    """One negative control of cores, lives or state: the first of its seeds that shows it."""
    mutant = CONTROLS[index]
    seed = mutant.first_seed()
    if seed is None:
        return Outcome(str(mutant), "not caught", f"{mutant.breaks} was not seen")
    return Outcome(str(mutant), f"{mutant.breaks}: seed {seed}", shown_by=seed)
