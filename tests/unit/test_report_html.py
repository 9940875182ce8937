"""The report as a notebook shows it."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from typing import Any

from squall import bolt, spout
from squall.engine.api.builder import TopologyBuilder
from squall.engine.core.local import LocalRunner
from squall.engine.report.html import report_html
from squall.engine.report.run_report import Restart, RunReport
from squall.scheduler.common.blob import copy_component

HOSTILE = "<script>alert('\x1b[31m')</script>&\u202e"


def report() -> RunReport:
    @spout("n")
    def numbers() -> range:
        return range(1500)

    @bolt
    def sink(tup: Any) -> None: ...

    builder = TopologyBuilder()
    builder.set_spout("numbers", numbers)
    builder.set_bolt("sink", sink).shuffle_grouping("numbers")
    with LocalRunner(builder.build(), name="shown", copy=copy_component) as runner:
        return runner.run()


class Reader(HTMLParser):
    """Tags that are open must be closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def test_counts_and_components_are_there() -> None:
    made = report()
    shown = read(made._repr_html_())
    assert "".join(shown.texts).startswith("shown drained after")
    assert any("1,500 emitted (0 replayed) = 1,500 acked, 0 failed, 0 dead letters" in text for text in shown.texts)
    assert {"numbers", "sink", "capacity"} <= set(shown.texts)
    assert "died at s" not in shown.texts


def test_texts_of_users_are_no_markup() -> None:
    made = report()
    hostile = dataclasses.replace(
        made, topology=HOSTILE, components={HOSTILE: made.components["sink"]}, close_errors=[HOSTILE],
        restarts=[Restart(HOSTILE, HOSTILE, 1.0, None)] * 50,
    )
    html = report_html(hostile)
    shown = read(html)
    assert shown.tags == {"div", "b", "br", "table", "tr", "th", "td"}
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert html.count("&lt;script&gt;") == 3 + 2 * 20, "the newest twenty deaths"


def test_nothing_acked_is_said() -> None:
    empty = dataclasses.replace(report(), latency_ms={"p50": None, "max": None})  # type: ignore[arg-type]
    assert "emit to ack: nothing was acked" in report_html(empty)
