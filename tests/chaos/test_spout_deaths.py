"""A spout's worker that is killed, anywhere: nothing is lost, and no more is emitted again than was pending."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import AckedPrefix, Config, ReplayingSpout, TopologyBuilder, TopologyContext, run
from squall.scheduler.common.role import RoleKind
from tests.chaos.dying_python import dying_processes
from tests.process import parts
from tests.process.parts import note, notes

COUNT = 1000
PENDING = 32
MOST_EFFECTS = 1000
"""Of both workers: they send thousands."""


class Positioned(ReplayingSpout):
    """0 .. count-1; keeps the acked prefix, and what is acked beyond it, after each ack."""

    outputs = ("n",)

    def __init__(self, directory: str, count: int) -> None:
        self.directory = directory
        self.count = count

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.file = Path(context.state_dir) / "position"
        self.prefix = AckedPrefix(*json.loads(self.file.read_text())) if self.file.exists() else AckedPrefix()

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(self.prefix.committable, self.count):
            if not self.prefix.is_acked(n):
                note(self.directory, "read", n)
                yield n, (n,)

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        # First, so that a death between the two leaves no number that is acked and not noted.
        note(self.directory, "acked", message_id)
        self.prefix.ack(message_id)
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps([self.prefix.committable, self.prefix.beyond]))
        os.replace(fresh, self.file)


def test_nothing_is_lost_and_only_what_was_pending_is_emitted_again(tmp_path: Path, seed: int) -> None:
    nth = random.Random(seed).randint(1, MOST_EFFECTS)
    print(f"dies at effect {nth}")
    directory = str(tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("source", Positioned(directory, COUNT))
    builder.set_bolt("end", parts.Seen(directory), 2).shuffle_grouping("source")
    settings = Config(workers=2, message_timeout_secs=3600, max_spout_pending=PENDING)
    with dying_processes(tmp_path) as book:
        book.arm(RoleKind.WORKER, nth)
        report = run(builder.build(), settings)
    assert report.restarts
    assert (report.pending, report.timed_out) == (0, 0)
    assert {n for _, n in notes(directory, "seen")} == set(range(COUNT))
    assert set(notes(directory, "acked")) == set(range(COUNT))
    again = sum(count - 1 for count in Counter(notes(directory, "read")).values())
    # What failed because the other worker died waits for its back-off, and is unanswered beside what is pending.
    assert again <= PENDING * len(report.restarts)
