"""Why a run of `squall chaos` fails."""

from __future__ import annotations

from squall.chaos.checker import Verdict
from squall.chaos.deaths import Death
from squall.chaos.proof import problems_of
from squall.chaos.trial import Outcome


def test_a_death_that_every_run_has_needs_no_fault() -> None:
    outcome = Outcome(0.0, drained=True)
    outcome.deaths = [Death("node-1:6700", 0.5, "exited with code 1"), Death("node-1:6701", 0.7, "killed by SIGSEGV")]
    seen = problems_of(outcome, Verdict(), frozenset({"exited with code 1"}))
    assert seen == ["node-1:6701 died at 0.700 s by no fault: killed by SIGSEGV"]
    assert len(problems_of(outcome, Verdict())) == 2
