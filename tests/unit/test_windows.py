"""Windows, joins and operators in simulated time: what each window holds, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from squall import (
    BasicCollector,
    Config,
    FailedTuple,
    JoinBolt,
    StreamBuilder,
    TopologyError,
    Tuple,
    UsageError,
    Window,
    WindowedBolt,
    session,
    sliding,
    spout,
    tumbling,
)
from squall.testing import complete_topology
from tests.unit.wired import wired


class Shows(WindowedBolt):
    outputs = ("key", "start", "end", "got", "new", "expired")

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        parts = [[tup["n"] for tup in tuples] for tuples in (window.get(), window.new(), window.expired())]
        collector.emit((window.key, window.start, window.end, *parts))


class Moody(Shows):
    failures = 0

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        super().execute_window(window, collector)
        if window.key == "b" and self.failures < 3:
            self.failures += 1
            raise FailedTuple("not now") if self.failures % 2 else ValueError("not now")


def windows_of(bolt: WindowedBolt, events: list[tuple[Any, ...]], **settings: Any) -> dict[str, list[Any]]:
    """What a bolt makes of events of (key, at, n)."""
    builder = wired(events=(spout("k", "at", "n")(lambda: events), 1), bolt=(bolt, 1, "global events"))
    return complete_topology(builder.build(), config=Config(**settings))


def test_a_window_that_fails_is_tried_again_and_holds_up_no_other() -> None:
    events = [(key, 0, n) for n, key in enumerate("abcab")]
    shown = windows_of(Moody().with_tumbling_window(count=100).with_key("k"), events, on_error="fail")["bolt"]
    assert sorted((row[0], row[3]) for row in shown) == [("a", [0, 3]), ("b", [1, 4]), ("c", [2])]
    assert shown[-1][0] == "b"


def windowed(declare: Callable[[WindowedBolt], Any], bolt: type[WindowedBolt] = Shows) -> Callable[[], Any]:
    return lambda: windows_of(declare(bolt()), [])


def no_events() -> list[Any]:
    return []


class Folds(Shows):
    def fold(self, so_far: Any, tup: Tuple) -> Any:
        return tup


def joined(join: JoinBolt) -> Any:
    events, others = spout("k", "at", "n")(no_events), spout("k", "x")(no_events)
    return wired(events=(events, 1), others=(others, 1), join=(join, 1, "global events", "global others")).build()


def stream(events: Callable[[], list[Any]] = no_events) -> Any:
    return StreamBuilder().source("events", spout("k", "at", "n")(events))


@pytest.mark.parametrize(("wrong", "why"), [
    (windowed(lambda bolt: bolt), "has no window"),
    (windowed(lambda bolt: bolt.with_tumbling_window(count=1).with_timestamp_field("at")), "by count and a timestamp"),

    (windowed(lambda bolt: bolt.with_tumbling_window(secs=1).with_lag(secs=1)), "without with_timestamp_field"),
    (windowed(lambda bolt: bolt.with_tumbling_window(secs=1).with_late_stream("l")), "without with_timestamp_field"),
    (windowed(lambda bolt: bolt.with_session_window(gap_secs=1).with_idle_timeout(secs=1)),
     "with_idle_timeout or with_max_ahead without"),
    (windowed(lambda bolt: bolt.with_session_window(gap_secs=1).with_max_ahead(secs=1)), "or with_max_ahead without"),
    (windowed(lambda bolt: bolt.with_tumbling_window(secs=1).with_key("no")), "needs field 'no'"),
    (windowed(lambda bolt: bolt.with_session_window(gap_secs=1), Folds), "defines fold and no merge"),
    (windowed(lambda bolt: bolt.with_tumbling_window(secs=1), WindowedBolt), "defines no execute_window"),
    (lambda: joined(JoinBolt("events", "k").with_tumbling_window(secs=1)), "joins events and reads events, others"),
    (lambda: joined(JoinBolt("events", "k").join("others", "k", "events").select("y").with_tumbling_window(secs=1)),
     "selects field 'y', which none of its inputs has"),
])
def test_build_names_what_is_wrong(wrong: Callable[[], Any], why: str) -> None:
    with pytest.raises(TopologyError, match=why) as error:
        wrong()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("wrong", "why"), [
    (lambda: Shows().with_tumbling_window(secs=1, count=1), "both by time or both by count"),
    (lambda: Shows().with_sliding_window(count=2, slide_secs=1), "both by time or both by count"),
    (lambda: Shows().with_sliding_window(secs=1), "give length and slide"),
    (lambda: Shows().with_sliding_window(count=1, slide_count=2), "the slide is longer"),
    (lambda: Shows().with_tumbling_window(count=0), "count is 0; allowed: a number from 1 up"),
    (lambda: Shows().with_tumbling_window(secs=1).with_session_window(gap_secs=1), "has a window already"),
    (lambda: Shows().with_tumbling_window(secs=-1), "secs is -1; allowed: seconds above 0"),
    (lambda: JoinBolt("a", "k").join("b", "k", prior="c"), "to 'c'; allowed: a new component to one of a"),
    (lambda: stream().key_by("no"), "key_by.'no'.: the stream has k, at, n"),
    (lambda: stream().branch(), "branch.. has no function"),
    (lambda: stream().window("1s"), "window.'1s'.; allowed: tumbling"),
    (lambda: stream().key_by("k").join(stream().key_by("k"), tumbling(secs=1)), "other fields of different names"),
    (lambda: stream().key_by("k").join(stream().key_by("k"), 5), r"window\(5\); allowed: tumbling"),
])
def test_wrong_use_is_told_where_it_is_written(wrong: Callable[[], Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as error:
        wrong()
    assert "\n" not in str(error.value)


def test_operators_make_an_ordinary_topology() -> None:
    events = stream(lambda: [(f"k{n % 2}", float(n), n) for n in range(6)])
    low, high = events.branch(lambda tup: tup["n"] < 2, lambda tup: True)
    tens = low.map(lambda tup: ("low", tup["n"] * 10), "group", "ten").key_by("group")
    tens.reduce(max, "ten", name="most").to(lambda tup: None)
    keyed = high.filter(lambda tup: tup["n"] < 5).key_by("k")
    keyed.aggregate([], lambda so_far, tup: [*so_far, tup["n"]], field="all", name="lists").to(lambda tup: None)
    keyed.window(sliding(secs=4, slide_secs=2, by="at")).count(name="counts").to(lambda tup: None)
    keyed.window(session(gap_secs=1.5, by="at")).reduce(min, "n", name="least").to(lambda tup: None)
    found = complete_topology(events.build())
    assert found["most"] == [("low", 0), ("low", 10)]
    assert found["lists"] == [("k0", [2]), ("k1", [3]), ("k0", [2, 4])]
    assert sorted(found["counts"]) == [
        ("k0", 1, 0.0, 4.0), ("k0", 1, 4.0, 8.0), ("k0", 2, 2.0, 6.0), ("k1", 1, 0.0, 4.0), ("k1", 1, 2.0, 6.0),
    ]
    assert sorted(found["least"]) == [("k0", 2, 2.0, 3.5), ("k0", 4, 4.0, 5.5), ("k1", 3, 3.0, 4.5)]


def test_none_is_a_value_of_a_fold() -> None:
    keyed = stream(lambda: [("k", 0.0, None), ("k", 1.0, 5)]).key_by("k")
    for name, of in (("all", keyed), ("window", keyed.window(tumbling(secs=9, by="at")))):
        of.reduce(lambda one, other: (one, other), "n", name=name).to(lambda tup: None)
        of.aggregate(0, lambda so_far, tup: tup["n"] if so_far == 0 else so_far, name=f"{name} 1").to(lambda tup: None)
    found = complete_topology(keyed.build())
    assert (found["all"], found["all 1"]) == ([("k", None), ("k", (None, 5))], [("k", None)] * 2)
    assert (found["window"], found["window 1"]) == ([("k", (None, 5), 0.0, 9.0)], [("k", None, 0.0, 9.0)])


def test_streams_are_joined_by_a_time_that_both_have() -> None:
    builder = StreamBuilder()
    one = builder.source("one", spout("k", "at", "n")(lambda: [("a", 0.5, 1), ("a", 1.5, 2)])).key_by("k")
    other = builder.source("other", spout("k", "at", "m")(lambda: [("a", 0.2, 3)])).key_by("k")
    one.join(other, tumbling(secs=1, by="at"), name="pairs").to(lambda tup: None)
    assert complete_topology(builder.build())["pairs"] == [("a", 0.5, 1, 3)]
