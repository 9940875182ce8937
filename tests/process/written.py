"""What a ParquetSink of another process writes, read while it does."""

from __future__ import annotations

from pathlib import Path

from pyarrow import parquet


class Written:
    """What the sink has written, read as it comes. A file that can be seen can be read, whoever is killed."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seen: set[Path] = set()
        self.texts: list[str] = []

    def look(self) -> list[str]:
        for path in set(self._out.glob("*.parquet")) - self._seen:
            self.texts += parquet.read_table(path)["text"].to_pylist()
            self._seen.add(path)
        return self.texts
