"""Visits: the clicks of a user without a pause of half an hour, from a stream of clicks.

    squall run examples/click_sessions.py --workers 2 -- RESULT

RESULT gets a line of JSON for each visit, exactly once, whatever is killed: user, pages, first page, start and end.
"""

from __future__ import annotations

from typing import Any

from squall import BasicCollector, FileSink, Topology, TopologyBuilder, Tuple, UsageError, Window, WindowedBolt, spout

CLICKS, USERS, GAP_SECS = 20_000, 50, 1800


@spout("user", "page", "at")
def clicks(start: int) -> Any:
    for number in range(start, CLICKS):
        pause_secs = 2400 * (number // 1000)
        yield f"user-{number * number % USERS}", f"page-{number % 7}", number * 2.0 + pause_secs


class Visits(WindowedBolt):
    """Keeps the number of pages and the first one, and not the clicks."""

    outputs = ("user", "pages", "first", "start", "end")

    def fold(self, visit: Any, click: Tuple) -> tuple[int, str]:
        return (visit[0] + 1, visit[1]) if visit else (1, click["page"])

    def merge(self, one: Any, later: Any) -> tuple[int, str]:
        return one[0] + later[0], one[1]

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        collector.emit((window.key, *window.value, window.start, window.end - GAP_SECS))


def topology(args: list[str]) -> Topology:
    if len(args) != 1:
        raise UsageError("click_sessions.py needs one directory for its result; e.g. -- build/visits")
    visits = Visits().with_session_window(gap_secs=GAP_SECS).with_key("user").with_timestamp_field("at")
    builder = TopologyBuilder()
    builder.set_spout("clicks", clicks)
    builder.set_bolt("visits", visits, parallelism=2).fields_grouping("clicks", "user")
    builder.set_bolt("result", FileSink(args[0])).global_grouping("visits")
    return builder.build()
