"""What sinks of other processes have written."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pyarrow import parquet


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that may be written just now: without the last one if it has no end yet."""
    return path.read_text().rpartition("\n")[0].splitlines()


def written(directory: Path) -> list[Any]:
    """The rows of a FileSink, in order by file."""
    return [json.loads(line) for path in directory.iterdir() for line in whole_lines(path)]


def word_counts(out: Path) -> dict[str, int]:
    """The largest count of each word that examples/word_count.py has written."""
    return dict(sorted((row["word"], row["count"]) for row in written(out / "counts")))


class Written:
    """What a ParquetSink writes, read as it comes. A file that can be seen can be read, whoever is killed."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seen: set[Path] = set()
        self.texts: Counter[str] = Counter()

    def look(self) -> Counter[str]:
        for path in set(self._out.glob("*.parquet")) - self._seen:
            self.texts.update(parquet.read_table(path)["text"].to_pylist())
            self._seen.add(path)
        return self.texts
