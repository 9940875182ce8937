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
from collections.abc import Callable, Iterator
from multiprocessing.pool import AsyncResult, Pool
from typing import Any

from tests.sim import jobs
from tests.sim.core_mutants import CORE_MUTANTS
from tests.sim.invariants import MEANING
from tests.sim.jobs import Outcome
from tests.sim.mutants import MUTANTS
from tests.sim.state_lives import STATE_MUTANTS

_CHUNK = 20_000
_CORE_CHUNK = 250
_STATE_CHUNK = 25
_CONTROLS = len(MUTANTS) + len(CORE_MUTANTS) + len(STATE_MUTANTS)
Job = tuple[str, Callable[..., Outcome], tuple[Any, ...]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Prove the tracking, and exact state.")
    parser.add_argument("--cases", type=int, default=1_000_000, help="random cases of the model (default 1,000,000)")
    parser.add_argument("--core-cases", type=int, default=2_000, help="random cases of real cores (default 2,000)")
    parser.add_argument("--state-cases", type=int, default=200, help="random lives with state (default 200)")
    parser.add_argument("--first", type=int, help="first seed (default: drawn anew each time, and printed)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, help="run one random case of the model again")
    parser.add_argument("--core-seed", type=int, help="run one random case of real cores again")
    parser.add_argument("--state-seed", type=int, help="run one random life with state again")
    return parser.parse_args()


def _jobs(arguments: argparse.Namespace, first: int) -> Iterator[Job]:
    for shape, faults in jobs.SEARCHES:
        yield "exhaustive", jobs.search, (shape, faults)
    for name, run, cases, chunk in (
        ("random", jobs.random_cases, arguments.cases, _CHUNK),
        ("cores", jobs.core_cases, arguments.core_cases, _CORE_CHUNK),
        ("state", jobs.state_cases, arguments.state_cases, _STATE_CHUNK),
    ):
        for begin in range(0, cases, chunk):
            yield name, run, (first + begin, min(chunk, cases - begin))
    for index in range(len(MUTANTS)):
        yield "mutants", jobs.mutant, (index,)
    for index in range(len(CORE_MUTANTS)):
        yield "mutants", jobs.core_mutant, (index,)
    for index in range(len(STATE_MUTANTS)):
        yield "mutants", jobs.state_mutant, (index,)


def _row(what: str, counted: str, secs: float) -> None:
    print(f"  {what:46} {counted:58} {secs:7.1f} s", flush=True)


def _report(part: str, results: list[AsyncResult[Outcome]]) -> list[Outcome]:
    """Print one part as it comes in; its outcomes."""
    outcomes = []
    for result in results:
        outcomes.append(result.get())
        if part in ("exhaustive", "mutants"):
            _row(outcomes[-1].what, outcomes[-1].counted, outcomes[-1].secs)
        elif sys.stderr.isatty():
            print(f"\r  {len(outcomes)} of {len(results)} parts", end="\r", file=sys.stderr, flush=True)
    if part in ("random", "cores", "state"):
        cases, secs = sum(outcome.cases for outcome in outcomes), sum(outcome.secs for outcome in outcomes)
        _row(part, f"{cases:,} cases, {cases / max(secs, 1e-9):,.0f} per second of a core", secs)
    return outcomes


_TITLES = {
    "exhaustive": "Every schedule of small trees (shape; faults in one schedule)",
    "random": "Seeded random schedules of the model",
    "cores": "Seeded random schedules of real worker cores, data planes and frames",
    "state": "Seeded random lives of state, windows and sinks: workers die, and commits fail, at any step",
    "mutants": "Negative controls (what is off; the invariant that broke)",
}


def _prove(pool: Pool, arguments: argparse.Namespace, first: int) -> list[Outcome]:
    results: dict[str, list[AsyncResult[Outcome]]] = {part: [] for part in _TITLES}
    for part, run, given in _jobs(arguments, first):
        results[part].append(pool.apply_async(run, given))
    outcomes = []
    for part, title in _TITLES.items():
        print(title)
        outcomes += _report(part, results[part])
    return outcomes


def _again(run: Callable[[int, int], Outcome], seed: int) -> int:
    outcome = run(seed, 1)
    print(outcome.wrong or f"{outcome.what} seed {seed}: every invariant holds")
    return 1 if outcome.wrong else 0


def main() -> int:
    """The exit code."""
    arguments = _arguments()
    if arguments.seed is not None:
        return _again(jobs.random_cases, arguments.seed)
    if arguments.core_seed is not None:
        return _again(jobs.core_cases, arguments.core_seed)
    if arguments.state_seed is not None:
        return _again(jobs.state_cases, arguments.state_seed)
    first = random.SystemRandom().getrandbits(40) if arguments.first is None else arguments.first
    began = time.perf_counter()
    print(f"first seed {first}, {arguments.processes} processes\nInvariants")
    for name, meaning in MEANING.items():
        print(f"  {name:24} {meaning}")
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        outcomes = _prove(pool, arguments, first)
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    for outcome in wrong:
        print(f"\nWRONG: {outcome.what}: {outcome.wrong}", file=sys.stderr)
    caught = _CONTROLS - sum(1 for outcome in wrong if outcome.counted.startswith("not"))
    print(
        f"{len(MEANING)} invariants, {len(wrong)} results that must not be; {caught} of {_CONTROLS} mutants caught; "
        f"{time.perf_counter() - began:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
