"""`squall prepare --follow`: what arrives in a directory is in the feed, once, and a signal ends it in order."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from squall.pipeline.feed.sources import ParquetSource, open_feed
from tests.process.waiting import wait_for

ROOT = Path(__file__).parents[2]
DEADLINE_SECS = 300.0


class Tail:
    """The lines of a feed, as a spout that follows it finds them."""

    def __init__(self, feed: Path) -> None:
        self._feed = feed
        self._source: ParquetSource | None = None
        self.texts: Counter[str] = Counter()

    def look(self) -> Counter[str]:
        if self._source is None and (self._feed / "_feed.json").exists():
            self._source = open_feed(self._feed, ("text",), follow=True)
        for part in self._source.find() if self._source else ():
            reader = self._source.open(part) if self._source else None
            assert reader is not None
            self.texts.update(text for columns in reader.read(0, part.rows) for text in columns[0])
            reader.close()
        return self.texts


@pytest.mark.nightly
@pytest.mark.timeout(1000)
def test_what_arrives_is_prepared_until_a_signal(source: Path, tmp_path: Path) -> None:
    feed, log = tmp_path / "feed", source / "a.log"
    log.write_text("a\nb\nhalf")
    tail = Tail(feed)
    command = [sys.executable, "-m", "squall", "prepare", str(source), "--out", str(feed), "--follow", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_for("the lines that have an end", lambda: tail.look() == Counter("ab"), DEADLINE_SECS)
            with log.open("a") as file:
                file.write(" of it\nc\n")
            wait_for("the lines since then", lambda: tail.look()["c"], DEADLINE_SECS)
            (source / ".d.gz").write_bytes(gzip.compress(b"d\ne\n"))
            os.replace(source / ".d.gz", source / "d.gz")
            wait_for("the lines of a new file", lambda: tail.look()["e"], DEADLINE_SECS)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=DEADLINE_SECS)
        finally:
            process.kill()
    assert process.returncode == 0, err.decode()
    assert tail.texts == Counter([*"abcde", "half of it"])
    document = json.loads(out)
    assert (document["rows"], document["added_rows"], document["files"]) == (6, 6, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["feed", "in put"]
