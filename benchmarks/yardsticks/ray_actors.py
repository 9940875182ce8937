"""The word count by Ray actors: a splitter sends lists of words to each counter, by method calls; nothing tracked.

At its best setting: calls of many lines, as few as possible waited for, and the text in the splitter that reads it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.measured import Measured

LINES_A_CALL = 1024
CALLS_OPEN = 16


def run(corpus: Corpus, workers: int, repeat: int) -> Measured:
    from benchmarks.yardsticks.apart import need, run_apart

    return run_apart("ray_actors", corpus, workers, repeat, need("ray"))


def main(path: str, workers: int, repeat: int) -> None:
    # Ray's processes inherit it: one word has one counter.
    os.environ["PYTHONHASHSEED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    ray.init(num_cpus=2 * workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

    @ray.remote
    class Count:
        def __init__(self) -> None:
            self.counts: dict[str, int] = {}

        def add(self, words: list[str]) -> None:
            counts = self.counts
            for word in words:
                counts[word] = counts.get(word, 0) + 1

        def total(self) -> int:
            return sum(self.counts.values())

    @ray.remote
    class Split:
        def __init__(self, path: str, index: int, counters: list[Any]) -> None:
            self.lines = Path(path).read_text(encoding="utf-8").split("\n")[index::workers] * repeat
            self.counters = counters

        def ready(self) -> int:
            return len(self.lines)

        def go(self) -> None:
            many = len(self.counters)
            waiting: list[Any] = []
            for begin in range(0, len(self.lines), LINES_A_CALL):
                parts: list[list[str]] = [[] for _ in self.counters]
                for line in self.lines[begin : begin + LINES_A_CALL]:
                    for word in line.split():
                        parts[hash(word) % many].append(word)
                waiting += [counter.add.remote(part) for counter, part in zip(self.counters, parts, strict=True)]
                if len(waiting) > CALLS_OPEN:
                    _, waiting = ray.wait(waiting, num_returns=len(waiting) - CALLS_OPEN)
            ray.get(waiting)

    remote_count: Any = Count
    remote_split: Any = Split
    counters = [remote_count.remote() for _ in range(workers)]
    splitters = [remote_split.remote(path, index, counters) for index in range(workers)]
    lines = sum(ray.get([splitter.ready.remote() for splitter in splitters]))
    ray.get([counter.total.remote() for counter in counters])
    began = time.perf_counter()
    ray.get([splitter.go.remote() for splitter in splitters])
    secs = time.perf_counter() - began
    words = sum(ray.get([counter.total.remote() for counter in counters]))
    ray.shutdown()
    print(json.dumps((secs, lines, words)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
