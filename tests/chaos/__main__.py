"""`make chaos`: the rows of `tests.chaos.who_dies` again and again, each on a cluster of its own.

Every row has a seed of its own, printed before it runs. The first failure ends it: the run directory, what the bolts
saw, and the traceback are kept.

    python -m tests.chaos --rounds 200
    python -m tests.chaos --row "supervisor+nimbus" --seed 4711    one row again
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from tests.chaos.store_crash import crash_nimbus_at_random
from tests.chaos.who_dies import FAULTS, lose_launcher, lose_node, run_row
from tests.process.standing_tools import Standing, directory

LAUNCHER, LOST_NODE, STORE = "launcher", "lost node", "store"
CRASHES = 5


def rows_of_a_round(rng: random.Random) -> Iterator[str]:
    """Every row once, and two pairs."""
    yield from FAULTS
    yield from (LAUNCHER, LOST_NODE, STORE)
    yield from ("+".join(pair) for pair in rng.sample(list(combinations(FAULTS, 2)), 2))


def run(row: str, seed: int, keep: Path) -> bool:
    """Whether it went well; otherwise what is left of it is in `keep`."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, directory() as cluster:
        out = Path(name)
        try:
            play(row, seed, cluster, out)
        except (Exception, KeyboardInterrupt):
            keep.mkdir(parents=True)
            (keep / "traceback.txt").write_text(traceback.format_exc())
            shutil.copytree(out, keep / "out")
            if cluster.path.exists():
                # Sockets cannot be copied.
                shutil.copytree(cluster.path, keep / "run", ignore=shutil.ignore_patterns("*.sock", "s"))
            traceback.print_exc()
            return False
    return True


def play(row: str, seed: int, cluster: Standing, out: Path) -> None:
    if row == LAUNCHER:
        lose_launcher(out, random.Random(seed))
    elif row == LOST_NODE:
        lose_node(cluster, out, seed)
    elif row == STORE:
        crash_nimbus_at_random(random.Random(seed), CRASHES)
    else:
        run_row(cluster, out, row.split("+"), seed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Who dies, what happens, many times.")
    parser.add_argument("--rounds", type=int, default=200, help="how often all rows are run (default 200)")
    parser.add_argument("--seed", type=int, help="of the first round (default: drawn anew, and printed)")
    parser.add_argument("--row", help="only this row, with --seed as its seed; two faults at once are joined by +")
    options = parser.parse_args()
    first = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    began = time.monotonic()
    done = 0
    with tempfile.TemporaryDirectory(prefix="sq-") as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        for number in range(1, options.rounds + 1):
            rng = random.Random(first + number - 1)
            print(f"round {number} of {options.rounds}, seed {first + number - 1}", flush=True)
            for row in [options.row] if options.row else rows_of_a_round(rng):
                seed = first + number - 1 if options.row else rng.getrandbits(32)
                print(f"  {row}, seed {seed}", flush=True)
                keep = Path("build") / "chaos" / f"{row.replace(' ', '-')}-{seed}-{time.time_ns()}"
                if not run(row, seed, keep):
                    print(f"FAILED after {done} rows: {row}, seed {seed}; kept in {keep}")
                    print(f'again: python -m tests.chaos --rounds 1 --row "{row}" --seed {seed}')
                    return 1
                done += 1
    print(f"{done} rows in {time.monotonic() - began:.0f} s, all well; first seed {first}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
