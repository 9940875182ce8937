"""`make prove`: the whole proof, in as many processes as there are cores, and what it amounts to.

Seconds in the rows are of processor time.

    python -m tests.sim                     everything; ends with 1 if anything is not as it must be
    python -m tests.sim --seed 4711         one random case again, with its shortest schedule if it breaks something
    python -m tests.sim --core-seed 4711    one case of the real cores again
    python -m tests.sim --state-seed 4711   one life of a topology with state again
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator
from functools import partial

from tests.sim import jobs
from tests.sim.invariants import MEANING
from tests.sim.jobs import Outcome
from tests.sim.mutants import MUTANTS

CASES = {"model": (1_000_000, 20_000), "core": (2_000, 250), "state": (200, 25)}
"""How many random ones, and how many of them in one job."""
SEEDS = {"seed": "model", "core_seed": "core", "state_seed": "state"}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Prove the tracking, and exact state.")
    for name, kind in SEEDS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"run one random {kind} case again")
    return parser.parse_args()


def _jobs(first: int) -> Iterator[partial[Outcome]]:
    for shape, faults in jobs.SEARCHES:
        yield partial(jobs.search, shape, faults)
    for kind, (cases, chunk) in CASES.items():
        for begin in range(0, cases, chunk):
            yield partial(jobs.random_cases, kind, first + begin, min(chunk, cases - begin))
    for controls, job in ((MUTANTS, jobs.mutant), (jobs.CONTROLS, jobs.control)):
        for index in range(len(controls)):
            yield partial(job, index)


def main() -> int:
    """The exit code."""
    arguments = _arguments()
    for name, kind in SEEDS.items():
        if (seed := getattr(arguments, name)) is not None:
            broken = jobs.random_cases(kind, seed, 1).wrong
            print(broken or f"{kind} seed {seed}: every invariant holds")
            return 1 if broken else 0
    first, began = random.SystemRandom().getrandbits(40), time.perf_counter()
    print(f"first seed {first}\nInvariants")
    for name, meaning in MEANING.items():
        print(f"  {name:24} {meaning}")
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        # By functions of another module: what is spawned does not import this one.
        for outcome in pool.imap(jobs.timed, _jobs(first)):
            outcomes.append(outcome)
            print(f"  {outcome.what:46} {outcome.counted:58} {outcome.secs:7.1f} s", flush=True)
    print("For tests/sim/remembered.py:")
    for outcome in outcomes:
        if outcome.shown_by is not None:
            print(f'    "{outcome.what}": {outcome.shown_by},')
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    for outcome in wrong:
        print(f"\nWRONG: {outcome.what}: {outcome.wrong}", file=sys.stderr)
    controls = len(MUTANTS) + len(jobs.CONTROLS)
    caught = controls - sum(outcome.counted.startswith("not") for outcome in wrong)
    print(
        f"{len(MEANING)} invariants, {len(wrong)} results that must not be; {caught} of {controls} mutants caught; "
        f"{time.perf_counter() - began:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
