"""Lines of `squall chaos` for people."""

from __future__ import annotations

import pytest

from squall.chaos.result_text import failures_text, verdict_text
from squall.engine.report.failure_log import ComponentFailures, FailureRecord


def test_failures_name_the_component_and_the_last_error() -> None:
    record = FailureRecord(1.0, "src", "7", "exception", "mid", 0, "node-1:6700", "ValueError: no number", 2)
    mid, end = ComponentFailures({"exception": 12}, [record]), ComponentFailures({"timeout": 3})
    said = failures_text({"mid": mid, "end": end})
    assert said == ["failures of end: 3 timeout", "failures of mid: 12 exception, the last: ValueError: no number"]


@pytest.mark.parametrize(("limits", "effects"), [([], ""), (["a", "b"], ""), ([], "effects of end"), (["a"], "b")])
def test_the_headline_says_that_not_all_is_shown(limits: list[str], effects: str) -> None:
    seeds = [{"seed": seed, "good": True, "verdict": {"not_shown": limits}} for seed in (1, 2)]
    expected = {"not_shown": effects, "asked": {"end": "count"}}
    *told, last = verdict_text({"seeds": seeds, "expected": expected, "bound": 1}).split("\n")
    assert told == [f"NOT SHOWN: {limit}" for limit in [*limits, effects] if limit]
    shown = "what is compared: count" + " (see NOT SHOWN above)" * bool(told)
    assert last == f"2 seeds, nothing lost or invented of {shown}, every death explained, nothing left behind"
