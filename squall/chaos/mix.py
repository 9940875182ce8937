"""A seeded mix of faults: which kinds, whom, when and for how long.

Guarantees: the same seed, kinds, workers and time draw the same faults. Each seed draws its own share of the kinds and
its own density, so that a hundred seeds are not a hundred times the same weather. A mix never kills a worker as often
as would have its slot given up.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

from squall.engine.errors import UsageError
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.faults.fault import AfterSecs, Fault

KINDS = {"process": ("kill", "stop")}
"""Group -> kinds of faults."""
ALL = "all"
_GAP_SECS = (0.2, 2.0)
"""Between two faults, on average, drawn for each seed."""
_STOP_SECS = (0.05, 1.5)
_MOST_OF_INTENSITY = 0.5
"""Of the deaths that the restart policy forgives a slot, so many a mix uses up: others may come of other faults."""


def kinds_of(mix: str) -> tuple[str, ...]:
    """The kinds that a mix is drawn from: groups or kinds, joined by commas. UsageError names what is unknown."""
    known = {ALL: tuple(kind for kinds in KINDS.values() for kind in kinds), **KINDS}
    known |= {kind: (kind,) for kinds in KINDS.values() for kind in kinds}
    found: dict[str, None] = {}
    for name in mix.split(","):
        if (kinds := known.get(name.strip())) is None:
            raise UsageError(f"mix {name.strip()!r} is unknown; allowed: {', '.join(known)}; several joined by commas")
        found.update(dict.fromkeys(kinds))
    return tuple(found)


def draw(seed: int, kinds: Sequence[str], workers: Iterable[str], for_secs: float) -> list[Fault]:
    """The faults of a seed, in order of time; at least one."""
    rng = random.Random(f"squall chaos {seed}")
    workers = sorted(workers)
    kinds = rng.sample(list(kinds), rng.randint(1, len(kinds)))
    gap_secs = min(rng.uniform(*_GAP_SECS), for_secs / 2)
    policy = RestartPolicyOptions()
    most = policy.max_deaths * _MOST_OF_INTENSITY * max(1.0, for_secs / policy.period_secs)
    deaths: Counter[str] = Counter()
    free_secs = dict.fromkeys(workers, 0.0)
    faults: list[Fault] = []
    at_secs = rng.uniform(0.0, gap_secs)
    while at_secs < for_secs:
        kind, worker = rng.choice(kinds), rng.choice(workers)
        secs = rng.uniform(*_STOP_SECS)
        # Not while another is in force on it, whose end would end this one as well.
        if at_secs >= free_secs[worker] and (kind != "kill" or deaths[worker] < most):
            lasts_secs = None if kind == "kill" else round(secs, 3)
            free_secs[worker] = at_secs + (lasts_secs or 0.0)
            deaths[worker] += kind == "kill"
            faults.append(Fault(kind, (worker,), AfterSecs(round(at_secs, 3)), for_secs=lasts_secs))
        at_secs += rng.expovariate(1 / gap_secs)
    return faults
