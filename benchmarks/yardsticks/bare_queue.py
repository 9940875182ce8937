"""The word count over a `multiprocessing.Queue`: one process splits, one counts; 512 words a put, nothing tracked.

On two processes; more would share the two ends of one pipe.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.measured import Measured

WORDS_A_PUT = 512


def run(corpus: Corpus, workers: int, repeat: int) -> Measured:
    from benchmarks.yardsticks.apart import run_apart

    return run_apart("bare_queue", corpus, workers, repeat)


def _split(lines: list[str], queue: Any) -> None:
    words: list[str] = []
    for line in lines:
        words += line.split()
        if len(words) >= WORDS_A_PUT:
            queue.put(words)
            words = []
    queue.put(words)
    queue.put(None)


def main(path: str, repeat: int) -> None:
    lines = Path(path).read_text(encoding="utf-8").split("\n") * repeat
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue(maxsize=64)
    counts: Counter[str] = Counter()
    began = time.perf_counter()
    splitting = context.Process(target=_split, args=(lines, queue))
    splitting.start()
    while (words := queue.get()) is not None:
        counts.update(words)
    secs = time.perf_counter() - began
    splitting.join()
    print(json.dumps((secs, len(lines), counts.total())))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[3]))
