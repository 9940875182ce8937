"""Simulated lives of whole clusters, as many as are asked for: `python -m tests.sim.lives --seeds 10000`.

By default those of daemons alone; with `--joined` those in which workers and store are the product's.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.cluster_life import THE_PRODUCT, LifeParts, first_broken, shortest
from tests.sim.joined_life import JOINED

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
    parser.add_argument("--joined", action="store_true", help="with workers that are real, and with the real store")
    options = parser.parse_args(arguments)
    parts = JOINED if options.joined else THE_PRODUCT
    if options.seed is not None:
        return _show(options.seed, parts)
    first = random.SystemRandom().randrange(10**9) if options.first is None else options.first
    what = "joined lives" if options.joined else "lives"
    print(f"{options.seeds:,} {what} from seed {first} on", flush=True)
    began = time.monotonic()
    starts = range(first, first + options.seeds, _AT_ONCE)
    with ProcessPoolExecutor(options.processes) as pool:
        ranges = [range(s, min(s + _AT_ONCE, first + options.seeds)) for s in starts]
        for seed in pool.map(partial(_first_bad, parts=parts), ranges):
            if seed is not None:
                pool.shutdown(cancel_futures=True)
                return _show(seed, parts)
    secs = time.monotonic() - began
    print(f"every invariant holds; {60 * options.seeds / secs:,.0f} {what} a minute")
    return 0


def _first_bad(seeds: range, parts: LifeParts) -> int | None:
    broken = first_broken(seeds, parts)
    return None if broken is None else broken[0]


def _show(seed: int, parts: LifeParts) -> int:
    broken = shortest(seed, parts)
    if broken is None:
        life = parts.life(seed, parts)
        print(f"seed {seed}: every invariant holds; trace {life.run()}, {len(life.machine.lines)} lines")
        return 0
    print("\n".join(broken.lines))
    print(f"seed {seed}: {broken.error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
