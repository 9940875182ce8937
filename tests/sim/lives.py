"""Simulated lives of whole clusters, as many as are asked for: `python -m tests.sim.lives --seeds 10000`.

By default those of daemons alone; with `--joined` those in which workers and store are the product's. `--seed 4711`
runs one again, and prints its history if it breaks something.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.sim.cluster_life import THE_PRODUCT, LifeParts, first_broken, shortest
from tests.sim.joined_life import JOINED

_AT_ONCE = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.lives", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--joined", action="store_true")
    options = parser.parse_args()
    parts = JOINED if options.joined else THE_PRODUCT
    if options.seed is not None:
        return _show(options.seed, parts)
    first, began = random.SystemRandom().randrange(10**9), time.monotonic()
    print(f"{options.seeds:,} lives from seed {first} on", flush=True)
    ranges = [range(start, start + _AT_ONCE) for start in range(first, first + options.seeds, _AT_ONCE)]
    with ProcessPoolExecutor() as pool:
        for broken in filter(None, pool.map(partial(first_broken, parts=parts), ranges)):
            pool.shutdown(cancel_futures=True)
            return _show(broken[0], parts)
    print(f"every invariant holds; {60 * options.seeds / (time.monotonic() - began):,.0f} lives a minute")
    return 0


def _show(seed: int, parts: LifeParts) -> int:
    broken = shortest(seed, parts)
    print("\n".join(broken.lines) if broken else "every invariant holds")
    print(f"seed {seed}: {broken or parts.life(seed, parts).run()}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
