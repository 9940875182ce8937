"""Lines of `squall chaos` for people."""

from __future__ import annotations

from squall.chaos.result_text import compared_text, failures_text
from squall.engine.report.failure_log import ComponentFailures, FailureRecord


def test_failures_name_the_component_and_the_last_error() -> None:
    record = FailureRecord(1.0, "src", "7", "exception", "mid", 0, "node-1:6700", "ValueError: no number", 2)
    mid, end = ComponentFailures({"exception": 12}, [record]), ComponentFailures({"timeout": 3})
    said = failures_text({"mid": mid, "end": end})
    assert said == ["failures of end: 3 timeout", "failures of mid: 12 exception, the last: ValueError: no number"]


def test_the_headline_says_what_is_not_shown() -> None:
    assert compared_text([]) == ""
    assert compared_text(["a", "b"]) == " of what is compared (NOT SHOWN: 2 limits, see above)"
