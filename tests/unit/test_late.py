"""Late tuples: their stream needs no declaration, operators have one too, and what is dropped is seen."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from squall import JoinBolt, StreamBuilder, Topology, TopologyBuilder, TopologyError, UsageError, bolt, tumbling
from squall.cli.report_text import count_lines
from squall.cli.running.run import run_command
from squall.engine.api.user_metrics import UserMetrics
from squall.engine.report.run_report import RunReport, build_report
from squall.scheduler.client.statuses import StandingTime
from squall.testing import complete_topology
from squall.ui.pages.topology_page import hint_of
from tests.unit.test_window_rules import Phases
from tests.unit.test_windows import Shows
from tests.unit.wired import wired

ROWS = [("a", 10, 0), ("a", 40, 1)], [("a", 11, 2)]
"""The last is late."""


def by_second(made: Any) -> Any:
    return made.with_tumbling_window(secs=1).with_timestamp_field("at")


def late_of_late() -> Topology:
    """Windows of what was late for other windows, with their reader declared before them."""
    builder = TopologyBuilder()
    builder.set_bolt("show", bolt(lambda tup: None)).shuffle_grouping("windows", stream="late")
    again = by_second(Shows()).with_late_stream("very late")
    builder.set_bolt("again", again).fields_grouping("windows", "k", stream="late")
    builder.set_bolt("last", bolt(lambda tup: None)).fields_grouping("again", "n", stream="very late")
    builder.set_bolt("windows", by_second(Shows()).with_late_stream("late")).global_grouping("events")
    builder.set_spout("events", Phases(*ROWS))
    return builder.build()


def test_a_late_stream_needs_no_declaration() -> None:
    found = complete_topology(late_of_late())
    assert [(row[1], row[3]) for row in found["again"]] == [(11, [2])]
    assert found["windows/late"] == [("a", 11, 2)]


@pytest.mark.parametrize("stream", ["", "a\nb", 5])
def test_a_late_stream_has_a_name(stream: Any) -> None:
    with pytest.raises(UsageError, match="with_late_stream of Shows: a stream name"):
        by_second(Shows()).with_late_stream(stream)


def test_inputs_of_different_fields_have_no_late_stream() -> None:
    builder = TopologyBuilder()
    builder.set_spout("events", Phases())
    builder.set_spout("others", Phases())
    builder.set_bolt("other", bolt("k", "at", "m")(lambda tup: None)).shuffle_grouping("others")
    join = by_second(JoinBolt("events", "k").join("other", "k", prior="events").select("n", "m"))
    builder.set_bolt("join", join.with_late_stream("late")).global_grouping("events").global_grouping("other")
    with pytest.raises(TopologyError, match="inputs of different fields, so late tuples have no stream 'late'"):
        builder.build()


def test_operators_give_the_stream_of_late_tuples() -> None:
    builder = StreamBuilder()
    window = tumbling(secs=1, by="at", idle_timeout_secs=2, max_ahead_secs=3)
    assert (window.idle, window.max_ahead) == (2 * 10**9, 3 * 10**9)
    counts = builder.source("events", Phases(*ROWS)).key_by("k").window(window).count()
    counts.to(lambda tup: None)
    counts.late().map(lambda tup: (tup["n"], tup["k"]), "n", "k", name="shown").to(lambda tup: None)
    found = complete_topology(builder.build())
    assert found["count"] == [("a", 1, 10, 11), ("a", 1, 40, 41)]
    assert found["shown"] == [(2, "a")]


def report_of(counters: dict[str, int]) -> RunReport:
    metrics = UserMetrics()
    for task, (name, count) in enumerate(counters.items(), start=1):
        metrics.counter("windows", task, f"{name} tuples").inc(count)
        metrics.counter("more", task, f"{name} tuples").inc(count)
    metrics.histogram("other", 9, "late tuples").update(1)
    return build_report("t", [], 1.0, [], True, metrics=metrics.readings())


def test_the_report_sums_what_was_late_and_ahead() -> None:
    report = report_of({"late": 5, "dropped late": 3, "ahead": 1000})
    assert (report.late, report.late_dropped, report.ahead) == (10, 6, 2000)
    dropped, late, ahead = count_lines(report)
    assert dropped.startswith("6 late tuples were dropped (3 in more, 3 in windows): ")
    assert late == "10 tuples were late (5 in more, 5 in windows)"
    assert ahead.startswith("2,000 tuples were too far ahead of the clock to move event time (1,000 in more, ")
    assert not list(count_lines(report_of({})))


def test_the_report_says_that_a_source_counts_at_least_once() -> None:
    metrics = UserMetrics()
    metrics.gauge("in", 1, "counts at least once", lambda: 1)
    report = build_report("t", [], 1.0, [], True, metrics=metrics.readings())
    [line] = count_lines(report)
    assert line.startswith("in counts at least once: ")


def test_the_page_says_what_was_late_and_ahead() -> None:
    hint, tone = hint_of(Mock(
        why_stopped="", given_up=[], workers=[Mock(state="ready")], faults=[], dead_letters=0, components={}, recent={},
        late_dropped=1, ahead=2,
        event_time={"one": StandingTime(None, 75, "in", "", 0), "new": StandingTime(None, 9, "", "", 0)},
    ))
    assert tone == "bad"
    assert hint == (
        "1 late tuple was dropped by windows. 2 tuples were too far ahead of the clock to move event time. "
        "Windows: event time of one has not begun for 75 s: waits for in."
    )


def dropping() -> Topology:
    """For the command line."""
    return wired(events=(Phases(*ROWS), 1), windows=(by_second(Shows()), 1, "global events")).build()


def keeping() -> Topology:
    """For the command line."""
    return late_of_late()


@pytest.mark.parametrize(("target", "fails", "code"), [
    ("dropping", ["--set", "fail_on_late=true"], 1), ("dropping", [], 0),
    ("keeping", ["--set", "fail_on_late=true"], 0),
])
def test_a_run_that_shall_drop_nothing_late_ends_with_1(target: str, fails: list[str], code: int) -> None:
    run = CliRunner().invoke(run_command, [f"{__file__}:{target}", "--local", *fails], catch_exceptions=False)
    assert run.exit_code == code
    for text in (run.stderr, run.stdout):
        assert ("1 late tuple was dropped (1 in windows)" in text) == (target == "dropping")
    assert ("1 tuple was late (1 in windows)" in run.stdout) == (target == "keeping")
