"""Simulated lives of whole clusters, as many as are asked for: `python -m tests.sim.lives --seeds 10000`."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.sim.cluster_life import ClusterLife, first_broken, shortest

_AT_ONCE = 50


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.lives",
        description="Let clusters live, break and heal in simulated time, and see what must hold, hold.",
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="how many lives (default 10,000)")
    parser.add_argument("--first", type=int, help="first seed (default: drawn anew each time, and printed)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="run one life again, and print its history if it breaks something")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _show(options.seed)
    first = random.SystemRandom().randrange(10**9) if options.first is None else options.first
    print(f"{options.seeds:,} lives from seed {first} on", flush=True)
    began = time.monotonic()
    starts = range(first, first + options.seeds, _AT_ONCE)
    with ProcessPoolExecutor(options.processes) as pool:
        for seed in pool.map(_first_bad, [range(s, min(s + _AT_ONCE, first + options.seeds)) for s in starts]):
            if seed is not None:
                pool.shutdown(cancel_futures=True)
                return _show(seed)
    secs = time.monotonic() - began
    print(f"every invariant holds; {60 * options.seeds / secs:,.0f} lives a minute")
    return 0


def _first_bad(seeds: range) -> int | None:
    broken = first_broken(seeds)
    return None if broken is None else broken[0]


def _show(seed: int) -> int:
    broken = shortest(seed)
    if broken is None:
        life = ClusterLife(seed)
        print(f"seed {seed}: every invariant holds; trace {life.run()}, {len(life.machine.lines)} lines")
        return 0
    print("\n".join(broken.lines))
    print(f"seed {seed}: {broken.error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
