"""`python -m benchmarks [PART...]`: measures Squall beside its yardsticks, each several times in turn, on this machine.

Takes nine minutes, and should have the machine to itself; `--quick` takes one. Storm has a program of its own,
`python -m benchmarks.storm`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from benchmarks.effort import FULL, QUICK, Effort
from benchmarks.parts import (
    adoptions,
    balance,
    latencies,
    memory,
    recoveries,
    scale,
    shapes,
    starts,
    state_stores,
    states,
    values,
    watched,
    word_counts,
)
from benchmarks.publish import publish
from benchmarks.results import Part
from benchmarks.rounds import say

PARTS: dict[str, Callable[[Effort], Part]] = {
    "throughput": word_counts.measure,
    "shapes": shapes.measure,
    "latency": latencies.measure,
    "balance": balance.measure_part,
    "payloads": values.measure,
    "start": starts.measure,
    "state": states.measure,
    "stores": state_stores.measure,
    "watched": watched.measure,
    "recovery": recoveries.measure,
    "adoption": adoptions.measure,
    "scale": scale.measure,
    "memory": memory.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="PART", help=f"measure these alone: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="one short round of what starts fast: a minute")
    parser.add_argument("--rounds", type=int, help="rounds of all yardsticks in turn (default 3, quick 1)")
    parser.add_argument("--kills", type=int, help="workers killed to measure recovery")
    parser.add_argument("--daemon-kills", type=int, help="times that supervisor and Nimbus are killed each")
    parser.add_argument("--no-write", action="store_true", help="print only; leave results, RESULTS.md and figures")
    options = parser.parse_args()
    for name in options.only:
        if name not in PARTS:
            parser.error(f"there is no part {name!r}: {', '.join(PARTS)}")
    asked = {name: getattr(options, name) for name in ("rounds", "kills", "daemon_kills")}
    for name, value in asked.items():
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}, and must be at least 1")
    effort = replace(
        QUICK if options.quick else FULL, **{name: value for name, value in asked.items() if value is not None}
    )
    # What runs in sessions of their own would outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.quick:
        print("One short run of each: a first impression, no medians.\n")
    first = time.monotonic()
    for name in options.only or PARTS:
        began = time.monotonic()
        found = PARTS[name](effort)
        found.command = "make bench-quick" if options.quick else found.command
        say(f"-- {name}: {time.monotonic() - began:.0f} s")
        # At once: a later part may fail.
        publish({name: found}, write=not options.no_write)
    say(f"-- in all: {time.monotonic() - first:.0f} s")


if __name__ == "__main__":
    main()
