"""`make chaos`: the rows of `tests.chaos.who_dies` again and again, several rounds at a time.

A round is every row once, and two pairs of faults; the faults of a round are done to one cluster, one after the other.
Every row has a seed of its own, printed before it runs. After the first failure the other rounds under way end the row
that they are at; the run directory, what the bolts saw, and the traceback are kept.

    python -m tests.chaos --rounds 200
    python -m tests.chaos --row "supervisor+nimbus" --seed 4711    one row again, on a cluster of its own
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from itertools import combinations

from tests.chaos.rounds import LAUNCHER, LOST_NODE, Round, play_rounds
from tests.chaos.who_dies import FAULTS


def rows_of_a_round(rng: random.Random) -> list[str]:
    """Every row once, and two pairs. The cluster does not survive the last."""
    pairs = ["+".join(pair) for pair in rng.sample(list(combinations(FAULTS, 2)), 2)]
    return [*FAULTS, LAUNCHER, *pairs, LOST_NODE]


def make_round(number: int, seed: int, row: str | None) -> Round:
    """All rows, or `row` alone with the round's own seed."""
    if row is not None:
        return Round(number, seed, [(row, seed)])
    rng = random.Random(seed)
    return Round(number, seed, [(name, rng.getrandbits(32)) for name in rows_of_a_round(rng)])


def row_name(text: str) -> str:
    """Of the command line."""
    if text in (LAUNCHER, LOST_NODE) or all(name in FAULTS for name in text.split("+")):
        return text
    names = ", ".join([*FAULTS, LAUNCHER, LOST_NODE])
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: {names}, and faults joined by +")


def positive(text: str) -> int:
    """Of the command line."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: an integer from 1 up")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Who dies, what happens, many times.")
    parser.add_argument("--rounds", type=positive, default=200, help="how often all rows are run (default 200)")
    parser.add_argument("--jobs", type=positive, default=2, help="rounds at a time, a cluster each (default 2)")
    parser.add_argument("--seed", type=int, help="of the first round (default: drawn anew, and printed)")
    parser.add_argument("--row", type=row_name, help="only this row, with --seed as its seed; faults are joined by +")
    options = parser.parse_args()
    first = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    rounds = [make_round(number + 1, first + number, options.row) for number in range(options.rounds)]
    began = time.monotonic()
    done = play_rounds(rounds, options.jobs)
    secs = time.monotonic() - began
    if done < len(rounds):
        print(f"FAILED after {done} rounds in {secs:.0f} s; first seed {first}")
        return 1
    rows = sum(len(played.rows) for played in rounds)
    print(f"{rows} rows in {secs:.0f} s, {secs / len(rounds):.1f} s a round, all well; first seed {first}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
