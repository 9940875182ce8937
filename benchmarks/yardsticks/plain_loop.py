"""The word count as a loop in one process: what the interpreter can do when nothing is sent, tracked or spread."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.measured import Measured


def run(corpus: Corpus, workers: int, repeat: int) -> Measured:
    from benchmarks.yardsticks.apart import run_apart

    return run_apart("plain_loop", corpus, workers, repeat)


def main(path: str, repeat: int) -> None:
    lines = Path(path).read_text(encoding="utf-8").split("\n") * repeat
    counts: dict[str, int] = {}
    began = time.perf_counter()
    for line in lines:
        for word in line.split():
            counts[word] = counts.get(word, 0) + 1
    secs = time.perf_counter() - began
    print(json.dumps((secs, len(lines), sum(counts.values()))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[3]))
