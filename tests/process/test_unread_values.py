"""A value that nobody can send, read or hold is its own message's failure: one dead letter, all else acked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from squall import Config, RunReport
from squall.scheduler.records.dead_letters import DeadLetters
from tests.process.conftest import SharedCluster
from tests.process.unread_parts import (
    COUNT,
    VICTIM,
    HugeWhenReceived,
    HugeWhenSent,
    OneIsBad,
    Unreadable,
    Unsendable,
    Untracked,
    checks,
)
from tests.unit.wired import wired

MIB = 1 << 20


def report_of(cluster: SharedCluster, source: Any, **settings: Any) -> RunReport:
    """The bolt's only task is in another worker than the spout's."""
    builder = wired(source=(source, 1), zink=(checks, 1, "fields source n"))
    return cluster.run(builder.build(), Config(workers=2, ackers=1, message_timeout_secs=3600, **settings))


@pytest.mark.parametrize(("make", "settings", "who", "told"), [
    (Unreadable, {}, "zink", ("SystemExit: not this one", "reading field data of stream default of source[")),
    (Unsendable, {"on_error": "fail"}, "source", ("SystemExit: not this one",)),
    (HugeWhenSent, {"on_error": "fail"}, "source", ("MemoryError",)),
    (partial(bytes, 20 * MIB), {"on_error": "fail", "max_frame_bytes": 16 * MIB, "arena_bytes": 0}, "source",
     ("frame of 2097", "max_frame_bytes allows 16777216")),
], ids=["unreadable", "unsendable", "huge", "too long"])  # fmt: skip
def test_it_is_one_dead_letter(
    shared_cluster: SharedCluster, make: Callable[[], Any], settings: dict[str, Any], who: str, told: tuple[str, ...]
) -> None:
    report = report_of(shared_cluster, OneIsBad(make), **settings)
    counted = report.acked, report.failed, report.timed_out, report.dead_letters, report.waiting, report.pending
    assert (counted, report.restarts) == ((COUNT - 1, 4, 0, 1, 0, 0), [])
    letter = DeadLetters(shared_cluster.run_dir.topology_state("run")).read()[-1]
    assert (letter.message_id, letter.reason, letter.component) == (str(VICTIM), "exception", who)
    assert letter.attempt == 5
    assert all(text in letter.error for text in told), letter.error


def test_one_that_there_is_memory_for_at_the_second_try_is_read_then(
    shared_cluster: SharedCluster, tmp_path: Path
) -> None:
    report = report_of(shared_cluster, OneIsBad(partial(HugeWhenReceived, tmp_path / "mark")), on_error="fail")
    assert (report.acked, report.failed, report.restarts, report.links["refused"]) == (COUNT, 0, [], 0)


def test_without_message_ids_it_is_dropped_and_counted(shared_cluster: SharedCluster) -> None:
    report = report_of(shared_cluster, Untracked(Unreadable), on_error="fail")
    assert astuple(report.untracked) == (COUNT, COUNT - 1, 1, 0, 0)
    assert (report.untracked_emitted, report.emitted, report.restarts) == (COUNT, 0, [])
