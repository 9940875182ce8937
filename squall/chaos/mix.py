"""Draws a seeded mix of faults: their kinds, targets, times and durations.

Guarantees: the same seed, mix, places and time draw the same faults. Each seed draws its own share of the mix and its
own density, so that a hundred seeds are not a hundred similar runs. A mix never kills a process so often that it is
given up. A fault that only a starting worker meets comes with a kill of that worker. With `kill` in a mix, each worker
is killed while messages are open.

Relies on: `squall.scheduler.faults.catalogue` for the kinds; a cluster whose keeper replaces its daemons.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

from squall.chaos.tapping import STEMS_FROM
from squall.engine.errors import UsageError
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.faults.catalogue import AT_START, CATALOGUE, ActsOn
from squall.scheduler.faults.sentence import Fault, quoted


@dataclass(frozen=True)
class Drawn:
    """A way in which a kind of the catalogue is drawn."""

    kind: str
    whom: str
    """What it hits, in the words of `Places.of`."""
    lasts_secs: tuple[float, float] | None = None
    """Range of its duration; None: it is over at once."""
    deaths: int = 0
    """Most deaths of its victim to which it leads, or about as many."""


_SHORT, _LONG = (0.05, 1.5), (0.2, 2.0)
_POISON_DEATHS = 6
"""A poison kills as often as its victim can be started again in its time."""
_START_DEATHS = 7
"""The kill, and starts that fail in that time."""
_GROUPS = {
    "process": {
        "kill": Drawn("kill", "worker", deaths=1),
        "stop": Drawn("stop", "worker", _SHORT),
        "throttle": Drawn("throttle", "worker", _LONG),
    },
    "executor": {
        "exception": Drawn("exception", "component", (0.02, 0.2), deaths=1),
        "hang": Drawn("hang", "component", (0.05, 1.0)),
        "slow": Drawn("slow", "component", _LONG),
    },
    "tuple": {"poison": Drawn("poison", "bolt", (0.5, 2.0), deaths=_POISON_DEATHS)},
    "link": {
        **{kind: Drawn(kind, "link", _LONG) for kind in ("drop", "duplicate", "delay", "corrupt")},
        "partition": Drawn("partition", "link", (0.1, 1.5)),
    },
    "daemons": {
        "kill-daemon": Drawn("kill", "daemon", deaths=1),
        "stop-daemon": Drawn("stop", "daemon", _SHORT),
    },
    "code": {"bad-code": Drawn("bad-code", "worker", _SHORT, deaths=_START_DEATHS)},
    "machine": {
        "disk-full": Drawn("disk-full", "process", _LONG, deaths=1),
        "fork-refused": Drawn("fork-refused", "node", (0.2, 1.5)),
        "clock": Drawn("clock", "worker", _LONG),
    },
}
"""Group -> name in a mix -> how it is drawn."""
_DRAWN = {name: drawn for group in _GROUPS.values() for name, drawn in group.items()}
GROUPS = {group: tuple(names) for group, names in _GROUPS.items()}
"""Name of a group -> its names in a mix."""
ALL = "all"
_OPEN_SHARE, _OPEN_SECS = 0.05, (0.15, 1.5)
"""Time from the hang of a sink to a worker's death: a share of all, within limits. A paced source of 40 records emits
two of them meanwhile, others a burst at least."""
_GAP_SECS = (0.2, 2.0)
"""Range of the mean time between two faults; each seed draws its own."""
_FRAMES_HIT, _CALLS_HIT = (0.01, 0.3), (0.001, 0.05)
"""Ranges of the share of frames hit, and of calls of `execute` hit: fewer, as these may end their worker."""
_JUMP_SECS = 100_000
"""Farthest jump of a clock, either way: more than a day."""
_KEY_DIGITS = (2, 3)
"""First digits of a message's key by which a poison knows it: one message in 256, or in 4,096."""
_PARAMETERS: dict[str, Callable[[random.Random, Places], dict[str, str]]] = {
    "kill": lambda rng, _: {"signal": rng.choice(("KILL", "KILL", "SEGV", "ABRT"))},
    "throttle": lambda rng, _: {"share": f"{rng.uniform(0.1, 0.8):.2f}"},
    "slow": lambda rng, _: {"ms": f"{rng.uniform(0.1, 5.0):.1f}"},
    "delay": lambda rng, _: rng.choice(({"by": str(rng.randint(1, 20))}, {"ms": f"{rng.uniform(1.0, 50.0):.1f}"})),
    "corrupt": lambda rng, _: {"how": rng.choice(("flip", "cut", "garble"))},
    "bad-code": lambda rng, _: {"fails": rng.choice(("load", "prepare"))},
    "clock": lambda rng, _: {"secs": str(rng.randint(-_JUMP_SECS, _JUMP_SECS))},
    "poison": lambda rng, places: {
        "field": STEMS_FROM, "matches": f"^{rng.getrandbits(64):016x}"[: 1 + rng.choice(_KEY_DIGITS)],
        "does": rng.choice(("exception", "exit", "segfault", "hang")),
    },
}  # fmt: skip
_MOST_OF_INTENSITY = 0.5
"""Share of the deaths allowed by the restart policy that a mix uses up: other faults may cause more."""


@dataclass(frozen=True)
class Places:
    """The possible targets of faults."""

    workers: Sequence[str]
    components: Sequence[str]
    bolts: Sequence[str] = ()
    sink_workers: Sequence[str] = ()
    """Workers with sinks and without spouts: no spout that begins anew heals what their deaths lose."""
    sinks: Sequence[str] = ()

    def of(self, whom: str) -> list[str]:
        """Return the possible targets of a fault that hits `whom`; empty if there are none."""
        workers, nodes = sorted(self.workers), sorted({quoted(worker.rpartition(":")[0]) for worker in self.workers})
        served = ["nimbus", *(f"supervisor {node}" for node in nodes)]
        found = {
            "worker": workers,
            "daemon": [*served, *(f"forking-parent {node}" for node in nodes)],
            "process": [*workers, *served],
            "node": nodes,
            "component": [f"component {quoted(name)}" for name in sorted(self.components)],
            "bolt": [f"component {quoted(name)}" for name in sorted(self.bolts)],
            "link": [f" {way} ".join(ends) for ends in permutations(workers, 2) for way in ("->", "<->")],
        }
        return found[whom]


def kinds_of(mix: str) -> tuple[str, ...]:
    """Return the names of faults in a mix: groups or names, joined by commas. UsageError names an unknown one."""
    known = {ALL: tuple(_DRAWN), **GROUPS, **{name: (name,) for name in _DRAWN}}
    found: dict[str, None] = {}
    for name in mix.split(","):
        if (kinds := known.get(name.strip())) is None:
            raise UsageError(f"mix {name.strip()!r} is unknown; allowed: {', '.join(known)}; several joined by commas")
        found.update(dict.fromkeys(kinds))
    return tuple(found)


def draw(seed: int, mix: Sequence[str], places: Places, for_secs: float) -> list[Fault]:
    """Draw the faults of a seed, in order of time. UsageError if none is possible."""
    rng = random.Random(f"squall chaos {seed}")
    names = [name for name in mix if places.of(_DRAWN[name].whom)]
    if not names:
        lacks = "a topology of one worker has no links" if len(places.workers) == 1 else "this topology has no bolt"
        raise UsageError(f"no fault of the mix ({', '.join(mix)}) is possible: {lacks}")
    names = rng.sample(names, rng.randint(1, len(names)))
    gap_secs = min(rng.uniform(*_GAP_SECS), for_secs / 2)
    policy = RestartPolicyOptions()
    most = policy.max_deaths * _MOST_OF_INTENSITY * max(1.0, for_secs / policy.period_secs)
    sure = _deaths_of_all(rng, places, for_secs) if "kill" in mix else []
    faults = [*sure]
    deaths = Counter(fault.targets for fault in faults if fault.kind == "kill")
    at_secs = rng.uniform(0.0, gap_secs)
    while at_secs < for_secs:
        name = rng.choice(names)
        fault = _fault(rng, _DRAWN[name], places, at_secs)
        ends = deaths[fault.targets] + _DRAWN[name].deaths
        # Not while another fault hits the same target, so that the timeline stays readable; nor Nimbus while it is to
        # kill a worker: on a full disk, it could not.
        busy = [one for one in faults if one.targets == fault.targets or (fault.targets == ("nimbus",) and one in sure)]
        if not any(_overlap(one, fault) for one in busy) and (ends <= most or not _DRAWN[name].deaths):
            deaths[fault.targets] = ends
            faults.append(fault)
            if fault.kind == AT_START:
                faults.append(Fault("kill", fault.targets, fault.at_secs))
        at_secs += rng.expovariate(1 / gap_secs)
    return sorted(faults, key=lambda fault: fault.at_secs)


def _deaths_of_all(rng: random.Random, places: Places, for_secs: float) -> list[Fault]:
    """Kill each worker once, while a sink hangs, so that messages are open. Drawn like others, a kill met a spout that
    stores its position too early in one seed of two, and then some 2 ms of each 100 in which it had something open."""
    faults: list[Fault] = []
    share_secs = for_secs / len(places.workers)
    open_secs = min(max(_OPEN_SECS[0], for_secs * _OPEN_SHARE), _OPEN_SECS[1], share_secs / 2)
    for number, worker in enumerate(rng.sample(sorted(places.workers), len(places.workers))):
        at_secs = share_secs * number + rng.uniform(0.0, share_secs - open_secs)
        if places.sinks:
            hung = (f"component {quoted(rng.choice(sorted(places.sinks)))}",)
            faults.append(Fault("hang", hung, round(at_secs, 3), for_secs=round(open_secs * 1.2, 3)))
        faults.append(Fault("kill", (worker,), round(at_secs + open_secs, 3), params=_PARAMETERS["kill"](rng, places)))
    return faults


def _overlap(one: Fault, other: Fault) -> bool:
    return all(a.at_secs < b.at_secs + (b.for_secs or 0.0) for a, b in permutations((one, other)))


def _fault(rng: random.Random, drawn: Drawn, places: Places, at_secs: float) -> Fault:
    kind, probability = CATALOGUE[drawn.kind], None
    if kind.is_drawn:
        on_frames = kind.acts_on is ActsOn.LINKS
        probability = round(rng.uniform(*(_FRAMES_HIT if on_frames else _CALLS_HIT)), 4)
    make = _PARAMETERS.get(drawn.kind)
    return Fault(
        drawn.kind, (rng.choice(places.of(drawn.whom)),), round(at_secs, 3),
        for_secs=None if drawn.lasts_secs is None else round(rng.uniform(*drawn.lasts_secs), 3),
        probability=probability, params={} if make is None else make(rng, places), seed=rng.getrandbits(32),
    )  # fmt: skip
