"""Timestamps of any type: one rule for what has no zone, and what is none."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.state.times import ns_of, times_of

pandas = pytest.importorskip("pandas")

MOMENT = datetime.datetime(2026, 3, 8, 2, 30, 0, 123_457)
"""Is no time of New York's clocks, and has more digits than a float of seconds holds exactly."""
NS = 1_772_937_000_123_457_000
UTC, NEW_YORK = datetime.UTC, ZoneInfo("America/New_York")


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kathmandu"], autouse=True)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of the process."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("column", [
    [MOMENT], [MOMENT.replace(tzinfo=UTC).astimezone(NEW_YORK)], [pandas.Timestamp(MOMENT).as_unit("us")],
    [pandas.Timestamp(MOMENT, tz="UTC").tz_convert("Asia/Tokyo")], [numpy.datetime64(MOMENT)],
    numpy.array([MOMENT], "M8[us]"), pyarrow.chunked_array([[MOMENT]]),
    pyarrow.array([MOMENT], pyarrow.timestamp("us", "Asia/Tokyo")), [pyarrow.array([MOMENT])[0]],
], ids=lambda column: f"{type(column).__name__} {getattr(column, 'type', getattr(column, 'dtype', column[0]))}")
def test_a_time_without_a_zone_is_utc_whatever_its_type_and_the_zone_of_the_machine(column: Any) -> None:
    assert times_of(column, "at") == ([NS], {})


@pytest.mark.parametrize(("column", "ns"), [
    ([pandas.Timestamp(NS + 1)], NS + 1), ([numpy.datetime64(NS + 1, "ns")], NS + 1),
    (pyarrow.array([NS + 1], pyarrow.timestamp("ns", "Asia/Tokyo")), NS + 1),
    (pyarrow.array([7], pyarrow.timestamp("s")), 7 * 10**9), (pyarrow.array([7], pyarrow.timestamp("ms")), 7_000_000),
    (numpy.array([7], "M8[h]"), 7 * 3600 * 10**9),
    (pyarrow.array([datetime.date(1970, 1, 8)], pyarrow.date64()), 7 * 86_400 * 10**9),
    ([-7.5], -7_500_000_000), ([numpy.int64(7)], 7 * 10**9), (pyarrow.array([7]), 7 * 10**9),
], ids=str)
def test_other_times(column: Any, ns: int) -> None:
    assert times_of(column, "at") == ([ns], {})


@given(st.datetimes(datetime.datetime(1850, 1, 1), datetime.datetime(2090, 1, 1)))
def test_times_are_exact_to_their_last_digit(at: datetime.datetime) -> None:
    expected = int(numpy.datetime64(at, "us").astype("i8")) * 1_000
    assert times_of([at, at.replace(tzinfo=UTC)], "at") == ([expected, expected], {})


@pytest.mark.parametrize(("at", "why"), [
    ("12:00", "is '12:00'; expected seconds since 1970, a date or a datetime"), (None, "is None; expected"),
    (True, "is True; expected"), (Decimal(5), r"is Decimal\('5'\); expected"), (float("nan"), "is nan, which is no"),
    (float("inf"), "is inf, which is no time"), (10**30, "which is no time; expected"),
    (1.7e12, "is 1700000000000.0, which looks like milliseconds: divide by 1000; expected seconds"),
    (NS // 1_000, "looks like microseconds: divide by 1000000;"),
    (NS, "looks like nanoseconds: divide by 1000000000;"), (pandas.NaT, "is NaT, which is not in the years"),
    (numpy.datetime64("NaT"), "NaT.*which is not in the years"), (datetime.date.max, "is not in the years 1844 to"),
    (datetime.datetime.min.replace(tzinfo=NEW_YORK), "is not in the years"), (numpy.bool_(True), "expected"),
    (datetime.time(12), "expected seconds"),
], ids=str)
def test_what_is_no_time_is_told_with_its_row(at: Any, why: str) -> None:
    times, mistakes = times_of([7, at, 8], "at")
    assert (times[0], times[2], list(mistakes)) == (7 * 10**9, 8 * 10**9, [1])
    assert re.fullmatch(rf"timestamp field 'at' .*{why}.*", mistakes[1]), mistakes


@pytest.mark.parametrize("column", [
    numpy.array([7_000, "NaT", 1_000], "M8[ms]"),
    pyarrow.array([7_000, None, 1_000], pyarrow.timestamp("ms")), pyarrow.array([7, 2**60, 1], pyarrow.timestamp("s")),
], ids=str)
def test_a_column_with_a_time_that_is_none(column: Any) -> None:
    times, mistakes = times_of(column, "at")
    assert (times, list(mistakes)) == ([7 * 10**9, 0, 10**9], [1])


@given(st.floats(1e9, 3.9e9))
def test_nanoseconds_of_a_float_lead_back_to_it(secs: float) -> None:
    assert ns_of(secs) / 10**9 == secs
