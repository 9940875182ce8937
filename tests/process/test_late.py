"""Late tuples that were dropped, on workers: the exit code, the warning, the status."""

from __future__ import annotations

from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

DROPPING = "tests/unit/test_late.py:dropping"


def test_what_was_late_is_told_and_can_fail_a_follower(standing: Standing) -> None:
    standing.ok("submit", DROPPING, "--name", "dropping")
    wait_for("a late tuple", lambda: standing.described("dropping")["late"] == 1)
    assert "1 late tuple was dropped (1 in windows): " in standing.ok("status", "dropping")
    failing = "submit", DROPPING, "--name", "failing", "--until-drained", "--set", "fail_on_late=true"
    done = standing.run(*failing)
    assert done.returncode == 1
    assert "WARNING: 1 late tuple was dropped (1 in windows): " in done.stderr
