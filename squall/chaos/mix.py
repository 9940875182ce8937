"""Draws a seeded mix of faults: their kinds, targets, times and durations.

Guarantees: the same seed, kinds, places and time draw the same faults. Each seed draws its own share of the kinds and
its own density, so that a hundred seeds are not a hundred similar runs. A mix never kills a worker so often that its
slot is given up.

Relies on: `squall.scheduler.faults.catalogue` for the kinds. Not drawn: faults that a cluster of one program cannot
mend (the death of its daemons), and those that break user code, not the engine (limits of memory, descriptors, disk).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from squall.engine.errors import UsageError
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.faults.catalogue import CATALOGUE
from squall.scheduler.faults.fault import AfterSecs, Fault, Value
from squall.scheduler.faults.kind import ActsOn
from squall.scheduler.faults.words import name_text

GROUPS = {
    "process": ("kill", "stop", "throttle", "segfault", "exit"),
    "executor": ("exception", "hang", "slow"),
    "link": ("drop", "duplicate", "delay", "reorder", "corrupt", "truncate", "partition", "slow-link"),
}
"""Name of a group -> its kinds of faults."""
DEADLY = ("kill", "segfault", "exit", "exception")
"""Kinds that end their worker, at once or within their duration."""
ALL = "all"
_GAP_SECS = (0.2, 2.0)
"""Range of the mean time between two faults; each seed draws its own."""
_LASTS_SECS = {
    "stop": (0.05, 1.5), "throttle": (0.2, 2.0), "exception": (0.02, 0.2), "hang": (0.05, 1.0), "slow": (0.2, 2.0),
    "drop": (0.2, 2.0), "duplicate": (0.2, 2.0), "delay": (0.2, 2.0), "reorder": (0.2, 2.0), "corrupt": (0.2, 2.0),
    "truncate": (0.2, 2.0), "partition": (0.1, 1.5), "slow-link": (0.2, 2.0),
}  # fmt: skip
"""Range of the duration in seconds, by kind; kinds that are not here are over at once."""
_FRAMES_HIT, _CALLS_HIT = (0.01, 0.3), (0.001, 0.05)
"""Ranges of the share of frames hit, and of calls of `execute` hit: fewer, as these may end their worker."""
_DAEMONS_HIT = 0.15
"""Share of stops that hit Nimbus or a supervisor."""
_PARAMETERS: dict[str, Callable[[random.Random], dict[str, Value]]] = {
    "throttle": lambda rng: {"share": round(rng.uniform(0.1, 0.8), 2)},
    "exit": lambda rng: {"status": rng.choice((0, 1, 7))},
    "slow": lambda rng: {"ms": round(rng.uniform(0.1, 5.0), 1)},
    "slow-link": lambda rng: {"ms": round(rng.uniform(1.0, 50.0), 1)},
    "delay": lambda rng: {"by": rng.randint(1, 20)},
}
_MOST_OF_INTENSITY = 0.5
"""Share of the deaths allowed by the restart policy that a mix uses up: other faults may cause more."""


@dataclass(frozen=True)
class Places:
    """The possible targets of faults."""

    workers: Sequence[str]
    components: Sequence[str]

    @property
    def daemons(self) -> list[str]:
        nodes = sorted({worker.rpartition(":")[0] for worker in self.workers})
        return ["nimbus", *(f"supervisor {name_text(node)}" for node in nodes)]


def kinds_of(mix: str) -> tuple[str, ...]:
    """The kinds from which a mix is drawn: groups or kinds, joined by commas. UsageError names an unknown one."""
    known = {ALL: tuple(kind for kinds in GROUPS.values() for kind in kinds), **GROUPS}
    known |= {kind: (kind,) for kinds in GROUPS.values() for kind in kinds}
    found: dict[str, None] = {}
    for name in mix.split(","):
        if (kinds := known.get(name.strip())) is None:
            raise UsageError(f"mix {name.strip()!r} is unknown; allowed: {', '.join(known)}; several joined by commas")
        found.update(dict.fromkeys(kinds))
    return tuple(found)


def draw(seed: int, kinds: Sequence[str], places: Places, for_secs: float) -> list[Fault]:
    """Draw the faults of a seed, in order of time; at least one. UsageError if none is possible."""
    rng = random.Random(f"squall chaos {seed}")
    # One worker has no links.
    kinds = [kind for kind in kinds if len(places.workers) > 1 or CATALOGUE[kind].acts_on is not ActsOn.LINKS]
    if not kinds:
        raise UsageError("the mix has faults of links alone, and a topology of one worker has no links")
    kinds = rng.sample(kinds, rng.randint(1, len(kinds)))
    gap_secs = min(rng.uniform(*_GAP_SECS), for_secs / 2)
    policy = RestartPolicyOptions()
    most = policy.max_deaths * _MOST_OF_INTENSITY * max(1.0, for_secs / policy.period_secs)
    deaths: Counter[str] = Counter()
    free_secs: dict[str, float] = {}
    faults: list[Fault] = []
    at_secs = rng.uniform(0.0, gap_secs)
    while at_secs < for_secs:
        fault = _fault(rng, rng.choice(kinds), places, at_secs)
        (target,) = fault.targets
        # Not while another fault hits the same target, so that the timeline stays readable.
        if at_secs >= free_secs.get(target, 0.0) and (fault.kind not in DEADLY or deaths[target] < most):
            deaths[target] += fault.kind in DEADLY
            free_secs[target] = at_secs + (fault.for_secs or 0.0)
            faults.append(fault)
        at_secs += rng.expovariate(1 / gap_secs)
    return faults


def _fault(rng: random.Random, kind: str, places: Places, at_secs: float) -> Fault:
    lasts, probability = _LASTS_SECS.get(kind), None
    if CATALOGUE[kind].is_drawn:
        on_frames = CATALOGUE[kind].acts_on is ActsOn.LINKS
        probability = round(rng.uniform(*(_FRAMES_HIT if on_frames else _CALLS_HIT)), 4)
    parameters = _PARAMETERS[kind](rng) if kind in _PARAMETERS else {}
    return Fault(
        kind, (_target(rng, kind, places),), AfterSecs(round(at_secs, 3)),
        for_secs=None if lasts is None else round(rng.uniform(*lasts), 3), probability=probability, params=parameters,
        seed=rng.getrandbits(32),
    )  # fmt: skip


def _target(rng: random.Random, kind: str, places: Places) -> str:
    workers = sorted(places.workers)
    match CATALOGUE[kind].acts_on:
        case ActsOn.TASKS:
            return f"component {name_text(rng.choice(sorted(places.components)))}"
        case ActsOn.LINKS:
            return f" {rng.choice(('->', '<->'))} ".join(rng.sample(workers, 2))
        case _ if kind == "stop" and rng.random() < _DAEMONS_HIT:
            return rng.choice(places.daemons)
        case _:
            return rng.choice(workers)
